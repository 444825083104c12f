/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "storage/commit/save_id.h"
#include "storage/commit/save_owner.h"
#include "storage/open/directory.h"
#include "storage/shard/shard_writer.h"

/* Finds the file that makes a directory a checkpoint for readers. */
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

/* The same for the part of one rank, ignoring those of other ranks. */
static const struct directory_name *find_part(const struct directory *directory, int rank)
{
    for (size_t i = directory->first[DIRECTORY_RANK_LOCAL];
         i < directory->first[DIRECTORY_RANK_LOCAL + 1]; i++)
        if (directory->names[i].rank == rank)
            return &directory->names[i];
    return NULL;
}

/* Finds what this save replaces, or must not replace. */
static dcp_status judge_existing(struct save_session *session, const struct directory *directory,
                                 dcp_overwrite overwrite)
{
    if (session->of_one_rank && directory_count(directory, DIRECTORY_METADATA) > 0)
        return dcp_error_set(DCP_ERR_EXISTS,
                             "%s holds a checkpoint of all ranks (%s), which a save "
                             "without_collectives cannot replace: save to another directory",
                             session->path, METADATA_NAME);
    const struct directory_name *existing =
        session->of_one_rank ? find_part(directory, session->rank) : find_checkpoint(directory);
    session->replaces = existing != NULL;
    if (existing && overwrite == DCP_OVERWRITE_REFUSE)
        return dcp_error_set(DCP_ERR_EXISTS,
                             "%s holds a checkpoint (%s), and overwriting is refused",
                             session->path, existing->name);
    return DCP_OK;
}

/* Saves of all ranks and of a single rank exclude each other. Those of single ranks do not. */
static dcp_status expel_others(struct save_session *session, const struct directory *directory,
                               double takeover_seconds)
{
    enum directory_kind kind = session->of_one_rank ? DIRECTORY_OWNER : DIRECTORY_RANK_OWNER;
    for (size_t i = directory->first[kind]; i < directory->first[kind + 1]; i++) {
        RETURN_IF_ERROR(
            save_owner_expel(&session->directory, directory->names[i].name, takeover_seconds));
        session->expelled = true;
    }
    return DCP_OK;
}

/* Lists a directory and, if this save owns it, looks for saves of the other kind. */
static dcp_status inspect(struct save_session *session, const struct storage_directory *found,
                          dcp_overwrite overwrite, double takeover_seconds)
{
    struct directory directory;
    RETURN_IF_ERROR(directory_read(found, &directory));
    dcp_status status = judge_existing(session, &directory, overwrite);
    if (status == DCP_OK && session->owner)
        status = expel_others(session, &directory, takeover_seconds);
    if (status == DCP_OK)
        status = directory_next_generation(&directory, session->path, save_session_rank(session),
                                           &session->generation);
    directory_free(&directory);
    return status;
}

/* The same for a directory that may not exist, or may be removed meanwhile. */
static dcp_status look(struct save_session *session, const dcp_storage *storage,
                       dcp_overwrite overwrite)
{
    struct storage_directory found;
    dcp_status status = storage_directory_open(&found, storage, session->path, 0, NULL);
    if (status == DCP_ERR_NOT_FOUND)
        return DCP_OK;
    if (status == DCP_ERR_KIND)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s is not a directory", session->path);
    RETURN_IF_ERROR(status);
    status = inspect(session, &found, overwrite, 0);
    storage_directory_close(&found);
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

/* The save that lost the directory may still run and be about to make files of the next generation.
 * Files are made exclusively, so one of both would fail. */
static dcp_status skip_generations(struct save_session *session)
{
    uint16_t more;
    RETURN_IF_ERROR(random_bytes(&more, sizeof more, "a generation"));
    if (session->generation < UINT32_MAX - UINT16_MAX)
        session->generation += 1 + (uint32_t)more;
    return DCP_OK;
}

/* Records what will be replaced before choosing a generation: so a save that began before another's
 * commit, but finds its files, has recorded a .metadata that no longer exists. */
static dcp_status own_directory(struct save_session *session, dcp_overwrite overwrite,
                                double takeover_seconds)
{
    const struct storage_directory *directory = &session->directory;
    int rank = save_session_rank(session);
    char name[SMALL_NAME_MAX];
    bool taken_over = false;
    RETURN_IF_ERROR(save_owner_take(directory, rank, session->save_id, takeover_seconds,
                                    &session->owner, &taken_over));
    directory_metadata_name(rank, name);
    dcp_status status = storage_directory_identify(directory, name, session->replaced);
    if (status == DCP_ERR_NOT_FOUND) {
        session->replaced[0] = '\0';
        status = DCP_OK;
    }
    if (status == DCP_OK)
        status = inspect(session, directory, overwrite, takeover_seconds);
    return status == DCP_OK && (taken_over || session->expelled) ? skip_generations(session)
                                                                 : status;
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
    dcp_status status = look(session, storage, DCP_OVERWRITE_REPLACE);
    if (status != DCP_OK)
        save_session_free(session);
    return status;
}

/* Another save that has made the directory may remove it when it fails. */
enum { OPENINGS = 10 };

static dcp_status open_and_own(struct save_session *session, const dcp_storage *storage,
                               dcp_overwrite overwrite, double takeover_seconds)
{
    uint32_t flags = DCP_OPEN_CREATE | (session->sync ? DCP_OPEN_DURABLE : 0u);
    dcp_status status = DCP_ERR_NOT_FOUND;
    for (int i = 0; i < OPENINGS && status == DCP_ERR_NOT_FOUND; i++) {
        save_owner_free(session->owner, &session->directory);
        session->owner = NULL;
        storage_directory_close(&session->directory);
        RETURN_IF_ERROR(storage_directory_open(&session->directory, storage, session->path, flags,
                                               &session->made_directory));
        status = own_directory(session, overwrite, takeover_seconds);
    }
    return status;
}

/* After start_session(). */
static dcp_status begin_session(struct save_session *session, const dcp_storage *storage,
                                dcp_overwrite overwrite, double takeover_seconds)
{
    dcp_status status = look(session, storage, overwrite);
    if (status == DCP_OK)
        status = save_id_make(session->save_id);
    if (status == DCP_OK)
        status = open_and_own(session, storage, overwrite, takeover_seconds);
    if (status != DCP_OK) {
        save_session_abandon(session);
        save_session_free(session);
    }
    return status;
}

dcp_status save_session_begin(struct save_session *session, const dcp_storage *storage,
                              const char *path, dcp_overwrite overwrite, bool sync,
                              double takeover_seconds)
{
    RETURN_IF_ERROR(start_session(session, path, sync));
    return begin_session(session, storage, overwrite, takeover_seconds);
}

dcp_status save_session_begin_rank(struct save_session *session, const dcp_storage *storage,
                                   const char *path, int rank, dcp_overwrite overwrite, bool sync,
                                   double takeover_seconds)
{
    RETURN_IF_ERROR(start_session(session, path, sync));
    session->of_one_rank = true;
    session->rank = rank;
    return begin_session(session, storage, overwrite, takeover_seconds);
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

dcp_status save_session_single(struct save_session *session, const dcp_storage *storage,
                               const char *path, bool sync, const char *save_id)
{
    uint32_t flags = DCP_OPEN_CREATE | (sync ? DCP_OPEN_DURABLE : 0u);
    dcp_status status = start_session(session, path, sync);
    if (status == DCP_OK && save_id)
        memcpy(session->save_id, save_id, strlen(save_id) + 1);
    else if (status == DCP_OK)
        status = save_id_make(session->save_id);
    if (status == DCP_OK)
        status = storage_directory_open(&session->directory, storage, path, flags,
                                        &session->made_directory);
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
                         "%s: the save needs %" PRIu64 " bytes, but the disk has only %" PRIu64
                         " bytes free",
                         session->path, bytes, room);
}

void save_session_abandon(const struct save_session *session)
{
    save_owner_release(session->owner, &session->directory);
    if (session->made_directory)
        storage_directory_withdraw(&session->directory);
}

void save_session_free(struct save_session *session)
{
    save_owner_free(session->owner, &session->directory);
    session->owner = NULL;
    storage_directory_close(&session->directory);
    memory_release(session->path);
    session->path = NULL;
}
