/* SPDX-License-Identifier: BSD-3-Clause */
/* One safetensors file, and one of several that are a model. */
#include "convert/target_safetensors.h"

#include "base/error.h"
#include "base/memory.h"

static dcp_status add_run(struct safetensors_output *files, struct convert_run run)
{
    if (files->run_count == files->run_capacity) {
        size_t capacity = 2 * files->run_capacity + 64;
        struct convert_run *runs = memory_reallocate_array(files->runs, capacity, sizeof *runs);
        if (!runs)
            return error_no_memory(capacity * sizeof *runs, "tensors to write");
        files->runs = runs;
        files->run_capacity = capacity;
    }
    files->runs[files->run_count++] = run;
    return DCP_OK;
}

dcp_status safetensors_output_add(struct safetensors_output *files, const char *name,
                                  const struct convert_item **items, size_t count)
{
    struct buffer header;
    size_t file = 0;
    buffer_init(&header, 0);
    dcp_status status = safetensors_sort(items, count);
    if (status == DCP_OK)
        status = safetensors_put_header(items, count, &header);
    uint64_t offset = header.size;
    uint64_t size = offset;
    for (size_t i = 0; i < count; i++)
        size += items[i]->bytes; /* less than 2^63: the header says it */
    if (status == DCP_OK)
        status = convert_output_add(&files->output, name, size, &file);
    if (status == DCP_OK)
        status = convert_output_write(&files->output, file, header.data, header.size, 0);
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        status = add_run(
            files, (struct convert_run){
                       .item = items[i], .size = items[i]->bytes, .file = file, .offset = offset});
        offset += items[i]->bytes;
    }
    buffer_free(&header);
    return status;
}

dcp_status safetensors_output_copy(struct safetensors_output *files,
                                   const struct convert_source *source, struct progress *progress)
{
    RETURN_IF_ERROR(
        convert_copy(source, &files->output, files->runs, files->run_count, NULL, progress));
    for (size_t i = 0; i < files->output.count; i++)
        if (files->output.files[i] >= 0)
            RETURN_IF_ERROR(convert_output_seal(&files->output, i));
    files->run_count = 0;
    return DCP_OK;
}

void safetensors_output_end(struct safetensors_output *files)
{
    convert_output_end(&files->output);
    memory_release(files->runs);
}

static dcp_status write_file(struct convert_source *source, const struct convert_target *target,
                             const struct convert_item **items, struct safetensors_output *files)
{
    for (size_t i = 0; i < source->count; i++)
        items[i] = &source->items[i];
    target->report->files = 1;
    if (source->options->dry_run)
        return safetensors_sort(items, source->count);
    RETURN_IF_ERROR(convert_output_begin(&files->output, target->path, false,
                                         source->options->skip_sync, target->journal));
    RETURN_IF_ERROR(safetensors_output_add(files, "", items, source->count));
    RETURN_IF_ERROR(safetensors_output_copy(files, source, target->progress));
    return convert_output_commit(&files->output, source, target->progress);
}

dcp_status convert_to_safetensors(struct convert_source *source,
                                  const struct convert_target *target)
{
    struct safetensors_output files = {0};
    RETURN_IF_ERROR(convert_drop_tied(source, &target->report->tied));
    const struct convert_item **items = memory_allocate_array(source->count, sizeof *items);
    dcp_status status = items ? write_file(source, target, items, &files)
                              : error_no_memory(source->count * sizeof *items, "names in order");
    safetensors_output_end(&files);
    memory_release((void *)items);
    return status;
}
