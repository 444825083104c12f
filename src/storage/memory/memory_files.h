/* SPDX-License-Identifier: BSD-3-Clause */
/* What a storage in memory keeps: directories by id, and in them files by name. A file lives as
 * long as it has its name, is open or is mapped. */
#ifndef STORAGE_MEMORY_MEMORY_FILES_H
#define STORAGE_MEMORY_MEMORY_FILES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/storage.h"

struct memory_file {
    char *name;
    pthread_rwlock_t lock; /* taken for writing while the bytes move to a larger block */
    unsigned char *bytes;
    size_t capacity;
    size_t size;  /* known when it is sealed */
    size_t users; /* open handles, mappings, and the directory that names it; guarded by the
                     storage's mutex, as what follows */
    struct memory_file *next;
    struct memory_directory *directory; /* that names it when it is sealed */
};

struct memory_directory {
    char *id;
    struct memory_file *files; /* that are sealed */
    size_t users;              /* open handles */
    bool made;                 /* exists without files */
    struct memory_directory *next;
};

struct memory_storage {
    dcp_storage table; /* whose context is this */
    pthread_mutex_t mutex;
    struct memory_directory *directories;
};

/* Free and find; the mutex is held. */
struct memory_directory *memory_find_directory(const struct memory_storage *storage,
                                               const char *id);
struct memory_file *memory_find_file(const struct memory_directory *directory, const char *name);
/* The directory that a name with slashes is in: "a/b" of "c" is "b" of "c/a". *name becomes what is
 * left of it. NULL: there is none. */
struct memory_directory *memory_find_holder(const struct memory_storage *storage,
                                            struct memory_directory *directory, const char **name);
/* A file with one user, without bytes; not in any directory yet. NULL: no memory. */
struct memory_file *memory_file_new(const char *name, size_t capacity);
/* One user less; the last one frees. */
void memory_file_release(struct memory_file *file);
/* Takes the file out of its directory, and with it a user. */
void memory_file_unlink(struct memory_file *file);
/* Makes a directory without files, which does not exist yet; it takes ownership of id. NULL: no
 * memory. The mutex is held. */
struct memory_directory *memory_add_directory(struct memory_storage *storage, char *id);

/* The parts of the table that are about directories. */
dcp_status memory_open_directory(void *context, const char *id, uint32_t flags, void **opened,
                                 bool *created);
void memory_close_directory(void *context, void *opened);
dcp_status memory_remove_directory(void *context, void *opened);
dcp_status memory_list_directory(void *context, void *opened, dcp_storage_visitor visitor,
                                 void *visitor_context);

/* Makes room for this many bytes; other threads may be writing. */
dcp_status memory_file_reserve(struct memory_file *file, size_t size);

#endif
