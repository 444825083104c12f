/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/content_identity.h"
#include "base/error.h"
#include "base/log.h"
#include "storage/commit/save_owner.h"
#include "storage/open/directory.h"
#include "storage/shard/shard_writer.h"

dcp_status save_commit_prepare(struct save_commit *commit, const struct save_session *session,
                               const void *metadata, size_t metadata_size, const char *json)
{
    const struct storage_directory *directory = &session->directory;
    char name[SMALL_NAME_MAX];
    dcp_status status = DCP_OK;
    directory_metadata_name(save_session_rank(session), name);
    *commit = (struct save_commit){.session = session};
    content_identify_bytes(metadata, metadata_size, commit->metadata_digest);
    if (json) {
        content_identify_bytes(json, strlen(json), commit->json_digest);
        status = storage_publication_prepare(&commit->json, directory, JSON_NAME, json,
                                             strlen(json), session->sync);
    }
    if (status == DCP_OK)
        status = storage_publication_prepare(&commit->metadata, directory, name, metadata,
                                             metadata_size, session->sync);
    if (status != DCP_OK)
        save_commit_drop(commit);
    return status;
}

bool save_commit_is_prepared(const struct save_commit *commit)
{
    return commit->session != NULL;
}

void save_commit_drop(struct save_commit *commit)
{
    storage_publication_retract(&commit->metadata);
    storage_publication_retract(&commit->json);
    *commit = (struct save_commit){0};
}

/* The checkpoint is committed: later failures do not fail the save. */
static void publish_json(struct save_commit *commit)
{
    const struct save_session *session = commit->session;
    bool visible;
    dcp_status status = storage_publication_publish(&commit->json, DCP_PUBLISH_ALWAYS, &visible);
    if (status == DCP_OK && session->sync)
        status = storage_directory_sync(&session->directory);
    if (status != DCP_OK)
        log_line(DCP_LOG_WARNING, "%s: %s", session->path, dcp_error_message());
}

/* A remote storage may refuse a repeated request that has succeeded before, if the first answer was
 * lost. */
static bool is_there(const struct save_session *session, const char *name, const char *digest)
{
    char found[DCP_STORAGE_IDENTITY];
    return storage_directory_digest(&session->directory, name, found) == DCP_OK &&
           strcmp(found, digest) == 0;
}

static bool is_metadata_there(const struct save_commit *commit)
{
    char name[SMALL_NAME_MAX];
    directory_metadata_name(save_session_rank(commit->session), name);
    return is_there(commit->session, name, commit->metadata_digest);
}

/* .metadata has changed since the save began, or another save is changing it. The message names
 * that save. */
static dcp_status explain_busy(const struct save_commit *commit, bool *visible)
{
    const struct save_session *session = commit->session;
    struct saved_error error;
    error_save(&error);
    *visible = is_metadata_there(commit);
    if (*visible)
        return DCP_OK;
    RETURN_IF_ERROR(save_owner_check(session->owner, &session->directory));
    return dcp_error_set(DCP_ERR_BUSY,
                         "%s: the checkpoint there was changed during this save, although the "
                         "directory was marked as this save's (%s): nothing is committed (%.300s)",
                         session->path, save_owner_name(session->owner), error.text);
}

/* Replaces the .metadata that was there when the save began, and no other. */
static dcp_status place_metadata(struct save_commit *commit, bool *visible)
{
    const struct save_session *session = commit->session;
    dcp_status status =
        *session->replaced
            ? storage_publication_publish_over(&commit->metadata, session->replaced, visible)
            : storage_publication_publish(&commit->metadata, DCP_PUBLISH_IF_ABSENT, visible);
    return (status == DCP_ERR_BUSY || status == DCP_ERR_EXISTS) && !*visible
               ? explain_busy(commit, visible)
               : status;
}

static dcp_status publish_metadata(struct save_commit *commit, bool *visible)
{
    const struct save_session *session = commit->session;
    RETURN_IF_ERROR(place_metadata(commit, visible));
    return session->sync ? storage_directory_sync(&session->directory) : DCP_OK;
}

/* After a failure. If the directory had no checkpoint before, .metadata is removed; should a power
 * failure bring it back, its shards are still there. A replaced checkpoint cannot be restored, and
 * what another save has put there meanwhile stays. */
static void take_back(const struct save_commit *commit, bool json_placed, bool visible)
{
    const struct save_session *session = commit->session;
    struct saved_error error;
    char name[SMALL_NAME_MAX];
    error_save(&error);
    if (visible && !session->replaces && is_metadata_there(commit)) {
        directory_metadata_name(save_session_rank(session), name);
        storage_directory_remove(&session->directory, name);
    }
    if (json_placed && is_there(session, JSON_NAME, commit->json_digest))
        storage_directory_remove(&session->directory, JSON_NAME);
    error_restore(&error);
}

/* A failure after which the checkpoint is there all the same. */
static dcp_status explain_visible(const struct save_commit *commit, dcp_status status)
{
    struct saved_error error;
    error_save(&error);
    if (!is_metadata_there(commit))
        return error_restore(&error);
    return dcp_error_set(DCP_ERR_UNCONFIRMED,
                         "%s: the checkpoint is committed, but a power failure may %s: %s: %.300s",
                         commit->session->path,
                         commit->session->replaces ? "bring back the previous one" : "undo that",
                         dcp_status_string(status), error.text);
}

dcp_status save_commit_publish(struct save_commit *commit, bool *visible)
{
    const struct save_session *session = commit->session;
    /* Published before .metadata only if there is no older checkpoint that it could be mistaken
     * for. */
    bool has_json = commit->json.directory != NULL, ahead = has_json && !session->replaces;
    bool json_placed = false;

    *visible = false;
    dcp_status status = save_owner_check(session->owner, &session->directory);
    if (status == DCP_OK && ahead)
        status = storage_publication_publish(&commit->json, DCP_PUBLISH_ALWAYS, &json_placed);
    if (status == DCP_OK)
        status = publish_metadata(commit, visible);
    if (status != DCP_OK)
        take_back(commit, json_placed, *visible);
    else if (has_json && !ahead)
        publish_json(commit);
    if (status != DCP_OK && *visible)
        status = explain_visible(commit, status);
    save_commit_drop(commit);
    return status;
}
