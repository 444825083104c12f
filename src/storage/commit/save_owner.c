/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/commit/save_owner.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "storage/commit/save_mark.h"
#include "storage/open/directory.h"

/* Saves that find a stale mark at the same time block each other until one of them is alone for a
 * moment. */
enum { ATTEMPTS = 200, LONGEST_PAUSE_MS = 50 };

/* ---- an existing mark ---- */

/* *readable: it is a complete mark. */
static dcp_status read_mark(const struct storage_directory *directory, const char *name,
                            struct save_mark *mark, bool *readable)
{
    struct buffer bytes;
    buffer_init(&bytes, 0);
    dcp_status status = storage_read_whole(directory, name, SAVE_MARK_SIZE, &bytes);
    *readable = status == DCP_OK && save_mark_parse(bytes.data, bytes.size, mark);
    buffer_free(&bytes);
    return status == DCP_ERR_FORMAT ? DCP_OK : status;
}

static bool is_stale(const struct save_mark *mark, double takeover_seconds)
{
    double age = save_mark_age(mark);
    switch (save_process_look(&mark->process)) {
    case SAVE_PROCESS_THIS:
        return !save_live_has(mark->save_id);
    case SAVE_PROCESS_RUNS:
        return false;
    case SAVE_PROCESS_GONE:
        return true;
    case SAVE_PROCESS_ELSEWHERE:
        break;
    }
    return age > takeover_seconds || -age > takeover_seconds;
}

/* "save ID of process PID on HOST, since TIME". */
static void describe(const struct save_mark *mark, char text[256])
{
    char since[SAVE_MARK_TIME];
    save_mark_time(mark, since);
    snprintf(text, 256, "save %s of process %" PRIu64 " on %s, since %s", mark->save_id,
             mark->process.pid, *mark->process.host ? mark->process.host : "an unknown host",
             since);
}

static dcp_status refuse(const struct storage_directory *directory, const char *name,
                         const struct save_mark *mark, double takeover_seconds)
{
    char other[256];
    describe(mark, other);
    if (save_process_look(&mark->process) != SAVE_PROCESS_ELSEWHERE)
        return dcp_error_set(
            DCP_ERR_BUSY,
            "%s is in use by another save (%s/%s): %s; wait for it, or end that process",
            directory->id, directory->id, name, other);
    return dcp_error_set(DCP_ERR_BUSY,
                         "%s is in use by another save (%s/%s): %s; wait for it, or end that "
                         "process; if it no longer runs, the directory can be taken over when the "
                         "mark is %g seconds old (takeover_seconds)",
                         directory->id, directory->id, name, other, takeover_seconds);
}

/* ---- making a mark ---- */

/* Returns the status of prepare() and publish(), or DCP_OK if they failed but the mark exists. */
static dcp_status publish(const struct storage_directory *directory, const char *name,
                          const struct save_mark *mark, const char *identity)
{
    char text[SAVE_MARK_SIZE];
    struct storage_publication publication;
    struct save_mark found;
    struct saved_error error;
    bool visible, readable;
    size_t length = save_mark_print(mark, text);
    RETURN_IF_ERROR(
        storage_publication_prepare(&publication, directory, name, text, length, false));
    dcp_status status =
        identity ? storage_publication_publish_over(&publication, identity, &visible)
                 : storage_publication_publish(&publication, DCP_PUBLISH_IF_ABSENT, &visible);
    if (status == DCP_OK)
        return DCP_OK;
    error_save(&error);
    bool ours = read_mark(directory, name, &found, &readable) == DCP_OK && readable &&
                strcmp(found.save_id, mark->save_id) == 0;
    error_restore(&error);
    return ours ? DCP_OK : status;
}

/* Takes over an existing mark if it is stale. DCP_ERR_NOT_FOUND: it is gone; DCP_ERR_BUSY with
 * *again: there is a newer one, or others are taking it over, too. */
static dcp_status take_over(const struct storage_directory *directory, const char *name,
                            const struct save_mark *mark, double takeover_seconds, bool *again)
{
    char identity[DCP_STORAGE_IDENTITY], other[256];
    struct save_mark found;
    bool readable;
    *again = true;
    RETURN_IF_ERROR(storage_directory_identify(directory, name, identity));
    RETURN_IF_ERROR(read_mark(directory, name, &found, &readable));
    if (readable && !is_stale(&found, takeover_seconds)) {
        *again = false;
        return refuse(directory, name, &found, takeover_seconds);
    }
    RETURN_IF_ERROR(publish(directory, name, mark, identity));
    if (readable)
        describe(&found, other);
    log_line(DCP_LOG_WARNING, "%s was taken over from %s", directory->id,
             readable ? other : "a save whose mark cannot be read");
    return DCP_OK;
}

/* Pauses for a random time, so that competing saves get out of step. */
static void pause_at_random(int attempt)
{
    int most = attempt < LONGEST_PAUSE_MS ? attempt + 1 : LONGEST_PAUSE_MS;
    uint32_t number;
    if (random_bytes(&number, sizeof number, "a pause") == DCP_OK)
        clock_sleep_ns((int64_t)(number % (uint32_t)(most * 1000)) * 1000);
}

static dcp_status put_mark(const struct storage_directory *directory, const char *name,
                           const char *save_id, double takeover_seconds, bool *taken_over)
{
    struct save_mark mark;
    save_mark_init(&mark, save_id);
    *taken_over = false;
    dcp_status status = DCP_OK;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        bool again;
        status = publish(directory, name, &mark, NULL);
        if (status == DCP_ERR_EXISTS) {
            status = take_over(directory, name, &mark, takeover_seconds, &again);
            *taken_over = status == DCP_OK;
            if (status != DCP_ERR_NOT_FOUND && (status != DCP_ERR_BUSY || !again))
                return status;
        } else if (status != DCP_ERR_BUSY) {
            return status;
        }
        pause_at_random(attempt);
    }
    return status == DCP_ERR_NOT_FOUND
               ? dcp_error_set(DCP_ERR_BUSY, "%s: other saves keep beginning in this directory",
                               directory->id)
               : status;
}

dcp_status save_owner_take(const struct storage_directory *directory, int rank, const char *save_id,
                           double takeover_seconds, struct save_owner **made, bool *taken_over)
{
    /* Charged to no account, like the open directory: other ranks have none. */
    struct save_owner *owner = memory_allocate_unpaid(sizeof *owner);
    *made = NULL;
    if (!owner)
        return error_no_memory(sizeof *owner, "the owner of a directory");
    *owner = (struct save_owner){.marked = true};
    snprintf(owner->live.save_id, sizeof owner->live.save_id, "%s", save_id);
    directory_owner_name(rank, owner->name);
    save_live_add(&owner->live);
    dcp_status status = put_mark(directory, owner->name, save_id, takeover_seconds, taken_over);
    if (status == DCP_OK) {
        *made = owner;
        return DCP_OK;
    }
    save_live_remove(&owner->live);
    memory_release(owner);
    return status;
}

/* ---- saves of the other kind ---- */

dcp_status save_owner_expel(const struct storage_directory *directory, const char *name,
                            double takeover_seconds)
{
    struct save_mark found;
    char other[256];
    bool readable;
    dcp_status status = read_mark(directory, name, &found, &readable);
    if (status == DCP_ERR_NOT_FOUND)
        return DCP_OK;
    RETURN_IF_ERROR(status);
    if (readable && !is_stale(&found, takeover_seconds))
        return refuse(directory, name, &found, takeover_seconds);
    RETURN_IF_ERROR(storage_directory_remove(directory, name));
    if (readable)
        describe(&found, other);
    log_line(DCP_LOG_WARNING, "%s was taken over from %s (%s)", directory->id,
             readable ? other : "a save whose mark cannot be read", name);
    return DCP_OK;
}

static dcp_status expel_ranks(const struct storage_directory *directory, double takeover_seconds)
{
    struct directory listed;
    dcp_status status = directory_read(directory, &listed);
    const size_t *first = &listed.first[DIRECTORY_RANK_OWNER];
    for (size_t i = status == DCP_OK ? first[0] : 0; status == DCP_OK && i < first[1]; i++)
        status = save_owner_expel(directory, listed.names[i].name, takeover_seconds);
    directory_free(&listed);
    return status;
}

dcp_status save_owner_take_all(const struct storage_directory *directory, const char *save_id,
                               double takeover_seconds, struct save_owner **made)
{
    bool taken_over;
    RETURN_IF_ERROR(
        save_owner_take(directory, ALL_RANKS, save_id, takeover_seconds, made, &taken_over));
    dcp_status status = expel_ranks(directory, takeover_seconds);
    if (status == DCP_OK)
        return DCP_OK;
    save_owner_free(*made, directory);
    *made = NULL;
    return status;
}

/* ---- checking and removing the mark ---- */

const char *save_owner_name(const struct save_owner *owner)
{
    return owner->name;
}

dcp_status save_owner_check(const struct save_owner *owner,
                            const struct storage_directory *directory)
{
    struct save_mark found;
    char other[256];
    bool readable;
    dcp_status status = read_mark(directory, owner->name, &found, &readable);
    if (status == DCP_ERR_NOT_FOUND)
        return dcp_error_set(DCP_ERR_BUSY,
                             "%s: another process has removed the mark of this save (%s) and may "
                             "have changed the directory: nothing is committed",
                             directory->id, owner->name);
    RETURN_IF_ERROR(status);
    if (readable && strcmp(found.save_id, owner->live.save_id) == 0)
        return DCP_OK;
    if (readable)
        describe(&found, other);
    return dcp_error_set(
        DCP_ERR_BUSY, "%s was taken over from this save by another one: %s; nothing is committed",
        directory->id, readable ? other : "one whose mark cannot be read");
}

/* Checks first that the mark is ours. If another save takes it over at that very moment, which
 * means that this save passed for dead, the other save loses its mark, but nothing else. */
static dcp_status remove_mark(const struct save_owner *owner,
                              const struct storage_directory *directory)
{
    struct save_mark found;
    bool readable;
    dcp_status status = read_mark(directory, owner->name, &found, &readable);
    if (status == DCP_ERR_NOT_FOUND)
        return DCP_OK;
    RETURN_IF_ERROR(status);
    if (!readable || strcmp(found.save_id, owner->live.save_id) != 0)
        return DCP_OK;
    return storage_directory_remove(directory, owner->name);
}

void save_owner_release(struct save_owner *owner, const struct storage_directory *directory)
{
    struct saved_error error;
    if (!owner || !owner->marked)
        return;
    error_save(&error);
    owner->marked = false;
    /* Tries twice, as a failure may be temporary and would leave the mark. */
    dcp_status status = remove_mark(owner, directory);
    if (status != DCP_OK)
        status = remove_mark(owner, directory);
    if (status != DCP_OK)
        log_line(DCP_LOG_WARNING, "%s: cannot remove %s: %s", directory->id, owner->name,
                 dcp_error_message());
    save_live_remove(&owner->live);
    error_restore(&error);
}

void save_owner_free(struct save_owner *owner, const struct storage_directory *directory)
{
    if (!owner)
        return;
    save_owner_release(owner, directory);
    memory_release(owner);
}
