/* SPDX-License-Identifier: BSD-3-Clause */
/* A checkpoint that is replaced while it is read: its files go, one by one. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "storage/open/storage_open.h"
#include "storage/shard/shard_file.h"

/* The id of the save that wrote the current .metadata. */
static dcp_status read_now(const struct shard_reader *reader, const struct metadata_member *member,
                           struct metadata *metadata)
{
    struct storage_place place;
    char *id = member ? storage_member_id(reader->id, member->name) : memory_copy_text(reader->id);
    if (!id)
        return error_no_memory(strlen(reader->id) + 1, "a path");
    dcp_status status =
        storage_place_find(reader->storage, (struct storage_location){.path = id}, &place);
    memory_release(id);
    RETURN_IF_ERROR(status);
    status = place.form == STORAGE_DCP ? storage_decode_directory(&place, metadata)
                                       : dcp_error_set(DCP_ERR_NOT_FOUND, "no .metadata");
    storage_place_free(&place);
    return status;
}

dcp_status shard_file_explain_missing(const struct shard_reader *reader,
                                      const struct metadata_member *member, const char *save_id,
                                      dcp_status status)
{
    struct saved_error error;
    struct metadata now;
    if (status != DCP_ERR_NOT_FOUND || !*save_id)
        return status;
    error_save(&error);
    /* No limit of the load is meant for finding out why it fails. */
    struct memory_account *account = memory_account_enter(NULL);
    metadata_init(&now);
    dcp_status looked = read_now(reader, member, &now);
    if (looked == DCP_OK && strcmp(now.save_id, save_id) != 0)
        status = dcp_error_set(DCP_ERR_BUSY,
                               "%s: the checkpoint was replaced while it was read: it was of save "
                               "%s, now it is of save %s; begin again (%.400s)",
                               reader->id, save_id, *now.save_id ? now.save_id : "without an id",
                               error.text);
    else
        error_restore(&error);
    metadata_free(&now);
    memory_account_enter(account);
    return status;
}
