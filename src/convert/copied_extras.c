/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/copied_extras.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static dcp_status read_info(struct copied_extras *extras, const struct convert_source *source,
                            dcp_save_options *save)
{
    dcp_save_info info;
    extras->root = dcp_state_new();
    if (!extras->root)
        return error_no_memory(1, "the info of a save");
    RETURN_IF_ERROR(dcp_checkpoint_info(source->checkpoint, extras->root, "info", &info));
    save->has_step = info.has_step;
    save->step = info.step;
    save->info = info.has_info ? dcp_state_find(extras->root, "info") : NULL;
    return DCP_OK;
}

static dcp_status read_file(const struct convert_source *source, size_t index,
                            const dcp_extra_file_info *info, dcp_extra_file *file)
{
    void *bytes = info->size < SIZE_MAX ? memory_allocate((size_t)info->size) : NULL;
    *file = (dcp_extra_file){
        .size_of = sizeof *file, .name = info->name, .bytes = bytes, .size = (size_t)info->size};
    if (!bytes)
        return error_no_memory((size_t)info->size, info->name);
    return dcp_checkpoint_read_extra_file(source->checkpoint, index, bytes, (size_t)info->size,
                                          NULL);
}

static dcp_status read_files(struct copied_extras *extras, struct convert_source *source)
{
    size_t count = dcp_checkpoint_extra_file_count(source->checkpoint);
    extras->files = memory_allocate_zeroed(count, sizeof *extras->files);
    if (!extras->files)
        return error_no_memory(count * sizeof *extras->files, "extra files");
    for (size_t i = 0; i < count; i++) {
        dcp_extra_file_info info;
        RETURN_IF_ERROR(dcp_checkpoint_extra_file(source->checkpoint, i, &info));
        if (strchr(info.name, '/'))
            source->left_out++;
        else
            RETURN_IF_ERROR(read_file(source, i, &info, &extras->files[extras->count++]));
    }
    return DCP_OK;
}

dcp_status copied_extras_read(struct copied_extras *extras, struct convert_source *source,
                              dcp_save_options *save)
{
    if (!source->checkpoint)
        return DCP_OK;
    RETURN_IF_ERROR(read_info(extras, source, save));
    RETURN_IF_ERROR(read_files(extras, source));
    save->extra_files = extras->count > 0 ? extras->files : NULL;
    save->extra_file_count = extras->count;
    return DCP_OK;
}

void copied_extras_free(struct copied_extras *extras)
{
    for (size_t i = 0; i < extras->count; i++)
        memory_release((void *)extras->files[i].bytes);
    memory_release(extras->files);
    dcp_state_free(extras->root);
    *extras = (struct copied_extras){0};
}
