/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage reader as a user would write it: all files of a directory in memory, under an id of its
 * own. */
#ifndef TESTS_MEMORY_READER_H
#define TESTS_MEMORY_READER_H

#include <stdbool.h>

#include "dcp.h"

struct memory_file {
    char name[128];
    unsigned char *bytes;
    size_t size;
};

struct memory_reader {
    dcp_storage_reader table; /* its context is this struct */
    char id[128];             /* what it takes */
    struct memory_file files[16];
    int count;
    int reads;  /* how often an item has been handed over */
    int damage; /* byte of each item's stream to flip; -1: none */
    const dcp_checkpoint *metadata;
};

/* Takes all files of a directory. */
void memory_reader_init(struct memory_reader *reader, const char *directory, const char *id);
/* And all of another one, with a prefix to their names. */
void memory_reader_add(struct memory_reader *reader, const char *directory, const char *prefix);
/* NULL: there is none. */
struct memory_file *memory_reader_find(struct memory_reader *reader, const char *name);
void memory_reader_free(struct memory_reader *reader);

#endif
