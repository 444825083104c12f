/* SPDX-License-Identifier: BSD-3-Clause */
/* For records with a single checksum, as PyTorch writes them, of which several ranks read parts:
 * joins the sums of the parts and compares them before the load returns. */
#ifndef CHECKPOINT_SHARE_LOAD_SUMS_H
#define CHECKPOINT_SHARE_LOAD_SUMS_H

#include "checkpoint/share/load_sharing.h"

struct load_sums {
    const struct load_sharing *sharing;
    const struct load_share *share;
    struct shard_part_sum *mine; /* of this rank's parts, in the order of its runs */
    size_t count;
    size_t used;
    bool any; /* some rank has one */
};

/* Free in either case. */
dcp_status load_sums_init(struct load_sums *sums, const struct load_sharing *sharing,
                          const struct load_share *share);
/* The most memory that it takes, up to the end of load_sums_compare(). */
uint64_t load_sums_memory(const struct load_sharing *sharing, const struct load_share *share);
void load_sums_free(struct load_sums *sums);
/* Whether a run is such a part. */
bool load_sums_expect(const struct load_sums *sums, const struct share_run *run);
/* The place for the sum of this rank's next part. */
struct shard_part_sum *load_sums_next(struct load_sums *sums);
/* After all parts have been read: DCP_ERR_CHECKSUM, on all ranks, if a record does not match its
 * checksum. Collective. */
dcp_status load_sums_compare(const struct load_sums *sums);

/* A sum in a message. */
enum { LOAD_SUM_SIZE = 32 };
void load_sum_append(struct buffer *out, const struct shard_part_sum *sum);
struct shard_part_sum load_sum_at(const unsigned char *bytes);

#endif
