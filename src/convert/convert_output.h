/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that a conversion writes: under a temporary name until all of it is there, then in one
 * rename that replaces nothing. With a journal the temporary name is known, and a later conversion
 * goes on with the files. */
#ifndef CONVERT_CONVERT_OUTPUT_H
#define CONVERT_CONVERT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/progress.h"
#include "convert/convert_journal.h"
#include "convert/convert_source.h"
#include "dcp/status.h"

struct convert_output {
    struct convert_journal *journal; /* NULL: an interrupted conversion leaves nothing */
    const char *path;                /* where it will be */
    char *temporary;                 /* where it is: a file, or a directory of files */
    bool is_directory;
    bool skip_sync;
    int *files; /* open ones; -1: closed */
    char **names;
    uint64_t *found; /* bytes that each had when it was opened */
    uint64_t copied; /* blocks of convert_copy() so far */
    size_t count, capacity;
    struct arena arena;
};

/* DCP_ERR_EXISTS if something is there, but for an empty directory where one is wanted. */
dcp_status convert_output_begin(struct convert_output *output, const char *path, bool is_directory,
                                bool skip_sync, struct convert_journal *journal);
/* Adds a file of a size; name: of a directory's. *file: for convert_output_write(). */
dcp_status convert_output_add(struct convert_output *output, const char *name, uint64_t size,
                              size_t *file);
/* Any thread. */
dcp_status convert_output_write(const struct convert_output *output, size_t file, const void *bytes,
                                size_t size, uint64_t offset);
/* Makes what is written of all open files durable. */
dcp_status convert_output_sync(const struct convert_output *output);
/* Makes a file durable, and closes it. */
dcp_status convert_output_seal(struct convert_output *output, size_t file);
/* Gives it its name, unless the progress function ends the conversion, or the source is not right
 * after all: convert_source_check(). All files are sealed. */
dcp_status convert_output_commit(struct convert_output *output, const struct convert_source *source,
                                 struct progress *progress);
/* Ends it; without a commit, nothing is left but what a journal tells of. */
void convert_output_end(struct convert_output *output);

#endif
