/* SPDX-License-Identifier: BSD-3-Clause */
#include "disk.h"

#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 8 << 20 };

static void write_pieces(int file, const char *path, const char *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        size_t length = size - done < PIECE ? size - done : PIECE;
        ssize_t written = write(file, bytes + done, length);
        if (written < 0)
            err(1, "%s", path);
        done += (size_t)written;
    }
}

void disk_write(const char *path, const void *bytes, size_t size)
{
    size_t whole = size / DISK_BLOCK * DISK_BLOCK;
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);

    if (file < 0)
        err(1, "%s", path);
    /* Past the page cache, where the file system lets us; what is left of a block through it. */
    (void)fcntl(file, F_SETFL, O_DIRECT);
    write_pieces(file, path, bytes, whole);
    (void)fcntl(file, F_SETFL, 0);
    write_pieces(file, path, (const char *)bytes + whole, size - whole);
    if (fsync(file) != 0 || close(file) != 0)
        err(1, "%s", path);
}

typedef void file_visitor(int file, size_t size, void *context);

static void visit_files(const char *directory, file_visitor *visit, void *context)
{
    const struct dirent *entry;
    struct stat status;
    DIR *listing = opendir(directory);

    if (!listing)
        err(1, "%s", directory);
    while ((entry = readdir(listing))) {
        int file = openat(dirfd(listing), entry->d_name, O_RDONLY);
        if (file < 0 || fstat(file, &status) != 0)
            err(1, "%s/%s", directory, entry->d_name);
        if (S_ISREG(status.st_mode))
            visit(file, (size_t)status.st_size, context);
        close(file);
    }
    closedir(listing);
}

struct share {
    char *buffer;
    size_t size;
    int rank, ranks;
    bool direct;
};

static void read_share(int file, size_t size, void *context)
{
    const struct share *share = context;
    size_t part = size / (size_t)share->ranks / DISK_BLOCK * DISK_BLOCK;
    size_t start = part * (size_t)share->rank;
    size_t end = share->rank == share->ranks - 1 ? size : start + part;

    if (share->direct)
        (void)fcntl(file, F_SETFL, O_DIRECT);
    for (size_t at = start; at < end;) {
        size_t most = share->size < PIECE ? share->size / DISK_BLOCK * DISK_BLOCK : PIECE;
        /* Whole blocks, also where the file ends in one. */
        size_t room = (share->size - most) / DISK_BLOCK * DISK_BLOCK + DISK_BLOCK;
        size_t length = end - at < most && share->rank < share->ranks - 1 ? end - at : most;
        ssize_t got = pread(file, share->buffer + (at - start) % room, length, (off_t)at);
        if (got <= 0)
            err(1, "read");
        at += (size_t)got;
    }
}

void disk_read(const char *directory, void *buffer, size_t size, int rank, int ranks, bool direct)
{
    struct share share = {buffer, size, rank, ranks, direct};

    visit_files(directory, read_share, &share);
}

static void cool_file(int file, size_t size, void *context)
{
    (void)size, (void)context;
    if (fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0)
        err(1, "posix_fadvise");
}

void disk_cool(const char *directory)
{
    visit_files(directory, cool_file, NULL);
}

unsigned long long disk_bytes_read(void)
{
    static const char field[] = "rchar: ";
    char line[64];
    FILE *counters = fopen("/proc/self/io", "r");

    if (!counters || !fgets(line, sizeof line, counters) ||
        strncmp(line, field, sizeof field - 1) != 0)
        err(1, "/proc/self/io");
    fclose(counters);
    return strtoull(line + sizeof field - 1, NULL, 10);
}
