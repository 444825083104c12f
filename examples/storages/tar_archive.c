/* SPDX-License-Identifier: BSD-3-Clause */
#include "tar_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Before the name of a removed member. */
#define REMOVED "removed/"

enum { TAR_BLOCK = 512 };

/* All zero at the end of an archive. */
struct header {
    char name[100], mode[8], owner[16], size[12], time[12], checksum[8], type, link[100], magic[8];
    char rest[247];
};

static dcp_status tar_failed(const char *what, const char *path)
{
    dcp_status status = errno == ENOENT   ? DCP_ERR_NOT_FOUND
                        : errno == ENOSPC ? DCP_ERR_NO_SPACE
                                          : DCP_ERR_IO;
    return dcp_error_set(status, "%s: cannot %s: %s", path, what, strerror(errno));
}

dcp_status tar_read(int archive, void *bytes, size_t size, uint64_t offset)
{
    ssize_t done = 1;
    for (size_t at = 0; at < size && done > 0; at += (size_t)done)
        done = pread(archive, (char *)bytes + at, size - at, (off_t)(offset + at));
    if (done == 0)
        errno = ENODATA;
    return done > 0 || size == 0 ? DCP_OK : tar_failed("read", "a tar archive");
}

dcp_status tar_write(int archive, const void *bytes, size_t size, uint64_t offset)
{
    ssize_t done = 1;
    for (size_t at = 0; at < size && done > 0; at += (size_t)done)
        done = pwrite(archive, (const char *)bytes + at, size - at, (off_t)(offset + at));
    return done > 0 ? DCP_OK : tar_failed("write", "a tar archive");
}

static dcp_status sync_archive(int archive)
{
    return fdatasync(archive) == 0 ? DCP_OK : tar_failed("sync", "a tar archive");
}

/* "tar://PATH", with a suffix. */
static dcp_status make_path(const char *id, const char *suffix, char path[PATH_MAX])
{
    const char *given = id + strlen("tar://");
    if (snprintf(path, PATH_MAX, "%s%s", given, suffix) < PATH_MAX)
        return DCP_OK;
    errno = ENAMETOOLONG;
    return tar_failed("use", id);
}

/* What was made in the directory of a path is there after a power cut, too. */
static dcp_status sync_parent(const char *path)
{
    char copy[PATH_MAX];
    int parent = open(dirname(strcpy(copy, path)), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dcp_status status =
        parent >= 0 && fsync(parent) == 0 ? DCP_OK : tar_failed("sync the directory of", path);
    close(parent);
    return status;
}

dcp_status tar_open(const char *id, int flags, int *archive)
{
    char path[PATH_MAX];
    struct stat file = {0};
    *archive = -1;
    dcp_status status = make_path(id, ".tar", path);
    /* Whoever held the lock may have removed it. */
    while (status == DCP_OK && file.st_nlink == 0) {
        close(*archive);
        *archive = open(path, flags | O_CLOEXEC, 0666);
        if (*archive < 0 || flock(*archive, flags & O_RDWR ? LOCK_EX : LOCK_SH) != 0 ||
            fstat(*archive, &file) != 0)
            status = tar_failed("open", path);
    }
    return status == DCP_OK && flags & O_CREAT && file.st_size == 0 ? sync_parent(path) : status;
}

void tar_unlock(int archive)
{
    flock(archive, LOCK_UN);
}

dcp_status tar_unlink(const char *id)
{
    char path[PATH_MAX];
    dcp_status status = make_path(id, ".tar", path);
    return status == DCP_OK && unlink(path) != 0 ? tar_failed("remove", path) : status;
}

/* The directories that a path is in. */
static dcp_status make_parents(char *path)
{
    dcp_status status = DCP_OK;
    for (char *slash = strchr(path + 1, '/'); slash && status == DCP_OK;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) == 0)
            status = sync_parent(path);
        *slash = '/';
    }
    return status;
}

dcp_status tar_begin(const char *id, const char *name, int *file)
{
    char path[PATH_MAX];
    *file = -1;
    if (strlen(name) >= TAR_NAME_SIZE)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: a name too long for this storage", name);
    dcp_status status = make_path(id, ".tar.XXXXXX", path);
    if (status == DCP_OK)
        status = make_parents(path);
    if (status != DCP_OK)
        return status;
    *file = mkstemp(path);
    if (*file < 0)
        return tar_failed("make", path);
    unlink(path);
    return DCP_OK;
}

/* The size of a member: octal digits, or, beyond 8 GiB, a number to the base 256. */
static uint64_t read_size(const struct header *header)
{
    char digits[sizeof header->size + 1] = "";
    uint64_t size = 0;
    if (!(header->size[0] & 0x80))
        return strtoull(memcpy(digits, header->size, sizeof header->size), NULL, 8);
    for (size_t i = 4; i < sizeof header->size; i++)
        size = size << 8 | (unsigned char)header->size[i];
    return size;
}

static struct header make_header(const char *before, const struct tar_member *member)
{
    struct header header = {.mode = "0000644", .type = '0', .magic = "ustar\00000"};
    unsigned long long size = member->size;
    unsigned sum = 0;
    snprintf(header.name, sizeof header.name, "%s%s", before, member->name);
    snprintf(header.size, sizeof header.size, "%011llo", size);
    if (size >> 33) {
        memset(header.size, 0, 4);
        header.size[0] = (char)0x80;
        for (int i = 0; i < 8; i++)
            header.size[11 - i] = (char)(size >> 8 * i);
    }
    memset(header.checksum, ' ', sizeof header.checksum);
    for (size_t i = 0; i < sizeof header; i++)
        sum += ((const unsigned char *)&header)[i];
    snprintf(header.checksum, sizeof header.checksum, "%06o", sum);
    return header;
}

/* The name of a file that was not removed, without a "./" that says nothing; "" of all else. */
static const char *name_of(const struct header *header)
{
    bool regular = (header->type == '0' || header->type == '\0') && !header->name[99];
    bool removed = strncmp(header->name, REMOVED, strlen(REMOVED)) == 0;
    return !regular || removed                   ? ""
           : strncmp(header->name, "./", 2) == 0 ? header->name + 2
                                                 : header->name;
}

/* What begins at a member's end, if only a directory; without a start: nothing does. */
static dcp_status step(int archive, struct tar_member *member)
{
    struct header header = {.name = ""};
    struct stat file;
    uint64_t at = member->end;
    if (fstat(archive, &file) != 0)
        return tar_failed("look at", "a tar archive");
    *member = (struct tar_member){.end = at};
    if (at + TAR_BLOCK > (uint64_t)file.st_size)
        return DCP_OK;
    dcp_status status = tar_read(archive, &header, TAR_BLOCK, at);
    if (status != DCP_OK || !header.name[0])
        return status;
    uint64_t size = read_size(&header);
    if (memcmp(header.magic, "ustar", 5) != 0 || size > (uint64_t)file.st_size - at - TAR_BLOCK)
        return dcp_error_set(DCP_ERR_FORMAT, "byte %llu of a tar archive begins no member",
                             (unsigned long long)at);
    member->size = size;
    member->start = at + TAR_BLOCK;
    member->end = member->start + (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    snprintf(member->name, sizeof member->name, "%s", name_of(&header));
    return DCP_OK;
}

dcp_status tar_next(int archive, struct tar_member *member)
{
    dcp_status status;
    do
        status = step(archive, member);
    while (status == DCP_OK && member->start != 0 && !*member->name);
    return status;
}

dcp_status tar_find(int archive, const char *name, struct tar_member *found)
{
    struct tar_member member = {0};
    dcp_status status;
    *found = member;
    while ((status = tar_next(archive, &member)) == DCP_OK && *member.name)
        if (strcmp(member.name, name) == 0)
            *found = member;
    found->end = member.end;
    return status;
}

dcp_status tar_append(int archive, uint64_t end, const struct tar_member *member, int from,
                      bool durable)
{
    static const char zeros[3 * TAR_BLOCK];
    const struct header header = make_header("", member);
    uint64_t size = member->size;
    char buffer[1 << 14];
    dcp_status status = DCP_OK;
    for (uint64_t done = 0; done < size && status == DCP_OK; done += sizeof buffer) {
        size_t part = size - done < sizeof buffer ? (size_t)(size - done) : sizeof buffer;
        status = tar_read(from, buffer, part, done);
        if (status == DCP_OK)
            status = tar_write(archive, buffer, part, end + TAR_BLOCK + done);
    }
    if (status == DCP_OK) /* to the end of a block, and two blocks, which end an archive */
        status =
            tar_write(archive, zeros, 3 * TAR_BLOCK - size % TAR_BLOCK, end + TAR_BLOCK + size);
    if (status == DCP_OK && durable)
        status = sync_archive(archive);
    if (status == DCP_OK)
        status = tar_write(archive, &header, TAR_BLOCK, end);
    return status == DCP_OK && durable ? sync_archive(archive) : status;
}

dcp_status tar_remove(int archive, const char *name)
{
    struct tar_member member = {0};
    bool found = false;
    dcp_status status;
    while ((status = tar_next(archive, &member)) == DCP_OK && *member.name) {
        if (strcmp(member.name, name) != 0)
            continue;
        const struct header header = make_header(REMOVED, &member);
        if ((status = tar_write(archive, &header, TAR_BLOCK, member.start - TAR_BLOCK)) != DCP_OK)
            return status;
        found = true;
    }
    if (status != DCP_OK)
        return status;
    return found ? sync_archive(archive) : dcp_error_set(DCP_ERR_NOT_FOUND, "there is no %s", name);
}
