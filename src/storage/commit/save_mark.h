/* SPDX-License-Identifier: BSD-3-Clause */
/* The mark of a save in its directory while it runs: lines of text that name the owner. */
#ifndef STORAGE_COMMIT_SAVE_MARK_H
#define STORAGE_COMMIT_SAVE_MARK_H

#include <stdbool.h>
#include <stddef.h>

#include "storage/commit/save_id.h"
#include "storage/commit/save_process.h"

enum { SAVE_MARK_SIZE = 1024, SAVE_MARK_TIME = 32 };

struct save_mark {
    char save_id[SAVE_ID_SIZE];
    struct save_process process;
    int64_t since; /* seconds since 1970 by the clock of its machine */
};

/* Makes the mark of a save of this process that begins now. */
void save_mark_init(struct save_mark *mark, const char *save_id);
/* Returns the length. */
size_t save_mark_print(const struct save_mark *mark, char text[SAVE_MARK_SIZE]);
/* Whether the bytes are a complete mark. Ignores unknown lines. */
bool save_mark_parse(const void *bytes, size_t size, struct save_mark *mark);
/* The age of the mark in seconds, as far as the clocks of two machines agree. */
double save_mark_age(const struct save_mark *mark);
/* "2026-01-31T12:00:00Z". */
void save_mark_time(const struct save_mark *mark, char text[SAVE_MARK_TIME]);

#endif
