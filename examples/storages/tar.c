/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints in tar archives: "tar://run/step_1000" is run/step_1000.tar, which `tar` can list and
 * unpack, and may have made. It shows a storage that is one file and only grows:
 *  - A file is written beside the archive, without a name, and appended when it is sealed.
 *  - What is published is appended as well: of the members of a name the last one counts.
 *  - A removed member is renamed to "removed/NAME" in its header. Its bytes stay, also for those
 *    who are reading them. Names with slashes are not listed.
 * Each function opens the archive for itself and locks it, so that ranks may be processes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storages.h"
#include "tar_archive.h"

/* Of the functions of a table. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* An open member; or, while it is written, the file without a name that becomes one. */
struct file {
    int descriptor;
    struct tar_member member;
    const char *archive; /* the directory, which is the archive's path */
    char name[TAR_NAME_SIZE];
    bool durable;
};

static bool takes(void *context, const char *id)
{
    return strncmp(id, "tar://", strlen("tar://")) == 0;
}

/* The directories that a new archive is in. */
static void make_parents(const char *archive)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", archive);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
}

static dcp_status open_archive(void *context, const char *id, uint32_t flags, void **directory,
                               bool *created)
{
    char *path = malloc(strlen(id) + 1);
    int archive = -1;
    if (!path)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", id);
    sprintf(path, "%s.tar", id + strlen("tar://"));
    int how = O_RDONLY | (flags & DCP_OPEN_NO_LINK ? O_NOFOLLOW : 0);
    dcp_status status = tar_open(path, how, LOCK_SH, &archive);
    if (status == DCP_ERR_NOT_FOUND && flags & DCP_OPEN_CREATE) {
        make_parents(path);
        status = tar_open(path, O_RDWR | O_CREAT, LOCK_SH, &archive);
        *created = status == DCP_OK;
    }
    if (status == DCP_OK)
        close(archive);
    else
        free(path);
    *directory = path;
    return status;
}

static void close_archive(void *context, void *directory)
{
    free(directory);
}

static void withdraw(void *context, void *directory)
{
    struct tar_member none;
    uint64_t end;
    int archive;
    if (tar_open(directory, O_RDWR, LOCK_EX, &archive) != DCP_OK)
        return;
    if (tar_find(archive, "", &none, &end) == DCP_OK && end == 0)
        unlink(directory);
    close(archive);
}

static dcp_status list(void *context, void *directory, dcp_storage_visitor visitor, void *visiting)
{
    struct tar_header header = {.name = "?"};
    uint64_t at = 0;
    int archive;
    dcp_status status = tar_open(directory, O_RDONLY, LOCK_SH, &archive);
    if (status != DCP_OK)
        return status;
    while (status == DCP_OK && header.name[0]) {
        status = tar_next(archive, &at, &header);
        const char *name = tar_header_name(&header);
        if (status == DCP_OK && *name && !strchr(name, '/'))
            status = visitor(visiting, name);
    }
    close(archive);
    return status;
}

static dcp_status remove_member(void *context, void *directory, const char *name)
{
    struct tar_header header = {.name = "?"};
    bool found = false;
    char removed[100];
    int archive;
    dcp_status status = tar_open(directory, O_RDWR, LOCK_EX, &archive);
    if (status != DCP_OK)
        return status;
    snprintf(removed, sizeof removed, "removed/%s", name);
    for (uint64_t at = 0, end = 0; status == DCP_OK && header.name[0]; at = end) {
        status = tar_next(archive, &end, &header);
        if (status != DCP_OK || strcmp(tar_header_name(&header), name) != 0)
            continue;
        header = tar_header_make(removed, tar_header_size(&header));
        status = tar_write(archive, &header, sizeof header, at);
        found = true;
    }
    close(archive);
    return found || status != DCP_OK ? status
                                     : dcp_error_set(DCP_ERR_NOT_FOUND, "there is no %s", name);
}

static dcp_status open_member(void *context, void *directory, const char *name,
                              const dcp_storage_access *access, dcp_storage_file *file)
{
    struct file *opened = calloc(1, sizeof *opened);
    uint64_t end;
    if (!opened)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", name);
    dcp_status status = tar_open(directory, O_RDONLY, LOCK_SH, &opened->descriptor);
    if (status == DCP_OK) {
        status = tar_find(opened->descriptor, name, &opened->member, &end);
        if (status == DCP_OK && opened->member.start == 0)
            status = dcp_error_set(DCP_ERR_NOT_FOUND, "%s has no %s", (char *)directory, name);
        if (status == DCP_OK)
            flock(opened->descriptor, LOCK_UN);
        else
            close(opened->descriptor);
    }
    *file = (dcp_storage_file){.handle = opened, .size = opened->member.size};
    if (status != DCP_OK)
        free(opened);
    return status;
}

static dcp_status read_member(void *context, dcp_storage_file *file, void *bytes, size_t size,
                              uint64_t offset)
{
    const struct file *opened = file->handle;
    return tar_read(opened->descriptor, bytes, size, opened->member.start + offset);
}

/* Of a member, and of a file that shall become none. */
static void close_file(void *context, dcp_storage_file *file)
{
    const struct file *opened = file->handle;
    close(opened->descriptor);
    free(file->handle);
}

static dcp_status create(void *context, void *directory, const char *name,
                         const dcp_storage_access *access, dcp_storage_file *file)
{
    char path[4096];
    if (strlen(name) >= TAR_NAME_SIZE)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: a name too long for this storage", name);
    struct file *made = calloc(1, sizeof *made);
    if (!made)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", name);
    *made = (struct file){.archive = directory, .durable = access->durable};
    snprintf(made->name, sizeof made->name, "%s", name);
    snprintf(path, sizeof path, "%s.XXXXXX", made->archive);
    made->descriptor = mkstemp(path);
    if (made->descriptor >= 0) {
        unlink(path);
        file->handle = made;
        return DCP_OK;
    }
    free(made);
    return tar_failed("make", path);
}

static dcp_status write_file(void *context, dcp_storage_file *file, const void *bytes, size_t size,
                             uint64_t offset)
{
    const struct file *made = file->handle;
    return tar_write(made->descriptor, bytes, size, offset);
}

static dcp_status append(dcp_storage_file *file, uint64_t size, bool replace)
{
    const struct file *made = file->handle;
    struct tar_member before;
    uint64_t end;
    int archive;
    dcp_status status = tar_open(made->archive, O_RDWR, LOCK_EX, &archive);
    if (status == DCP_OK) {
        status = tar_find(archive, made->name, &before, &end);
        if (status == DCP_OK && before.start && !replace)
            status = dcp_error_set(DCP_ERR_EXISTS, "%s has a %s", made->archive, made->name);
        if (status == DCP_OK)
            status = tar_append(archive, end, made->name, made->descriptor, size, made->durable);
        close(archive);
    }
    close_file(NULL, file);
    return status;
}

static dcp_status seal(void *context, dcp_storage_file *file, uint64_t size)
{
    return append(file, size, false);
}

static dcp_status sync_archive(void *context, void *directory)
{
    int archive;
    dcp_status status = tar_open(directory, O_RDONLY, LOCK_SH, &archive);
    if (status != DCP_OK)
        return status;
    if (fsync(archive) != 0)
        status = tar_failed("sync", directory);
    close(archive);
    return status;
}

/* A publication is a file that has been written, and its size. */
static dcp_status prepare(void *context, void *directory, const char *name, const void *bytes,
                          size_t size, bool durable, void **publication)
{
    const dcp_storage_access access = {.durable = durable};
    dcp_storage_file file = {0};
    dcp_status status = create(context, directory, name, &access, &file);
    if (!file.handle)
        return status;
    struct file *made = *publication = file.handle;
    made->member.size = size;
    status = write_file(context, &file, bytes, size, 0);
    if (status != DCP_OK)
        close_file(context, &file);
    return status;
}

static dcp_status publish(void *context, void *publication, dcp_storage_condition condition,
                          bool *visible)
{
    const struct file *made = publication;
    dcp_storage_file file = {.handle = publication};
    dcp_status status = append(&file, made->member.size, condition == DCP_PUBLISH_ALWAYS);
    *visible = status == DCP_OK;
    return status;
}

static void retract(void *context, void *publication)
{
    close_file(context, &(dcp_storage_file){.handle = publication});
}

const dcp_storage tar_storage = {.size_of = sizeof(dcp_storage),
                                 .takes = takes,
                                 .open = open_archive,
                                 .close = close_archive,
                                 .withdraw = withdraw,
                                 .list = list,
                                 .remove = remove_member,
                                 .open_file = open_member,
                                 .read = read_member,
                                 .close_file = close_file,
                                 .create = create,
                                 .write = write_file,
                                 .seal = seal,
                                 .abandon = close_file,
                                 .sync = sync_archive,
                                 .prepare = prepare,
                                 .publish = publish,
                                 .retract = retract};
