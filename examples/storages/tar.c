/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints in tar archives: "tar://run/step_1000" is run/step_1000.tar, which `tar` can list and
 * unpack, and may have made. It shows a storage that is one file and only grows:
 *  - A file is written beside the archive, without a name, and appended when it is sealed, also in
 *    the place of another one: of the members of a name the last one counts.
 *  - It has no subdirectories: an id below that of an archive is another archive.
 *  - A removed member has another name. Its bytes stay, also for those who are reading them.
 * Each function opens the archive for itself and locks it, so that ranks may be processes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storages.h"
#include "tar_archive.h"

/* An open member; or, while it is written, the file without a name that becomes one. */
struct file {
    int descriptor;
    bool durable;
    const char *id; /* stays until the file is closed */
    struct tar_member member;
};

static bool takes(void *context, const char *id)
{
    return strncmp(id, "tar://", strlen("tar://")) == 0;
}

static dcp_status list(void *context, void *id, dcp_storage_visitor visitor, void *visiting)
{
    struct tar_member member = {0};
    int archive;
    dcp_status status = tar_open(id, O_RDONLY, &archive);
    while (status == DCP_OK && (status = tar_next(archive, &member)) == DCP_OK && *member.name)
        status = visitor(visiting, member.name);
    close(archive);
    return status;
}

static dcp_status remove_member(void *context, void *id, const char *name)
{
    int archive;
    dcp_status status = tar_open(id, O_RDWR, &archive);
    if (status == DCP_OK)
        status = tar_remove(archive, name);
    close(archive);
    return status;
}

/* With all that was removed from it. */
static dcp_status remove_archive(void *context, void *id)
{
    struct tar_member first = {0};
    int archive;
    dcp_status status = tar_open(id, O_RDWR, &archive);
    if (status == DCP_OK)
        status = tar_next(archive, &first);
    if (status == DCP_OK && !*first.name)
        status = tar_unlink(id);
    close(archive);
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

static void close_file(void *context, dcp_storage_file *file)
{
    close(((struct file *)file->handle)->descriptor);
    free(file->handle);
}

static dcp_status open_member(void *context, void *id, const char *name,
                              const dcp_storage_access *access, dcp_storage_file *file)
{
    struct file *opened = file->handle = calloc(1, sizeof *opened);
    if (!opened)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", name);
    dcp_status status = tar_open(id, O_RDONLY, &opened->descriptor);
    if (status == DCP_OK)
        status = tar_find(opened->descriptor, name, &opened->member);
    if (status == DCP_OK && opened->member.start == 0)
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "%s has no %s", (char *)id, name);
    tar_unlock(opened->descriptor);
    file->size = opened->member.size;
    if (status != DCP_OK)
        close_file(context, file);
    return status;
}

static dcp_status read_member(void *context, dcp_storage_file *file, void *bytes, size_t size,
                              uint64_t offset)
{
    const struct file *opened = file->handle;
    return tar_read(opened->descriptor, bytes, size, opened->member.start + offset);
}

static dcp_status create(void *context, void *id, const char *name,
                         const dcp_storage_access *access, dcp_storage_file *file)
{
    struct file *made = file->handle = calloc(1, sizeof *made);
    if (!made)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", name);
    made->durable = access->durable;
    made->id = id;
    snprintf(made->member.name, sizeof made->member.name, "%s", name);
    dcp_status status = tar_begin(id, name, &made->descriptor);
    if (status != DCP_OK)
        close_file(context, file);
    return status;
}

static dcp_status write_file(void *context, dcp_storage_file *file, const void *bytes, size_t size,
                             uint64_t offset)
{
    return tar_write(((struct file *)file->handle)->descriptor, bytes, size, offset);
}

static dcp_status seal(void *context, dcp_storage_file *file, uint64_t size,
                       dcp_storage_condition condition, const char *identity)
{
    struct file *made = file->handle;
    struct tar_member before;
    int archive;
    dcp_status status = tar_open(made->id, O_RDWR | O_CREAT, &archive);
    if (status == DCP_OK)
        status = tar_find(archive, made->member.name, &before);
    if (status == DCP_OK && before.start != 0 && condition == DCP_PUBLISH_IF_ABSENT)
        status = dcp_error_set(DCP_ERR_EXISTS, "%s has a %s", made->id, made->member.name);
    made->member.size = size;
    if (status == DCP_OK)
        status = tar_append(archive, before.end, &made->member, made->descriptor, made->durable);
    close(archive);
    close_file(context, file);
    return status;
}

const dcp_storage tar_storage = {.size_of = sizeof(dcp_storage),
                                 .takes = takes,
                                 .remove_directory = remove_archive,
                                 .list = list,
                                 .remove = remove_member,
                                 .open_file = open_member,
                                 .read = read_member,
                                 .close_file = close_file,
                                 .create = create,
                                 .write = write_file,
                                 .seal = seal};
