/* SPDX-License-Identifier: BSD-3-Clause */
/* At the coordinator of a save: finds replicas, and compares their digests. */
#ifndef CHECKPOINT_SAVE_REPLICA_COMPARE_H
#define CHECKPOINT_SAVE_REPLICA_COMPARE_H

#include "group/group.h"

struct replica_holder {
    uint64_t key;
    uint64_t digest;
    uint32_t rank;
    uint32_t index; /* index of the item in the rank's plan; later, of the digest in its message */
};

/* The holders of replicas, by key and rank. */
struct replica_holders {
    struct replica_holder *holders;
    size_t count;
};

/* How many of a rank's small items, those with even keys, one sample has on average. */
enum { REPLICA_SAMPLE_SMALL = 256 };

/* Finds replicas in the keys that each rank has sent, 8 bytes for each item. sampled: only the
 * small items whose turn it is. With n small items a rank, each has its turn once in n /
 * REPLICA_SAMPLE_SMALL consecutive turns, and in time with every part of a sample. The caller frees
 * the result, also on failure. */
dcp_status replica_holders_find(struct replica_holders *shared, const struct group_messages *keys,
                                bool sampled, uint64_t turn);
void replica_holders_free(struct replica_holders *shared);
/* Appends to the request for each rank the items whose digests it should send, 4 bytes each. */
dcp_status replica_holders_ask(struct replica_holders *shared, struct buffer *questions);
/* Compares the digests, 8 bytes each, and appends the first `most` keys that differ. *differing:
 * the number of all that differ. */
dcp_status replica_holders_compare(struct replica_holders *shared,
                                   const struct group_messages *digests, size_t most,
                                   struct buffer *keys, size_t *differing);

#endif
