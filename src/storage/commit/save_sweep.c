/* SPDX-License-Identifier: BSD-3-Clause */
/* Removes left-over files: old ones after a commit, our own after a failure. */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "format/footer/footer.h"
#include "storage/commit/save_owner.h"
#include "storage/file_source.h"
#include "storage/open/directory.h"
#include "storage/shard/shard_writer.h"

static dcp_status index_files(const struct metadata *metadata, struct name_table *named)
{
    for (size_t i = 0; i < metadata->file_count; i++) {
        uint64_t value = i;
        bool existing;
        RETURN_IF_ERROR(name_table_add(named, metadata->files[i], strlen(metadata->files[i]),
                                       &value, &existing));
    }
    return DCP_OK;
}

/* Saves of lower generations began before this save made its files, so they can no longer commit.
 * Saves of higher ones came later, and may still run. Shards of this save stay even if the metadata
 * does not name them: they are empty. */
static bool is_old(const struct save_session *session, const struct directory_name *name,
                   const struct name_table *named)
{
    uint64_t value;
    if (session->of_one_rank && name->rank != session->rank)
        return false;
    if (name->kind == DIRECTORY_RANK_LOCAL)
        return session->replaces && !session->of_one_rank;
    if (name->kind == DIRECTORY_RANK_OWNER)
        return !session->of_one_rank;
    if (name->kind == DIRECTORY_TEMPORARY)
        return true;
    if (session->of_one_rank && session->expelled)
        return false; /* a save of all ranks may be between its last check and its commit */
    if (name->kind == DIRECTORY_EXTRA)
        return name->generation < session->generation;
    return name->kind == DIRECTORY_SHARD && name->generation < session->generation &&
           !name_table_find(named, name->name, strlen(name->name), &value);
}

static void log_failure(const struct save_session *session)
{
    log_line(DCP_LOG_WARNING, "%s: cannot remove old files: %s", session->path,
             dcp_error_message());
}

static void remove_old(const struct save_session *session, const struct directory *directory,
                       const struct name_table *named)
{
    for (size_t i = 0; i < directory->count; i++) {
        const struct directory_name *name = &directory->names[i];
        if (is_old(session, name, named) &&
            storage_directory_remove(&session->directory, name->name) != DCP_OK)
            log_failure(session);
    }
}

/* If this save was taken over after its commit, the other save sweeps. After any failure, also for
 * want of memory, the checkpoint is whole and the next sweep removes what stays. */
static void sweep(const struct save_session *session, const struct metadata *metadata)
{
    struct directory directory;
    struct name_table named;
    if (session->owner && save_owner_check(session->owner, &session->directory) != DCP_OK) {
        log_failure(session);
        return;
    }
    if (directory_read(&session->directory, &directory) != DCP_OK) {
        log_failure(session);
        return;
    }
    name_table_init(&named);
    if (index_files(metadata, &named) == DCP_OK)
        remove_old(session, &directory, &named);
    else
        log_failure(session);
    name_table_free(&named);
    directory_free(&directory);
}

void save_session_sweep(const struct save_session *session, const struct metadata *metadata)
{
    sweep(session, metadata);
    save_owner_release(session->owner, &session->directory);
}

/* Whether a file is complete and of this save. False if it cannot be read. */
static bool is_ours(const struct save_session *session, const char *name)
{
    struct file_source source;
    if (file_source_open(&source, &session->directory, name) != DCP_OK)
        return false;
    struct footer footer;
    bool found = false, ours = false;
    if (footer_decode(source.source, &footer, &found) == DCP_OK && found) {
        ours = strcmp(footer.save_id, session->save_id) == 0;
        footer_free(&footer);
    }
    file_source_close(&source);
    return ours;
}

void shard_files_discard(const struct save_session *session, int rank, uint32_t file_count)
{
    struct saved_error error;
    if (!save_session_is_open(session))
        return;
    error_save(&error);
    for (uint32_t file = 0; file < file_count; file++) {
        char name[SHARD_NAME_MAX];
        shard_name(name, rank, file, session->generation);
        if (is_ours(session, name))
            storage_directory_remove(&session->directory, name);
    }
    error_restore(&error);
}
