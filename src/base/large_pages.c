/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/large_pages.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text_lines.h"

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

size_t large_pages_count_by_mappings(const char *path, const void *memory, size_t size)
{
    struct text_lines list;
    const char *line;
    size_t bytes = 0;
    uint64_t from = (uintptr_t)memory, to = from + size;
    struct mapping mapping = {0};
    if (!text_lines_open(&list, path))
        return 0;
    while ((line = text_lines_next(&list)))
        take_line(line, &mapping, from, to, &bytes);
    text_lines_close(&list);
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
