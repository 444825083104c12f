/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/sized.h"
#include "checkpoint/operation/options.h"
#include "dcp/checkpoint.h"
#include "storage/commit/save_remove.h"

dcp_status dcp_checkpoint_remove_sized(const char *path, const dcp_remove_options *options,
                                       size_t options_size, dcp_removal *removal,
                                       size_t removal_size)
{
    dcp_remove_options ours;
    dcp_storage storage;
    const dcp_storage *chosen;
    struct storage_directory directory;
    struct save_removal done = {0};
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_remove_options"));
    if (!path || !*path)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a checkpoint to remove needs a path");
    RETURN_IF_ERROR(options_check_takeover(&ours.takeover_seconds));
    RETURN_IF_ERROR(storage_take(&storage, ours.storage));
    RETURN_IF_ERROR(storage_choose(&storage, path, &chosen));
    RETURN_IF_ERROR(storage_directory_open(&directory, chosen, path, 0, NULL));
    dcp_status status =
        save_remove(&directory, ours.takeover_seconds, ours.foreign, ours.foreign_context, &done);
    storage_directory_close(&directory);
    const dcp_removal result = {.removed = done.removed, .foreign = done.foreign};
    if (removal)
        sized_write(removal, removal_size, &result, sizeof result);
    return status;
}
