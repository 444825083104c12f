/* SPDX-License-Identifier: BSD-3-Clause */
/* The files that a training checkpoint is made of. They are opened when something of them is read,
 * and only so many stay open: a run of thousands of ranks has as many files. */
#ifndef CONVERT_SOURCE_FILES_H
#define CONVERT_SOURCE_FILES_H

#include <pthread.h>

#include "base/arena.h"
#include "checkpoint/view/view_read.h"
#include "dcp/checkpoint.h"

struct source_file {
    const char *path;
    dcp_checkpoint *open;         /* NULL: it is not */
    struct view_records *records; /* of which parts were read, while it is not open */
    size_t users;                 /* that have taken it */
    uint64_t used;                /* when it was taken last */
    bool was_read;                /* elements, since it was opened: it has buffers */
    size_t next_open; /* in the list of those that are open: one more than its index; 0: none */
};

struct source_files {
    struct source_file *files;
    size_t count, capacity;
    size_t first_open;             /* as next_open */
    size_t open_count, read_count; /* of those that were read */
    uint64_t clock;
    pthread_mutex_t mutex; /* guards what is open */
    struct arena *arena;   /* of paths */
    bool local_parts;      /* dcp_open_options::local_parts */
};

void source_files_init(struct source_files *files, struct arena *arena);
void source_files_free(struct source_files *files);
/* Adds DIRECTORY/NAME; name NULL: the directory itself. It is not opened yet. */
dcp_status source_files_add(struct source_files *files, const char *directory, const char *name,
                            size_t *file);
/* Opens a file, unless it is open. source_files_give() when it is not read any more. Any thread,
 * when no file is added any more. */
dcp_status source_files_take(struct source_files *files, size_t file, dcp_checkpoint **checkpoint);
void source_files_give(struct source_files *files, size_t file);
/* Likewise, after elements were read of it: of such files only a few stay open. */
void source_files_give_read(struct source_files *files, size_t file);

/* As view_complete_records(), of all files. By one thread. */
dcp_status source_files_complete(struct source_files *files);

#endif
