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

void disk_visit(const char *directory, disk_visitor *visit, void *context)
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

static void cool_file(int file, size_t size, void *context)
{
    (void)size, (void)context;
    if (fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0)
        err(1, "posix_fadvise");
}

void disk_cool(const char *directory)
{
    disk_visit(directory, cool_file, NULL);
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
