/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/unwritable.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* "START-END PERMISSIONS ...", of which the second permission is 'w' or '-'. */
static void take_line(const char *line, struct unwritable *unwritable)
{
    char *at;
    uint64_t start = strtoull(line, &at, 16);
    if (at == line || *at != '-')
        return;
    uint64_t end = strtoull(at + 1, &at, 16);
    if (at[0] != ' ' || at[1] == '\0' || at[2] != '-')
        return;
    size_t count = unwritable->count;
    if (count > 0 && unwritable->ranges[count - 1].end == start) {
        unwritable->ranges[count - 1].end = end;
        return;
    }
    unwritable->ranges[count].start = start;
    unwritable->ranges[count].end = end;
    unwritable->count++;
}

bool unwritable_read(struct text_lines *list, struct unwritable *unwritable)
{
    const char *line;
    unwritable->count = 0;
    while (unwritable->count < UNWRITABLE_MOST && (line = text_lines_next(list)))
        take_line(line, unwritable);
    return unwritable->count > 0;
}

bool unwritable_has(const struct unwritable *unwritable, uint64_t start, uint64_t end)
{
    size_t low = 0, high = unwritable->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (unwritable->ranges[middle].end <= start)
            low = middle + 1;
        else
            high = middle;
    }
    return low < unwritable->count && unwritable->ranges[low].start < end;
}

/* The system is asked for something that it answers with one byte. */
bool unwritable_byte(uint64_t address)
{
    uintptr_t page = (uintptr_t)&address;
    page -= page % (uintptr_t)sysconf(_SC_PAGESIZE);
    return mincore((void *)page, 1, (unsigned char *)(uintptr_t)address) != 0 && errno == EFAULT;
}
