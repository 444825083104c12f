/* SPDX-License-Identifier: BSD-3-Clause */
#include "reshard/damage.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "storage/scratch.h"

static bool is_directory(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* Of a rank that writes nothing there is a file with a footer alone, which is not read. */
static bool has_data(const char *file)
{
    struct stat found;
    assert_int_equal(stat(file, &found), 0);
    return (strstr(file, ".distcp") && found.st_size > 100) || strstr(file, ".safetensors");
}

/* Calls back for each file with data, also of directories in it; returns how many there are. */
static int each_file(const char *path, void (*call)(const char *file, void *context), void *context)
{
    struct dirent **entries;
    int files = 0, count = is_directory(path) ? scandir(path, &entries, NULL, alphasort) : -1;
    if (count < 0) {
        call(path, context);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        char *file = scratch_path(path, entries[i]->d_name);
        if (is_directory(file) && entries[i]->d_name[0] != '.') {
            files += each_file(file, call, context);
        } else if (has_data(file)) {
            call(file, context);
            files++;
        }
        free(file);
        free(entries[i]);
    }
    free(entries);
    return files;
}

static void drop_pages(const char *file, void *context)
{
    int opened = open(file, O_RDONLY);
    (void)context;
    assert_true(opened >= 0);
    if (fdatasync(opened) == 0)
        posix_fadvise(opened, 0, 0, POSIX_FADV_DONTNEED);
    close(opened);
}

static void flip(const char *file, void *context)
{
    struct damage *damage = context;
    struct stat found;
    unsigned char byte;
    if (damage->at++ != damage->file)
        return;
    int opened = open(file, O_RDWR);
    assert_true(opened >= 0 && fstat(opened, &found) == 0);
    off_t place = (off_t)(damage->place % (uint64_t)(found.st_size + (found.st_size == 0)));
    if (pread(opened, &byte, 1, place) == 1) {
        byte ^= damage->mask;
        assert_int_equal(pwrite(opened, &byte, 1, place), 1);
    }
    close(opened);
}

void damage_drop_pages(const char *path)
{
    each_file(path, drop_pages, NULL);
}

bool damage_choose(const char *path, uint64_t *seed, struct damage *damage)
{
    int files = each_file(path, drop_pages, NULL);
    if (files == 0)
        return false;
    *damage = (struct damage){.file = (int)scratch_below(seed, files),
                              .place = scratch_random(seed),
                              .mask = (unsigned char)(1 + scratch_below(seed, 255))};
    return true;
}

void damage_turn(const char *path, struct damage *damage)
{
    damage->at = 0;
    each_file(path, flip, damage);
}
