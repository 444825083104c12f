/* SPDX-License-Identifier: BSD-3-Clause */
/* A byte of a checkpoint's files that is changed, and changed back. */
#ifndef TESTS_RESHARD_DAMAGE_H
#define TESTS_RESHARD_DAMAGE_H

#include <stdbool.h>
#include <stdint.h>

struct damage {
    int file, at;   /* by number, of those with data */
    uint64_t place; /* of the byte; beyond the file's size, from its beginning again */
    unsigned char mask;
};

/* Any byte of the files of a directory, or of one file. False: none has data. */
bool damage_choose(const char *path, uint64_t *seed, struct damage *damage);
/* Changes it; called again, changes it back. */
void damage_turn(const char *path, struct damage *damage);
/* Has the page cache hold nothing of these files. */
void damage_drop_pages(const char *path);

#endif
