/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files of a checkpoint, listed and read. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "checkpoint/view/view.h"
#include "storage/shard/extra_read.h"

/* Planners of a load are shown metadata that may have been kept since the load before, whose files
 * are not this one's. */
size_t dcp_checkpoint_extra_file_count(const dcp_checkpoint *checkpoint)
{
    bool own = checkpoint && checkpoint->metadata == &checkpoint->own;
    return own ? checkpoint->own.extra_file_count : 0;
}

static dcp_status find(const dcp_checkpoint *checkpoint, size_t index,
                       const struct extra_file **extra)
{
    size_t count = dcp_checkpoint_extra_file_count(checkpoint);
    if (!checkpoint)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the checkpoint is NULL");
    if (index >= count)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "extra file %zu was requested, but the checkpoint has %zu", index,
                             count);
    *extra = &checkpoint->own.extra_files[index];
    return DCP_OK;
}

dcp_status dcp_checkpoint_extra_file_sized(const dcp_checkpoint *checkpoint, size_t index,
                                           dcp_extra_file_info *info, size_t info_size)
{
    const struct extra_file *extra = NULL;
    if (!info)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the place for an extra file is NULL");
    RETURN_IF_ERROR(find(checkpoint, index, &extra));
    const dcp_extra_file_info ours = {extra->name, extra->file, extra->size, extra->digest};
    sized_write(info, info_size, &ours, sizeof ours);
    return DCP_OK;
}

dcp_status dcp_checkpoint_find_extra_file(const dcp_checkpoint *checkpoint, const char *name,
                                          size_t *index)
{
    if (!checkpoint || !name || !index)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "finding an extra file needs a checkpoint, a name and a place");
    for (size_t i = 0; i < dcp_checkpoint_extra_file_count(checkpoint); i++)
        if (strcmp(checkpoint->own.extra_files[i].name, name) == 0) {
            *index = i;
            return DCP_OK;
        }
    return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no extra file of the checkpoint", name);
}

dcp_status dcp_checkpoint_read_extra_file_sized(dcp_checkpoint *checkpoint, size_t index,
                                                void *bytes, size_t size,
                                                const dcp_read_options *options,
                                                size_t options_size)
{
    dcp_read_options how;
    const struct extra_file *extra = NULL;
    RETURN_IF_ERROR(find(checkpoint, index, &extra));
    if (size != extra->size || (!bytes && size > 0))
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s: %zu bytes are given for it, expected %" PRIu64,
                             extra->name, bytes ? size : 0, extra->size);
    RETURN_IF_ERROR(view_read_options(extra->name, options, options_size, &how));
    if (!checkpoint->reader)
        return dcp_error_set(DCP_ERR_STATE,
                             "%s: only the metadata is here: open the checkpoint to read data",
                             extra->name);
    return extra_read(checkpoint->reader, extra, how.verification, bytes);
}
