/* SPDX-License-Identifier: BSD-3-Clause */
/* A Hugging Face directory: its tensors divided over files as transformers does it, the index, and
 * the other files of the source. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/model_files.h"
#include "convert/model_order.h"
#include "format/safetensors/safetensors_index.h"

/* transformers 5's own. */
#define SHARD_SIZE_USUAL UINT64_C(50000000000)
/* So many files are open at a time. */
enum { NAME_SIZE = 64, FILES_AT_A_TIME = 64 };

/* What is divided. */
struct division {
    struct convert_source *source;
    uint64_t limit;
    size_t *shard; /* of each item, by number */
    size_t shard_count;
    const struct convert_item **items; /* of one file */
};

/* An item and its shard. */
struct placed {
    size_t shard, item;
};

/* The end of the items that go together: one tensor, or a stack of experts. */
static size_t unit_end(const struct convert_source *source, size_t begin, uint64_t *bytes)
{
    size_t end = begin + 1;
    *bytes = source->items[begin].bytes;
    while (end < source->count &&
           model_order_is_stacked(&source->items[end], &source->items[end - 1]))
        *bytes += source->items[end++].bytes;
    return end;
}

/* Numbers the open shard. */
static void finish_shard(struct division *division, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (division->shard[i] == SIZE_MAX)
            division->shard[i] = division->shard_count;
    division->shard_count++;
}

/* As transformers 5 does it: what is larger than a shard becomes one at once, while the open one
 * stays open. */
static void divide(struct division *division)
{
    const size_t open_number = SIZE_MAX; /* until the open shard ends, and gets its number */
    uint64_t open_bytes = 0, bytes;
    size_t open_begin = 0, open_count = 0; /* tensors of no bytes count, too */
    for (size_t begin = 0, end; begin < division->source->count; begin = end) {
        end = unit_end(division->source, begin, &bytes);
        size_t number = open_number;
        if (bytes > division->limit) {
            number = division->shard_count++;
        } else if (open_bytes > 0 && bytes > division->limit - open_bytes) {
            finish_shard(division, open_begin, begin);
            open_begin = begin;
            open_bytes = open_count = 0;
        }
        for (size_t i = begin; i < end; i++)
            division->shard[i] = number;
        open_bytes += number == open_number ? bytes : 0;
        open_count += number == open_number ? end - begin : 0;
    }
    if (open_count > 0 || division->shard_count == 0)
        finish_shard(division, open_begin, division->source->count);
}

static void shard_name(const struct division *division, size_t shard, char name[NAME_SIZE])
{
    if (division->shard_count == 1)
        snprintf(name, NAME_SIZE, "model.safetensors");
    else
        snprintf(name, NAME_SIZE, "model-%05zu-of-%05zu.safetensors", shard + 1,
                 division->shard_count);
}

static int compare_by_shard(const void *a, const void *b)
{
    const struct placed *left = a, *right = b;
    if (left->shard != right->shard)
        return left->shard < right->shard ? -1 : 1;
    return (left->item > right->item) - (left->item < right->item);
}

/* Writes the shards, some at a time. placed: room for all items. */
static dcp_status write_shards(struct division *division, struct placed *placed,
                               struct safetensors_output *files, struct progress *progress)
{
    const struct convert_source *source = division->source;
    char name[NAME_SIZE];
    size_t next = 0;
    for (size_t i = 0; i < source->count; i++)
        placed[i] = (struct placed){division->shard[i], i};
    if (source->count > 1)
        qsort(placed, source->count, sizeof *placed, compare_by_shard);
    for (size_t shard = 0; shard < division->shard_count; shard++) {
        size_t count = 0;
        while (next < source->count && placed[next].shard == shard)
            division->items[count++] = &source->items[placed[next++].item];
        shard_name(division, shard, name);
        RETURN_IF_ERROR(safetensors_output_add(files, name, division->items, count));
        if ((shard + 1) % FILES_AT_A_TIME == 0 || shard + 1 == division->shard_count)
            RETURN_IF_ERROR(safetensors_output_copy(files, source, progress));
    }
    return DCP_OK;
}

static dcp_status add_shards(struct division *division, struct safetensors_output *files,
                             struct progress *progress)
{
    size_t count = division->source->count;
    struct placed *placed = memory_allocate_array(count, sizeof *placed);
    if (!placed)
        return error_no_memory(count * sizeof *placed, "the files of a model");
    dcp_status status = write_shards(division, placed, files, progress);
    memory_release(placed);
    return status;
}

static int compare_by_name(const void *a, const void *b)
{
    const struct convert_item *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

static dcp_status add_index(struct division *division, struct safetensors_output *files)
{
    const struct convert_source *source = division->source;
    uint64_t elements = 0, bytes = 0;
    struct buffer text;
    char name[NAME_SIZE];
    for (size_t i = 0; i < source->count; i++) {
        division->items[i] = &source->items[i];
        elements += source->items[i].bytes / dcp_dtype_size(source->items[i].dtype);
        bytes += source->items[i].bytes;
    }
    if (source->count > 1)
        qsort((void *)division->items, source->count, sizeof *division->items, compare_by_name);
    buffer_init(&text, 0);
    buffer_append_format(&text,
                         "{\n  \"metadata\": {\n    \"total_parameters\": %" PRIu64
                         ",\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
                         elements, bytes);
    for (size_t i = 0; i < source->count; i++) {
        shard_name(division, division->shard[division->items[i] - source->items], name);
        buffer_append_format(&text, "%s\n    ", i > 0 ? "," : "");
        safetensors_put_string(&text, division->items[i]->name, true);
        buffer_append_format(&text, ": \"%s\"", name);
    }
    buffer_append_format(&text, "\n  }\n}\n");
    dcp_status status = buffer_status(&text);
    if (status == DCP_OK)
        status = model_files_add(files, SAFETENSORS_INDEX_NAME, text.data, text.size);
    buffer_free(&text);
    return status;
}

/* What a file of them would say is wrong. */
static dcp_status check_items(const struct division *division)
{
    for (size_t i = 0; i < division->source->count; i++)
        division->items[i] = &division->source->items[i];
    return safetensors_sort(division->items, division->source->count);
}

static dcp_status write_model(struct division *division, const struct convert_target *target,
                              struct safetensors_output *files)
{
    struct convert_source *source = division->source;
    divide(division);
    target->report->files = division->shard_count;
    if (source->options->dry_run)
        return check_items(division);
    RETURN_IF_ERROR(convert_output_begin(&files->output, target->path, true,
                                         source->options->skip_sync, target->journal));
    RETURN_IF_ERROR(add_shards(division, files, target->progress));
    if (division->shard_count > 1)
        RETURN_IF_ERROR(add_index(division, files));
    RETURN_IF_ERROR(model_files_carry(source, files));
    return convert_output_commit(&files->output, source, target->progress);
}

dcp_status convert_to_model(struct convert_source *source, const struct convert_target *target)
{
    struct safetensors_output files = {0};
    struct division division = {.source = source, .limit = source->options->shard_size};
    if (division.limit == 0)
        division.limit = SHARD_SIZE_USUAL;
    RETURN_IF_ERROR(convert_drop_tied(source, &target->report->tied));
    bool by_name = source->form == DCP_FORM_HF || source->form == DCP_FORM_SAFETENSORS;
    RETURN_IF_ERROR(model_order(source, by_name));
    division.shard = memory_allocate_array(source->count, sizeof *division.shard);
    division.items = memory_allocate_array(source->count, sizeof *division.items);
    dcp_status status =
        division.shard && division.items
            ? write_model(&division, target, &files)
            : error_no_memory(source->count * sizeof *division.shard, "the files of a model");
    safetensors_output_end(&files);
    memory_release(division.shard);
    memory_release((void *)division.items);
    return status;
}
