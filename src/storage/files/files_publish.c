/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files that appear at once and whole: written under a temporary name, then renamed.
 *
 * Temporary names are random, NAME.DIGITS.tmp, so that no save renames or removes the files of
 * another one.
 *
 * POSIX has no rename that compares the target first. files_publish_over() builds one from the fact
 * that a rename fails if its source is gone. A save that replaces a file (1) announces itself by
 * renaming its prepared file to NAME.DIGITS.commit.tmp; (2) removes the files of that kind of all
 * other saves, which can then no longer rename them; (3) compares the target with the expected
 * identity; (4) renames. If two saves do so for the same target, the one that is later in (1) sees
 * the other's file in (2), or its result in (3): so at most one succeeds. Both may fail; then the
 * target stays. The rename in (1) also makes clients of network file systems read the directory
 * again. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/content_identity.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "storage/files/files.h"
#include "storage/files/sync_beside.h"

#define TEMPORARY_SUFFIX  ".tmp"
#define COMMITTING_SUFFIX ".commit.tmp"

/* A dot, 16 digits, the longer suffix and a NUL. */
enum { SUFFIX_SIZE = 17 + sizeof COMMITTING_SUFFIX };

struct files_publication {
    const struct file_directory *directory;
    char *name;                           /* where it is to appear */
    char *temporary;                      /* where it is */
    char *committing;                     /* where it is while the target is replaced */
    char identity[CONTENT_IDENTITY_SIZE]; /* of what is published */
    struct file file;                     /* open until it is settled */
    bool durable;
    struct sync_beside syncing; /* the file, if it is to be durable */
    atomic_uint *changes;       /* of the directory */
};

/* Whatever has become of its name. Keeps the thread's error. */
static void publication_free(struct files_publication *publication)
{
    struct saved_error error;
    error_save(&error);
    atomic_fetch_add(publication->changes, 1);
    sync_beside_drop(&publication->syncing);
    file_close(&publication->file);
    error_restore(&error);
    memory_release(publication->name);
    memory_release(publication->temporary);
    memory_release(publication->committing);
    memory_release(publication);
}

static char *with_suffix(const char *target, uint64_t number, const char *suffix)
{
    size_t size = strlen(target) + SUFFIX_SIZE;
    char *name = memory_allocate(size);
    if (name)
        snprintf(name, size, "%s.%016" PRIx64 "%s", target, number, suffix);
    return name;
}

static dcp_status publication_new(struct files_directory *directory, const char *name,
                                  struct files_publication **made)
{
    uint64_t number;
    RETURN_IF_ERROR(random_bytes(&number, sizeof number, "a temporary name"));
    struct files_publication *publication = memory_allocate_zeroed(1, sizeof *publication);
    char *copy = memory_copy_text(name);
    char *temporary = copy ? with_suffix(name, number, TEMPORARY_SUFFIX) : NULL;
    char *committing = copy ? with_suffix(name, number, COMMITTING_SUFFIX) : NULL;
    if (!publication || !temporary || !committing) {
        memory_release(publication);
        memory_release(copy);
        memory_release(temporary);
        memory_release(committing);
        return error_no_memory(strlen(name) + SUFFIX_SIZE, "a name");
    }
    *publication = (struct files_publication){.directory = &directory->at,
                                              .changes = &directory->changes,
                                              .name = copy,
                                              .temporary = temporary,
                                              .committing = committing,
                                              .file = {.descriptor = -1}};
    *made = publication;
    return DCP_OK;
}

/* Not waited for here: beside shards that are being written, that would take as long as much of
 * those. */
static void start_writing_back(struct files_publication *publication, size_t size)
{
    const struct file *file = &publication->file;
    if (file->ops->write_back)
        file->ops->write_back(file->ops->context, file->descriptor, 0, size);
    sync_beside_start(&publication->syncing, file->ops, file->descriptor, false);
}

/* Nothing is left of it; keeps the thread's error. */
static void give_up(struct files_publication *publication)
{
    struct saved_error error;
    error_save(&error);
    file_unlink(publication->directory, publication->temporary, true);
    error_restore(&error);
    publication_free(publication);
}

dcp_status files_prepare(void *context, void *opened, const char *name, const void *bytes,
                         size_t size, const dcp_storage_access *access, void **prepared)
{
    struct files_publication *publication;
    (void)context;
    RETURN_IF_ERROR(publication_new(opened, name, &publication));
    content_identify_bytes(bytes, size, publication->identity);
    publication->durable = access->durable;
    dcp_status status = file_write_new(&publication->file, publication->directory,
                                       publication->temporary, bytes, size);
    if (status != DCP_OK) {
        publication_free(publication);
        return status;
    }
    if (publication->durable)
        start_writing_back(publication, size);
    *prepared = publication;
    return DCP_OK;
}

/* The bytes are on the disk before their name is. */
static dcp_status settle(struct files_publication *publication)
{
    int result = publication->durable ? sync_beside_end(&publication->syncing) : 0;
    return result == 0 ? file_close(&publication->file)
                       : file_error(result, "sync", publication->file.path);
}

/* ---- the existing file ---- */

static dcp_status read_part(void *context, void *bytes, size_t size, uint64_t offset)
{
    return file_read(context, bytes, size, offset);
}

static dcp_status identify_file(const struct file_directory *directory, const char *name,
                                char identity[CONTENT_IDENTITY_SIZE])
{
    struct file file;
    uint64_t size = 0;
    RETURN_IF_ERROR(file_open(&file, directory, name, FILE_READ));
    dcp_status status = file_size(&file, &size);
    if (status == DCP_OK)
        status = content_identify(read_part, &file, size, identity);
    file_close(&file);
    return status;
}

dcp_status files_identify(void *context, void *opened, const char *name,
                          char identity[DCP_STORAGE_IDENTITY])
{
    const struct files_directory *directory = opened;
    (void)context;
    return identify_file(&directory->at, name, identity);
}

/* Whether it is certain that no such file exists. */
static bool is_gone(const struct file_directory *directory, const char *name)
{
    struct file_information information;
    return file_look(directory, name, &information) == DCP_ERR_NOT_FOUND;
}

/* Whether it is certain that what is published is not there. */
static bool is_other(const struct files_publication *publication)
{
    char identity[CONTENT_IDENTITY_SIZE];
    dcp_status status = identify_file(publication->directory, publication->name, identity);
    return status == DCP_ERR_NOT_FOUND ||
           (status == DCP_OK && strcmp(identity, publication->identity) != 0);
}

static dcp_status busy(const struct files_publication *publication)
{
    return dcp_error_set(DCP_ERR_BUSY, "%s/%s is being replaced by another save",
                         publication->directory->path, publication->name);
}

/* After a rename from there that was reported as failed. Over a network it may have happened
 * nevertheless, or another process has removed the file. */
static dcp_status judge(const struct files_publication *publication, const char *from,
                        dcp_status status, bool *visible)
{
    struct saved_error error;
    error_save(&error);
    bool gone = is_gone(publication->directory, from), other = gone && is_other(publication);
    *visible = gone && !other;
    if (!gone)
        file_unlink(publication->directory, from, true);
    error_restore(&error);
    return other ? busy(publication) : status;
}

/* ---- appearing ---- */

dcp_status files_publish(void *context, void *prepared, dcp_storage_condition condition,
                         bool *visible)
{
    struct files_publication *publication = prepared;
    (void)context;
    *visible = false;
    dcp_status status = settle(publication);
    if (status != DCP_OK) {
        give_up(publication);
        return status;
    }
    status =
        condition == DCP_PUBLISH_IF_ABSENT
            ? file_rename_new(publication->directory, publication->temporary, publication->name)
            : file_rename(publication->directory, publication->temporary, publication->name);
    *visible = status == DCP_OK;
    if (status != DCP_OK)
        status = judge(publication, publication->temporary, status, visible);
    publication_free(publication);
    return status;
}

/* The first of the others who are committing. */
struct rivals {
    const char *name; /* of the target */
    const char *own;  /* of what is published */
    char *rival;      /* NULL: none, or no memory */
    bool found;
};

static int see_name(void *context, const char *name)
{
    struct rivals *rivals = context;
    size_t length = strlen(name), target = strlen(rivals->name);
    size_t suffix = sizeof COMMITTING_SUFFIX - 1;
    if (length != target + 17 + suffix || strncmp(name, rivals->name, target) != 0 ||
        name[target] != '.' || strcmp(name + length - suffix, COMMITTING_SUFFIX) != 0 ||
        strcmp(name, rivals->own) == 0)
        return 0;
    rivals->found = true;
    rivals->rival = memory_copy_text(name);
    return ECANCELED;
}

/* From here on no earlier commit can succeed. */
static dcp_status remove_rivals(const struct files_publication *publication)
{
    for (;;) {
        struct rivals rivals = {.name = publication->name, .own = publication->committing};
        dcp_status status = file_list(publication->directory, see_name, &rivals);
        if (!rivals.found)
            return status;
        if (!rivals.rival)
            return error_no_memory(strlen(publication->committing) + 1, "a name");
        status = file_unlink(publication->directory, rivals.rival, true);
        memory_release(rivals.rival);
        RETURN_IF_ERROR(status);
    }
}

static dcp_status check_target(const struct files_publication *publication, const char *identity)
{
    char found[CONTENT_IDENTITY_SIZE];
    dcp_status status = identify_file(publication->directory, publication->name, found);
    if (status == DCP_ERR_NOT_FOUND || (status == DCP_OK && strcmp(found, identity) != 0))
        return dcp_error_set(DCP_ERR_BUSY, "%s/%s has changed meanwhile: it was %s",
                             publication->directory->path, publication->name,
                             status == DCP_OK ? "replaced" : "removed");
    return status;
}

static void remove_own(const struct files_publication *publication)
{
    struct saved_error error;
    error_save(&error);
    file_unlink(publication->directory, publication->temporary, true);
    file_unlink(publication->directory, publication->committing, true);
    error_restore(&error);
}

/* (1) */
static dcp_status become_known(const struct files_publication *publication)
{
    const struct file_directory *directory = publication->directory;
    struct saved_error error;
    dcp_status status = file_rename(directory, publication->temporary, publication->committing);
    if (status == DCP_OK)
        return DCP_OK;
    error_save(&error);
    bool taken =
        is_gone(directory, publication->temporary) && is_gone(directory, publication->committing);
    error_restore(&error);
    return taken ? busy(publication) : status;
}

dcp_status files_publish_over(void *context, void *prepared, const char *identity, bool *visible)
{
    struct files_publication *publication = prepared;
    (void)context;
    *visible = false;
    dcp_status status = settle(publication);
    if (status == DCP_OK)
        status = become_known(publication);
    if (status == DCP_OK)
        status = remove_rivals(publication);
    if (status == DCP_OK)
        status = check_target(publication, identity);
    if (status == DCP_OK) {
        status = file_rename(publication->directory, publication->committing, publication->name);
        *visible = status == DCP_OK;
        if (status != DCP_OK)
            status = judge(publication, publication->committing, status, visible);
    } else {
        remove_own(publication);
    }
    publication_free(publication);
    return status;
}

void files_retract(void *context, void *prepared)
{
    (void)context;
    give_up(prepared);
}
