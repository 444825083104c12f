/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/large_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/memory.h"

/* PAGEMAP_SCAN of Linux 6.7, which headers of C libraries may not have yet. */
struct scanned {
    uint64_t start, end, categories;
};

struct scan {
    uint64_t size, flags, start, end, walked, found, room, most;
    uint64_t inverted, all_of, any_of, returned;
};

#define SCAN    _IOWR('f', 16, struct scan)
#define IS_HUGE ((uint64_t)1 << 6)

/* What both ranges have in common. */
static uint64_t common(uint64_t start, uint64_t end, uint64_t from, uint64_t to)
{
    start = start > from ? start : from;
    end = end < to ? end : to;
    return start < end ? end - start : 0;
}

/* false: the kernel does not know how. */
static bool scan(uint64_t from, uint64_t to, size_t *bytes)
{
    enum { AT_ONCE = 32 };
    struct scanned found[AT_ONCE];
    struct scan what = {.size = sizeof what,
                        .start = from & ~(uint64_t)(MEMORY_PAGE - 1),
                        .end = (to + MEMORY_PAGE - 1) & ~(uint64_t)(MEMORY_PAGE - 1),
                        .found = (uintptr_t)found,
                        .room = AT_ONCE,
                        .all_of = IS_HUGE,
                        .returned = IS_HUGE};
    int count = 0, file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    *bytes = 0;
    while (file >= 0 && what.start < what.end && (count = ioctl(file, SCAN, &what)) >= 0) {
        for (int i = 0; i < count; i++)
            *bytes += (size_t)common(found[i].start, found[i].end, from, to);
        what.start = what.walked;
    }
    if (file >= 0)
        close(file);
    return file >= 0 && count >= 0;
}

struct mapping {
    uint64_t start, end, large;
};

/* Of a mapping whose other pages may all be in the range. */
static uint64_t least_common(const struct mapping *mapping, uint64_t from, uint64_t to)
{
    uint64_t inside = common(mapping->start, mapping->end, from, to);
    uint64_t size = mapping->end - mapping->start;
    uint64_t other = size > mapping->large ? size - mapping->large : 0;
    return inside > other ? inside - other : 0;
}

/* A line of proc_pid_smaps(5): "START-END ..." begins a mapping, "NAME: NUMBER kB" is of it. */
static void take_line(const char *line, struct mapping *mapping, uint64_t from, uint64_t to,
                      size_t *bytes)
{
    static const char *const names[] = {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:",
                                        "Shared_Hugetlb:", "Private_Hugetlb:"};
    char *end;
    uint64_t start = strtoull(line, &end, 16);
    if (end != line && *end == '-') {
        *bytes += (size_t)least_common(mapping, from, to);
        *mapping = (struct mapping){start, strtoull(end + 1, NULL, 16), 0};
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(line, names[i], strlen(names[i])) == 0)
            mapping->large += strtoull(line + strlen(names[i]), NULL, 10) << 10;
}

/* Reads on until the text holds a line; false: there is none any more. What is longer than the
 * room is cut into lines: those are names of files, behind what counts. */
static bool read_line(int file, char *text, size_t room, size_t *length)
{
    ssize_t got = 1;
    while (!memchr(text, '\n', *length) && *length < room && got != 0) {
        got = read(file, text + *length, room - *length);
        if (got < 0 && errno != EINTR)
            return false;
        *length += got > 0 ? (size_t)got : 0;
    }
    return *length > 0;
}

size_t large_pages_count_by_mappings(const char *path, const void *memory, size_t size)
{
    enum { ROOM = 4096 };
    char text[ROOM + 1];
    size_t length = 0, bytes = 0;
    uint64_t from = (uintptr_t)memory, to = from + size;
    struct mapping mapping = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    while (read_line(file, text, ROOM, &length)) {
        char *newline = memchr(text, '\n', length);
        size_t line = newline ? (size_t)(newline - text) : length;
        text[line] = '\0';
        take_line(text, &mapping, from, to, &bytes);
        line += newline ? 1 : 0;
        length -= line;
        memmove(text, text + line, length);
    }
    close(file);
    return bytes + (size_t)least_common(&mapping, from, to);
}

size_t large_pages_count(const void *memory, size_t size)
{
    uint64_t from = (uintptr_t)memory;
    size_t bytes = 0;
    if (size == 0 || from > UINT64_MAX - size - MEMORY_PAGE)
        return 0;
    return scan(from, from + size, &bytes)
               ? bytes
               : large_pages_count_by_mappings("/proc/self/smaps", memory, size);
}
