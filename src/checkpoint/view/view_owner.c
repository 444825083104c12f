/* SPDX-License-Identifier: BSD-3-Clause */
/* A directory owned by other operations than saves, such as copies. */
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/operation/options.h"
#include "dcp/checkpoint.h"
#include "storage/commit/save_owner.h"

/* Another operation that has made the directory may remove it when it fails. */
enum { OPENINGS = 10 };

struct dcp_owner {
    dcp_storage storage;
    struct storage_directory directory;
    struct save_owner *mark;
    bool made_directory;
};

static dcp_status own(struct dcp_owner *owner, const char *path, double takeover_seconds)
{
    const dcp_storage *chosen;
    char id[SAVE_ID_SIZE];
    dcp_status status = DCP_ERR_NOT_FOUND;
    RETURN_IF_ERROR(storage_choose(&owner->storage, path, &chosen));
    RETURN_IF_ERROR(save_id_make(id));
    for (int i = 0; i < OPENINGS && status == DCP_ERR_NOT_FOUND; i++) {
        storage_directory_close(&owner->directory);
        RETURN_IF_ERROR(storage_directory_open(&owner->directory, chosen, path,
                                               DCP_OPEN_CREATE | DCP_OPEN_DURABLE,
                                               &owner->made_directory));
        status = save_owner_take_all(&owner->directory, id, takeover_seconds, &owner->mark);
    }
    return status;
}

dcp_status dcp_owner_take_sized(const char *path, const dcp_owner_options *options,
                                size_t options_size, dcp_owner **made)
{
    dcp_owner_options ours;
    if (!path || !*path || !made)
        return dcp_error_set(DCP_ERR_ARGUMENT, "owning a directory needs its path");
    *made = NULL;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_owner_options"));
    RETURN_IF_ERROR(options_check_takeover(&ours.takeover_seconds));
    struct dcp_owner *owner = memory_allocate_zeroed(1, sizeof *owner);
    if (!owner)
        return error_no_memory(sizeof *owner, "the owner of a directory");
    dcp_status status = storage_take(&owner->storage, ours.storage);
    if (status == DCP_OK)
        status = own(owner, path, ours.takeover_seconds);
    if (status == DCP_OK)
        *made = owner;
    else
        dcp_owner_release(owner);
    return status;
}

dcp_status dcp_owner_check(const dcp_owner *owner)
{
    return owner ? save_owner_check(owner->mark, &owner->directory)
                 : dcp_error_set(DCP_ERR_ARGUMENT, "no owner to check");
}

void dcp_owner_release(dcp_owner *owner)
{
    if (!owner)
        return;
    save_owner_free(owner->mark, &owner->directory);
    if (owner->made_directory)
        storage_directory_withdraw(&owner->directory);
    storage_directory_close(&owner->directory);
    memory_release(owner);
}
