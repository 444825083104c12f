/* SPDX-License-Identifier: BSD-3-Clause */
/* The metadata of a load on one rank: decoded from its bytes, or taken from a cache and updated. */
#ifndef CHECKPOINT_LOAD_LOAD_STORED_H
#define CHECKPOINT_LOAD_LOAD_STORED_H

#include "checkpoint/load/load_plan_cache.h"
#include "storage/shard/shard_reader.h"

/* Must not move: the reader refers to it. */
struct load_stored {
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;             /* of what has no .metadata */
    struct storage_directory directory; /* that was read; the reader's when there is one */

    dcp_load_plan_cache *cache; /* NULL: none, or none for such loads */
    uint64_t number;            /* of this load */
    uint64_t since;             /* number of the load that the metadata is from */
    bool by_changes;            /* only changes were sent to ranks */
    bool known;                 /* this rank had the rest */
    bool taken;                 /* taken out of the cache, which has no metadata now */
    bool moved;                 /* some piece has another place than before */
    struct buffer raw;          /* at the coordinator: the bytes of the metadata */
    const void *compact;        /* in these, until they are sent; NULL: no compact form */
    size_t compact_size;
};

void load_stored_init(struct load_stored *stored, dcp_load_plan_cache *cache);
void load_stored_free(struct load_stored *stored);

/* At the coordinator, if the cache can be used: finds the changes since the cached load; empty if
 * there are none. *found: sending the changes is enough, and the metadata is up to date. Otherwise,
 * if there is a reader, metadata and reader are decoded from the raw bytes. */
dcp_status load_stored_find_changes(struct load_stored *stored, const dcp_storage *storage,
                                    const char *path, bool *found, struct buffer *changes);
/* On another rank with the same metadata: applies the changes. */
dcp_status load_stored_apply(struct load_stored *stored, const void *changes, size_t size);
/* Opens the reader on up-to-date metadata. */
dcp_status load_stored_open(struct load_stored *stored, const dcp_storage *storage,
                            const char *path);

#endif
