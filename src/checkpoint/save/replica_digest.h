/* SPDX-License-Identifier: BSD-3-Clause */
/* Digests of a chunk or an object: equal on ranks with equal contents, whatever the layout in
 * memory. */
#ifndef CHECKPOINT_SAVE_REPLICA_DIGEST_H
#define CHECKPOINT_SAVE_REPLICA_DIGEST_H

#include "base/checksum.h"
#include "storage/shard/shard_writer.h"

/* What to digest. */
struct replica_sample {
    bool all;
    uint32_t part; /* below DCP_REPLICA_PARTS; differs from save to save */
};

/* A running hash, and a buffer for elements that are not row-major in host memory. */
struct replica_digester {
    struct xxh3_stream *stream;
    unsigned char *space;
};

/* Segments of a tensor's elements, each with a digest of its own. */
enum { REPLICA_SEGMENTS_MAX = 1024 };

/* The same number for replicas on all ranks. 0: the item has no elements. Odd: it has at least one
 * block for each part of a sample, so that sampling it costs little beside saving it. */
uint64_t replica_key(const struct write_item *item);

dcp_status replica_digester_init(struct replica_digester *digester);
void replica_digester_free(struct replica_digester *digester);
dcp_status replica_digest(struct replica_digester *digester, const struct shard_source *source,
                          uint64_t key, struct replica_sample sample, uint64_t *digest);
/* The number of elements of a tensor, or bytes of an object; and how many of them each segment but
 * the last has. */
int64_t replica_elements(const struct write_item *item);
int64_t replica_segment_elements(int64_t elements);
/* Digests of all segments, at most REPLICA_SEGMENTS_MAX. */
dcp_status replica_digest_segments(struct replica_digester *digester,
                                   const struct shard_source *source, uint64_t *digests,
                                   size_t *count);

#endif
