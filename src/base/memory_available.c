/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memory_available.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where a version of control groups keeps what, and how the process's own group is found in
 * /proc/self/cgroup: "0::PATH", or "NUMBER:CONTROLLERS:PATH" (cgroups(7)). */
struct hierarchy {
    const char *controller;
    const char *mount;
    const char *limit, *usage, *cache; /* cache: in memory.stat */
};

static const struct hierarchy hierarchies[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file "},
};

enum { PATH_ROOM = 4096, TEXT_ROOM = 8192 };

/* A small file as text, cut where there is no more room. */
static bool read_text(const char *path, char text[TEXT_ROOM])
{
    size_t length = 0;
    ssize_t got = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    do {
        got = read(file, text + length, TEXT_ROOM - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    } while ((got > 0 && length < TEXT_ROOM - 1) || (got < 0 && errno == EINTR));
    close(file);
    text[length] = '\0';
    return got >= 0;
}

static bool read_in(const char *directory, const char *name, char text[TEXT_ROOM])
{
    char path[PATH_ROOM];
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    return length > 0 && (size_t)length < sizeof path && read_text(path, text);
}

/* The number at the beginning of a text; none, as in "max", is false. */
static bool read_number(const char *text, uint64_t *number)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *number = value;
    return errno == 0 && end != text && strchr(text, '-') == NULL;
}

/* What follows a name at the beginning of a line; NULL: there is no such line. */
static const char *find_line(const char *text, const char *name)
{
    size_t length = strlen(name);
    while (text && strncmp(text, name, length) != 0) {
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return text ? text + length : NULL;
}

static bool machine_has(const char *root, uint64_t *bytes)
{
    char text[TEXT_ROOM];
    uint64_t kibibytes;
    if (!read_in(root, "proc/meminfo", text))
        return false;
    const char *value = find_line(text, "MemAvailable:");
    if (!value || !read_number(value, &kibibytes) || kibibytes > UINT64_MAX >> 10)
        return false;
    *bytes = kibibytes << 10;
    return true;
}

/* Of one group; what it holds of files and nobody has used lately is as good as free. UINT64_MAX
 * without a limit. */
static uint64_t group_leaves(const char *directory, const struct hierarchy *kind)
{
    char text[TEXT_ROOM];
    uint64_t limit, usage, cache = 0;
    if (!read_in(directory, kind->limit, text) || !read_number(text, &limit) ||
        !read_in(directory, kind->usage, text) || !read_number(text, &usage))
        return UINT64_MAX;
    const char *value =
        read_in(directory, "memory.stat", text) ? find_line(text, kind->cache) : NULL;
    if (value && read_number(value, &cache))
        usage -= cache < usage ? cache : usage;
    return usage < limit ? limit - usage : 0;
}

/* The group's path, which is cut out of the text; NULL: the process is in none of this kind. */
static char *find_group(char *text, const struct hierarchy *kind)
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path = '\0';
        const char *found = strstr(controllers + 1, kind->controller);
        size_t length = strlen(kind->controller);
        if (length == 0 ? controllers[1] == '\0'
                        : found && (found[length] == '\0' || found[length] == ',') &&
                              (found[-1] == ':' || found[-1] == ','))
            return path + 1;
    }
    return NULL;
}

/* The least of the group and those above it: in a container only the topmost may be seen. */
static uint64_t groups_leave(const char *root, const struct hierarchy *kind)
{
    char directory[PATH_ROOM], text[TEXT_ROOM];
    uint64_t least = UINT64_MAX;
    char *group = read_in(root, "proc/self/cgroup", text) ? find_group(text, kind) : NULL;
    if (!group)
        return least;
    int mount = snprintf(directory, sizeof directory, "%s%s", root, kind->mount);
    int length = snprintf(directory, sizeof directory, "%s%s%s", root, kind->mount, group);
    if (length < 0 || (size_t)length >= sizeof directory)
        return least;
    for (char *last = directory; last; last = strrchr(directory + mount, '/')) {
        if (last != directory)
            *last = '\0';
        uint64_t leaves = group_leaves(directory, kind);
        least = leaves < least ? leaves : least;
    }
    return least;
}

uint64_t memory_available(const char *root)
{
    uint64_t available;
    if (!machine_has(root, &available))
        return 0;
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++) {
        uint64_t leaves = groups_leave(root, &hierarchies[i]);
        available = leaves < available ? leaves : available;
    }
    return available;
}
