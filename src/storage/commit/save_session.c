/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "storage/commit/save_id.h"
#include "storage/open/directory.h"
#include "storage/shard/shard_writer.h"

/* What makes a directory a checkpoint, as reading sees it. */
static const struct directory_name *find_checkpoint(const struct directory *directory)
{
    static const enum directory_kind kinds[] = {DIRECTORY_METADATA, DIRECTORY_RANK_LOCAL,
                                                DIRECTORY_SAFETENSORS};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (directory_count(directory, kinds[i]) > 0)
            return &directory->names[directory->first[kinds[i]]];
    }
    return NULL;
}

/* Debris of interrupted saves counts as well, so that nothing that exists is ever written to. */
static dcp_status pick_generation(const struct directory *directory, const char *path,
                                  uint32_t *generation)
{
    *generation = 0;
    for (size_t i = directory->first[DIRECTORY_SHARD]; i < directory->first[DIRECTORY_SHARD + 1];
         i++) {
        const struct directory_name *shard = &directory->names[i];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): no names, no turn of the loop */
        if (shard->generation == UINT32_MAX)
            return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s/%s: no generation can follow", path,
                                 shard->name);
        if (shard->generation >= *generation)
            *generation = shard->generation + 1;
    }
    return DCP_OK;
}

/* Looks at what is there, without changing anything. */
static dcp_status inspect(struct save_session *session, const dcp_storage *storage,
                          dcp_overwrite overwrite)
{
    struct storage_directory found;
    struct directory directory;
    dcp_status status = storage_directory_open(&found, storage, session->path, 0, NULL);
    if (status == DCP_ERR_NOT_FOUND)
        return DCP_OK;
    if (status == DCP_ERR_KIND)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s is not a directory", session->path);
    RETURN_IF_ERROR(status);
    status = directory_read(&found, &directory);
    storage_directory_close(&found);
    RETURN_IF_ERROR(status);
    const struct directory_name *existing = find_checkpoint(&directory);
    session->replaces = existing != NULL;
    if (existing && overwrite == DCP_OVERWRITE_REFUSE)
        status =
            dcp_error_set(DCP_ERR_EXISTS, "%s holds a checkpoint (%s), and overwriting is refused",
                          session->path, existing->name);
    else
        status = pick_generation(&directory, session->path, &session->generation);
    directory_free(&directory);
    return status;
}

static dcp_status start_session(struct save_session *session, const char *path, bool sync)
{
    *session = (struct save_session){.sync = sync};
    session->path = memory_copy_text(path);
    return session->path ? DCP_OK : error_no_memory(strlen(path) + 1, "path of a save");
}

dcp_status save_session_imagine(struct save_session *session, const dcp_storage *storage,
                                const char *path, bool sync)
{
    RETURN_IF_ERROR(start_session(session, path, sync));
    memset(session->save_id, '0', SAVE_ID_LENGTH);
    dcp_status status = inspect(session, storage, DCP_OVERWRITE_REPLACE);
    if (status != DCP_OK)
        save_session_free(session);
    return status;
}

dcp_status save_session_begin(struct save_session *session, const dcp_storage *storage,
                              const char *path, dcp_overwrite overwrite, bool sync)
{
    uint32_t flags = DCP_OPEN_CREATE | (sync ? DCP_OPEN_DURABLE : 0u);
    RETURN_IF_ERROR(start_session(session, path, sync));
    dcp_status status = inspect(session, storage, overwrite);
    if (status == DCP_OK)
        status = save_id_make(session->save_id);
    if (status == DCP_OK)
        status = storage_directory_open(&session->directory, storage, path, flags,
                                        &session->made_directory);
    if (status != DCP_OK)
        save_session_free(session);
    return status;
}

dcp_status save_session_join(struct save_session *session, const dcp_storage *storage,
                             const char *path)
{
    RETURN_IF_ERROR(start_session(session, path, true));
    dcp_status status = storage_directory_open(&session->directory, storage, path, 0, NULL);
    if (status != DCP_OK)
        save_session_free(session);
    return status;
}

void save_session_promise_nothing(struct save_session *session)
{
    save_id_unmark(session->save_id);
}

dcp_status save_session_check_space(const struct save_session *session, uint64_t bytes)
{
    uint64_t room;
    if (!save_session_is_open(session))
        return DCP_OK;
    RETURN_IF_ERROR(storage_directory_space(&session->directory, &room));
    if (bytes <= room)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_NO_SPACE,
                         "%s: the save needs %" PRIu64 " bytes, but the disk has room for %" PRIu64,
                         session->path, bytes, room);
}

void save_session_abandon(const struct save_session *session)
{
    if (session->made_directory)
        storage_directory_withdraw(&session->directory);
}

void save_session_free(struct save_session *session)
{
    storage_directory_close(&session->directory);
    memory_release(session->path);
    session->path = NULL;
}
