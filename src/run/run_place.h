/* SPDX-License-Identifier: BSD-3-Clause */
/* The directory of a run and what is below it, over the table of its storage. Paths are relative to
 * the run; "" is the run itself. */
#ifndef RUN_RUN_PLACE_H
#define RUN_RUN_PLACE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "dcp/storage.h"

struct run_place {
    const dcp_storage *storage; /* as the caller gave it; NULL: the file system */
    const dcp_storage *table;   /* the one that takes the id */
    const char *root;           /* the id */
};

/* Names in a folder, sorted. */
struct run_names {
    const char **names;
    size_t count;
    size_t capacity;
    dcp_status status; /* of the listing, with its message, when nothing was found */
    struct arena arena;
};

void run_place_init(struct run_place *place, const dcp_storage *storage, const char *root);
/* Whether a failure says nothing of what was looked at, and ends everything. */
bool run_place_gives_up(dcp_status status);
/* The id of a path; NULL: no memory, said. */
char *run_place_id(const struct run_place *place, const char *path);

/* *found: there is such a folder; where folders are only parts of names, one that is not empty. Of
 * a file and of what cannot be read it is false. The names are to be freed also after a failure. */
dcp_status run_place_list(const struct run_place *place, const char *path, struct run_names *names,
                          bool *found);
void run_names_free(struct run_names *names);
bool run_names_has(const struct run_names *names, const char *name);

/* An open file, for bounded reads. */
struct run_file {
    const struct run_place *place;
    char *id; /* of its directory */
    void *directory;
    dcp_storage_file file;
};

/* DCP_ERR_NOT_FOUND and others as the storage says. */
dcp_status run_file_open(struct run_file *file, const struct run_place *place, const char *path);
/* Of a symbolic link it is a failure. */
dcp_status run_file_open_plain(struct run_file *file, const struct run_place *place,
                               const char *path);
dcp_status run_file_read(struct run_file *file, void *bytes, size_t size, uint64_t offset);
void run_file_close(struct run_file *file);

/* *found: there is a file that can be opened, of that size. */
dcp_status run_place_size(const struct run_place *place, const char *path, uint64_t *size,
                          bool *found);
/* Likewise; a symbolic link is none. */
dcp_status run_place_size_plain(const struct run_place *place, const char *path, uint64_t *size,
                                bool *found);
/* Replaces the buffer's contents by the file's; *found is false if there is none, or one of more
 * than limit bytes. */
dcp_status run_place_read(const struct run_place *place, const char *path, uint64_t limit,
                          struct buffer *bytes, bool *found);

/* A directory of the storage; id stays until it is closed, and is changed by no one. */
dcp_status run_place_open(const struct run_place *place, char *id, uint32_t flags,
                          void **directory);
/* Keeps the thread's error. */
void run_place_close(const struct run_place *place, void *directory);

/* ---- writing; folder: relative to the run, which is made ---- */

/* A small file appears durably, at once and whole. */
dcp_status run_place_publish(const struct run_place *place, const char *folder, const char *name,
                             const void *bytes, size_t size, dcp_storage_condition condition);
/* The run's own directory is made. */
dcp_status run_place_make(const struct run_place *place);
/* DCP_ERR_NOT_FOUND if there is none. */
dcp_status run_place_remove(const struct run_place *place, const char *folder, const char *name);
/* A name in the run comes to mean another of its names, at once: a symbolic link, or, elsewhere
 * than in the file system, a file with the name. */
dcp_status run_place_mark(const struct run_place *place, const char *name, const char *target);
/* Removes a folder that is empty; else nothing. */
void run_place_remove_folder(const struct run_place *place, const char *folder);
/* An absolute id; NULL: no memory, or the storage's failure, said. */
char *run_place_absolute(const struct run_place *place);

enum { RUN_LINK_MAX = 4096 };
/* Whether a path is a symbolic link, and what it says. In the file system alone. */
bool run_place_is_link(const struct run_place *place, const char *path, char text[RUN_LINK_MAX]);
/* Whether two paths lead to the same file or folder, links followed. In the file system alone. */
bool run_place_is_same(const struct run_place *place, const char *path, const char *other);
/* When it was changed, in seconds; 0: not known. In the file system alone. */
int64_t run_place_time(const struct run_place *place, const char *path);

#endif
