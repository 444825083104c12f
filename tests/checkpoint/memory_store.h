/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage writer as a user would write it: keys and bytes in memory, which all ranks share. */
#ifndef TESTS_MEMORY_STORE_H
#define TESTS_MEMORY_STORE_H

#include <pthread.h>

#include "checkpoint/ranks.h"

enum { ROWS = 12, COLUMNS = 5, BLOBS = 64 };

struct blob {
    char key[128];
    unsigned char *bytes;
    size_t size;
};

struct store {
    dcp_storage_writer writer;
    dcp_save_options options;
    const char *directory; /* the tests' own */
    pthread_mutex_t mutex;
    struct blob blobs[BLOBS];
    size_t count;
    int resets, set_ups, abandoned, resolved;
    size_t results;
    bool mischief; /* the last rank differs */
};

void store_init(struct store *store);
void store_clear(struct store *store);
/* A new blob, for store_append(). */
struct blob *store_blob(struct store *store, const char *key);
/* A sink, for a blob. */
dcp_status store_append(void *context, const void *bytes, size_t size);
void store_count(struct store *store, int *count);

/* Hooks, for a context that is a store. */
bool store_takes(void *context, const char *checkpoint_id);
dcp_status store_set_up(void *context, dcp_saving *saving, bool is_coordinator);
/* Under keys that begin with what storage data calls the prefix. */
dcp_status store_write(void *context, dcp_saving *saving, const dcp_save_plan *plan);
dcp_status store_finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                        const dcp_write_result *results, size_t result_count);
void store_abandon(void *context, dcp_saving *saving);

/* Saves a matrix, "w", by rows on two ranks, and "step", 7; its context is a store. */
dcp_status store_save(struct rank *self);

#endif
