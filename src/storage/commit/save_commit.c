/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "storage/open/directory.h"
#include "storage/shard/shard_writer.h"

dcp_status save_commit_prepare(struct save_commit *commit, const struct save_session *session,
                               const void *metadata, size_t metadata_size, const char *json)
{
    const struct storage_directory *directory = &session->directory;
    dcp_status status = DCP_OK;
    *commit = (struct save_commit){.session = session};
    if (json)
        status = storage_publication_prepare(&commit->json, directory, JSON_NAME, json,
                                             strlen(json), session->sync);
    if (status == DCP_OK)
        status = storage_publication_prepare(&commit->metadata, directory, METADATA_NAME, metadata,
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

/* The checkpoint is committed: what fails from here on is not worth failing the save. */
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

static dcp_status publish_metadata(struct save_commit *commit, bool *visible)
{
    const struct save_session *session = commit->session;
    RETURN_IF_ERROR(storage_publication_publish(&commit->metadata, DCP_PUBLISH_ALWAYS, visible));
    if (!session->sync)
        return DCP_OK;
    dcp_status status = storage_directory_sync(&session->directory);
    if (status != DCP_OK && session->replaces)
        error_prefix(status, "the new checkpoint is in place, but a power cut may bring back the "
                             "one before");
    return status;
}

/* After a failure. In a directory that was no checkpoint before, none is left to be seen, and if
 * .metadata comes back with a power cut all the same, its shards are there. An older checkpoint
 * that was replaced cannot be called back. */
static void take_back(const struct save_session *session, bool json_placed, bool visible)
{
    struct error_story story;
    error_save(&story);
    if (visible && !session->replaces)
        storage_directory_remove(&session->directory, METADATA_NAME);
    if (json_placed)
        storage_directory_remove(&session->directory, JSON_NAME);
    error_restore(&story);
}

dcp_status save_commit_publish(struct save_commit *commit, bool *visible)
{
    const struct save_session *session = commit->session;
    /* Ahead of .metadata where no older checkpoint could be left with it. */
    bool has_json = commit->json.directory != NULL, ahead = has_json && !session->replaces;
    bool json_placed = false;
    dcp_status status = DCP_OK;

    *visible = false;
    if (ahead)
        status = storage_publication_publish(&commit->json, DCP_PUBLISH_ALWAYS, &json_placed);
    if (status == DCP_OK)
        status = publish_metadata(commit, visible);
    if (status != DCP_OK)
        take_back(session, json_placed, *visible);
    else if (has_json && !ahead)
        publish_json(commit);
    save_commit_drop(commit);
    return status;
}
