/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "storage/directory.h"
#include "storage/shard_writer.h"

static dcp_status make_paths(struct save_commit *commit, const char *path)
{
    commit->metadata = file_path_join(path, METADATA_NAME);
    commit->metadata_temporary = file_path_join(path, METADATA_TEMPORARY_NAME);
    commit->json = file_path_join(path, JSON_NAME);
    commit->json_temporary = file_path_join(path, JSON_TEMPORARY_NAME);
    if (!commit->metadata || !commit->metadata_temporary || !commit->json ||
        !commit->json_temporary)
        return error_no_memory(strlen(path) + sizeof JSON_TEMPORARY_NAME, "paths of a commit");
    return DCP_OK;
}

/* Under a name that an interrupted save may have left behind. */
static dcp_status write_temporary(const struct save_session *session, const char *path,
                                  const void *bytes, size_t size)
{
    RETURN_IF_ERROR(file_unlink(session->ops, path, true));
    return file_write_whole(session->ops, path, bytes, size, session->sync);
}

/* Whether it is certain that nothing is there. */
static bool is_gone(const struct file_ops *ops, const char *path)
{
    struct file_information information;
    return file_look(ops, path, &information) == DCP_ERR_NOT_FOUND;
}

/* After a failure. In a directory that was no checkpoint before, none is left to be seen, and if
 * .metadata comes back with a power cut all the same, its shards are there. An older checkpoint
 * that was replaced cannot be called back. */
static void take_back(const struct save_commit *commit, bool json_placed, bool visible)
{
    const struct save_session *session = commit->session;
    struct error_story story;
    error_save(&story);
    file_unlink(session->ops, commit->metadata_temporary, true);
    file_unlink(session->ops, commit->json_temporary, true);
    if (visible && !session->replaces)
        file_unlink(session->ops, commit->metadata, true);
    if (json_placed)
        file_unlink(session->ops, commit->json, true);
    error_restore(&story);
}

static void free_commit(struct save_commit *commit)
{
    memory_release(commit->metadata);
    memory_release(commit->metadata_temporary);
    memory_release(commit->json);
    memory_release(commit->json_temporary);
    *commit = (struct save_commit){0};
}

dcp_status save_commit_prepare(struct save_commit *commit, const struct save_session *session,
                               const void *metadata, size_t metadata_size, const char *json)
{
    *commit = (struct save_commit){.session = session, .has_json = json != NULL};
    dcp_status status = make_paths(commit, session->path);
    if (status == DCP_OK) {
        if (json)
            status = write_temporary(session, commit->json_temporary, json, strlen(json));
        if (status == DCP_OK)
            status = write_temporary(session, commit->metadata_temporary, metadata, metadata_size);
        if (status != DCP_OK)
            take_back(commit, false, false);
    }
    if (status != DCP_OK)
        free_commit(commit);
    return status;
}

bool save_commit_is_prepared(const struct save_commit *commit)
{
    return commit->session != NULL;
}

void save_commit_drop(struct save_commit *commit)
{
    if (commit->session)
        take_back(commit, false, false);
    free_commit(commit);
}

/* The checkpoint is committed: what fails from here on is not worth failing the save. */
static void place_json(const struct save_commit *commit)
{
    const struct save_session *session = commit->session;
    dcp_status status = file_rename(session->ops, commit->json_temporary, commit->json);
    if (status == DCP_OK && session->sync)
        status = file_sync_directory(session->ops, session->path);
    if (status != DCP_OK) {
        log_line(DCP_LOG_WARNING, "%s: %s", session->path, dcp_error_message());
        file_unlink(session->ops, commit->json_temporary, true);
    }
}

static dcp_status place_metadata(const struct save_commit *commit, bool *visible)
{
    const struct save_session *session = commit->session;
    dcp_status status = file_rename(session->ops, commit->metadata_temporary, commit->metadata);
    /* Over a network a rename can be reported as failed and have happened all the same. */
    *visible = status == DCP_OK || is_gone(session->ops, commit->metadata_temporary);
    if (status != DCP_OK || !session->sync)
        return status;
    status = file_sync_directory(session->ops, session->path);
    if (status != DCP_OK && session->replaces)
        error_prefix(status, "the new checkpoint is in place, but a power cut may bring back the "
                             "one before");
    return status;
}

dcp_status save_commit_publish(struct save_commit *commit, bool *visible)
{
    const struct save_session *session = commit->session;
    /* Ahead of .metadata where no older checkpoint could be left with it. */
    bool ahead = commit->has_json && !session->replaces;
    dcp_status status = DCP_OK;

    *visible = false;
    if (ahead)
        status = file_rename(session->ops, commit->json_temporary, commit->json);
    bool json_placed = ahead && status == DCP_OK;
    if (status == DCP_OK)
        status = place_metadata(commit, visible);
    if (status != DCP_OK)
        take_back(commit, json_placed, *visible);
    else if (commit->has_json && !ahead)
        place_json(commit);
    free_commit(commit);
    return status;
}
