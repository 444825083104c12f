/* SPDX-License-Identifier: BSD-3-Clause */
/* What is stored, as one rank of a load knows it: decoded from its bytes, or known from a load
 * before, by a cache, and brought up to date. */
#ifndef CHECKPOINT_LOAD_LOAD_STORED_H
#define CHECKPOINT_LOAD_LOAD_STORED_H

#include "checkpoint/load/load_plan_cache.h"
#include "storage/shard/shard_reader.h"

/* Stays where it is: the reader refers to it. */
struct load_stored {
    struct metadata metadata;
    struct shard_reader *reader;
    struct storage_directory directory; /* that was read; the reader's when there is one */

    dcp_load_plan_cache *cache; /* NULL: none, or none for such loads */
    uint64_t number;            /* of this load */
    uint64_t since;             /* the load that the metadata, as it is, is from */
    bool by_changes;            /* ranks were told what has changed */
    bool known;                 /* and this one knew the rest */
    bool taken;                 /* out of the cache, which is without metadata now */
    bool moved;                 /* some piece lies elsewhere than before */
    struct buffer raw;          /* at the coordinator: what the metadata is decoded from */
};

void load_stored_init(struct load_stored *stored, dcp_load_plan_cache *cache);
void load_stored_free(struct load_stored *stored);

/* At the coordinator, where the cache serves: what has changed since the load that it knows; no
 * changes if nothing has. *found: that is all there is to tell, and the metadata is up to date.
 * Else, if there is a reader, metadata and reader are decoded from the raw bytes. */
dcp_status load_stored_find_changes(struct load_stored *stored, const dcp_storage *storage,
                                    const char *path, bool *found, struct buffer *changes);
/* On another rank that knows the same: brings that up to date. */
dcp_status load_stored_apply(struct load_stored *stored, const void *changes, size_t size);
/* The reader, of metadata that is up to date. */
dcp_status load_stored_open(struct load_stored *stored, const dcp_storage *storage,
                            const char *path);

#endif
