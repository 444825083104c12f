/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/commit/save_remove.h"

#include <string.h>

#include "base/error.h"
#include "storage/commit/save_owner.h"
#include "storage/open/directory.h"

/* PyTorch's temporary file, before it renames it. */
#define TORCH_TEMPORARY ".metadata.tmp"

/* The order of removal: files that make the others a checkpoint come first. */
enum removal_step { STEP_METADATA, STEP_PARTS, STEP_DATA, STEP_COUNT, STEP_NEVER };

static enum removal_step step_of(const struct directory_name *name)
{
    switch (name->kind) {
    case DIRECTORY_METADATA:
        return STEP_METADATA;
    case DIRECTORY_RANK_LOCAL:
        return STEP_PARTS;
    case DIRECTORY_SHARD:
    case DIRECTORY_EXTRA:
    case DIRECTORY_TEMPORARY:
        return STEP_DATA;
    default:
        break;
    }
    if (strcmp(name->name, TORCH_TEMPORARY) == 0)
        return STEP_DATA;
    return strcmp(name->name, JSON_NAME) == 0 ? STEP_PARTS : STEP_NEVER;
}

/* A mark is removed by its owner. */
static bool is_mark(const struct directory_name *name)
{
    return name->kind == DIRECTORY_OWNER || name->kind == DIRECTORY_RANK_OWNER;
}

static bool is_foreign(const struct directory_name *name)
{
    return step_of(name) == STEP_NEVER && !is_mark(name);
}

/* A mark may be all that an interrupted removal has left. Other programs write a metadata.json,
 * too, so it alone is not a checkpoint. */
static bool has_checkpoint(const struct directory *listed)
{
    for (size_t i = 0; i < listed->count; i++)
        if (!is_foreign(&listed->names[i]) && strcmp(listed->names[i].name, JSON_NAME) != 0)
            return true;
    return false;
}

/* A step is durable before the next one begins. */
static dcp_status remove_step(const struct storage_directory *directory,
                              const struct directory *listed, enum removal_step step,
                              uint64_t *removed)
{
    uint64_t before = *removed;
    for (size_t i = 0; i < listed->count; i++) {
        const struct directory_name *name = &listed->names[i];
        if (step_of(name) != step)
            continue;
        RETURN_IF_ERROR(storage_directory_remove(directory, name->name));
        ++*removed;
    }
    return *removed > before ? storage_directory_sync(directory) : DCP_OK;
}

static dcp_status remove_listed(const struct storage_directory *directory,
                                const struct save_owner *owner, const struct directory *listed,
                                uint64_t *removed)
{
    for (enum removal_step step = STEP_METADATA; step < STEP_COUNT; step++) {
        RETURN_IF_ERROR(save_owner_check(owner, directory));
        RETURN_IF_ERROR(remove_step(directory, listed, step, removed));
    }
    return DCP_OK;
}

/* Checks first, so that a directory without a checkpoint is not marked. */
static dcp_status check_there(const struct storage_directory *directory)
{
    struct directory listed;
    RETURN_IF_ERROR(directory_read(directory, &listed));
    bool there = has_checkpoint(&listed);
    directory_free(&listed);
    return there
               ? DCP_OK
               : dcp_error_set(DCP_ERR_NOT_FOUND,
                               "%s holds no checkpoint: there is nothing to remove", directory->id);
}

static dcp_status report_foreign(const struct directory *listed, dcp_storage_visitor visitor,
                                 void *context, uint64_t *foreign)
{
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < listed->count; i++) {
        if (!is_foreign(&listed->names[i]))
            continue;
        ++*foreign;
        if (visitor && status == DCP_OK)
            status = error_checked(visitor(context, listed->names[i].name), "a visitor");
    }
    return status;
}

dcp_status save_remove(const struct storage_directory *directory, double takeover_seconds,
                       dcp_storage_visitor visitor, void *context, struct save_removal *removal)
{
    char id[SAVE_ID_SIZE];
    struct save_owner *owner;
    struct directory listed;
    *removal = (struct save_removal){0};
    RETURN_IF_ERROR(check_there(directory));
    RETURN_IF_ERROR(save_id_make(id));
    RETURN_IF_ERROR(save_owner_take_all(directory, id, takeover_seconds, &owner));
    dcp_status status = directory_read(directory, &listed);
    if (status == DCP_OK)
        status = remove_listed(directory, owner, &listed, &removal->removed);
    save_owner_free(owner, directory);
    if (status == DCP_OK)
        status = report_foreign(&listed, visitor, context, &removal->foreign);
    directory_free(&listed);
    /* Without the mark: a save that has put its own there meanwhile keeps the directory. */
    if (status == DCP_OK && removal->foreign == 0)
        storage_directory_withdraw(directory);
    return status;
}
