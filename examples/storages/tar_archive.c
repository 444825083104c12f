/* SPDX-License-Identifier: BSD-3-Clause */
#include "tar_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

dcp_status tar_failed(const char *what, const char *path)
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

dcp_status tar_open(const char *path, int flags, int lock, int *archive)
{
    *archive = open(path, flags | O_CLOEXEC, 0666);
    if (*archive < 0)
        return tar_failed("open", path);
    if (flock(*archive, lock) == 0)
        return DCP_OK;
    close(*archive);
    return tar_failed("lock", path);
}

/* The size of a member: octal digits, or, beyond 8 GiB, a number to the base 256. */
uint64_t tar_header_size(const struct tar_header *header)
{
    char digits[sizeof header->size + 1] = "";
    uint64_t size = 0;
    if (!(header->size[0] & 0x80))
        return strtoull(memcpy(digits, header->size, sizeof header->size), NULL, 8);
    for (size_t i = 4; i < sizeof header->size; i++)
        size = size << 8 | (unsigned char)header->size[i];
    return size;
}

struct tar_header tar_header_make(const char *name, uint64_t size)
{
    struct tar_header header = {.mode = "0000644", .type = '0', .magic = "ustar\00000"};
    unsigned sum = 0;
    snprintf(header.name, sizeof header.name, "%s", name);
    snprintf(header.size, sizeof header.size, "%011llo", (unsigned long long)size);
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

const char *tar_header_name(const struct tar_header *header)
{
    bool regular = (header->type == '0' || header->type == '\0') && !header->name[99];
    return !regular ? "" : strncmp(header->name, "./", 2) == 0 ? header->name + 2 : header->name;
}

dcp_status tar_next(int archive, uint64_t *at, struct tar_header *header)
{
    struct stat file;
    if (fstat(archive, &file) != 0)
        return tar_failed("look at", "a tar archive");
    *header = (struct tar_header){0};
    if (*at + TAR_BLOCK > (uint64_t)file.st_size)
        return DCP_OK;
    dcp_status status = tar_read(archive, header, TAR_BLOCK, *at);
    if (status != DCP_OK || !header->name[0])
        return status;
    uint64_t size = tar_header_size(header);
    if (memcmp(header->magic, "ustar", 5) != 0 || size > (uint64_t)file.st_size - *at - TAR_BLOCK)
        return dcp_error_set(DCP_ERR_FORMAT, "byte %llu of a tar archive begins no member",
                             (unsigned long long)*at);
    *at += TAR_BLOCK + (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    return DCP_OK;
}

dcp_status tar_find(int archive, const char *name, struct tar_member *found, uint64_t *end)
{
    struct tar_header header = {.name = "?"};
    dcp_status status = DCP_OK;
    *end = found->start = 0;
    while (status == DCP_OK && header.name[0]) {
        uint64_t at = *end;
        status = tar_next(archive, end, &header);
        if (status == DCP_OK && header.name[0] && strcmp(tar_header_name(&header), name) == 0) {
            found->start = at + TAR_BLOCK;
            found->size = tar_header_size(&header);
        }
    }
    return status;
}

dcp_status tar_append(int archive, uint64_t end, const char *name, int from, uint64_t size,
                      bool durable)
{
    static const char zeros[3 * TAR_BLOCK];
    const struct tar_header header = tar_header_make(name, size);
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
    if (status == DCP_OK && durable && fdatasync(archive) != 0)
        status = tar_failed("sync", name);
    return status == DCP_OK ? tar_write(archive, &header, TAR_BLOCK, end) : status;
}
