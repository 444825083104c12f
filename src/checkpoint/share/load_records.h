/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the parts of records that ranks read, for themselves or for others, if these are together
 * all of a record: see plan/share/record_parts.h. */
#ifndef CHECKPOINT_SHARE_LOAD_RECORDS_H
#define CHECKPOINT_SHARE_LOAD_RECORDS_H

#include "checkpoint/share/load_sharing.h"
#include "plan/share/record_parts.h"

struct load_records {
    const struct load_sharing *sharing;
    bool any; /* some record is checked so; the same on all ranks */
    struct own_part {
        size_t place; /* of an item in the plan, or of a run in the share */
        bool joined;  /* others read the rest of its record */
        struct shard_part_sum sum;
    } * own; /* what this rank reads of records: items, then runs, each in their order */
    size_t own_count;
    size_t item_count;            /* of these, items */
    struct shard_part_sum **sums; /* by item of the plan, for load_read_tensors(); NULL: none */
    struct record_part *joined;   /* at the coordinator: of all ranks, by record and place */
    size_t joined_count;
};

/* Of a part's sum in a message. */
enum { LOAD_RECORDS_SUM_SIZE = 32 };

/* Agrees on the records that are checked so. Collective, with the same result on all ranks. plan:
 * what this rank reads for itself. Under a memory limit these are only records that ranks read for
 * each other, as the coordinator's memory for others depends on all ranks. Free in either case. */
dcp_status load_records_agree(const struct load_sharing *sharing, const struct load_share *share,
                              const struct load_plan *plan, struct load_records *records);
/* The place for the sum of a run, if it is that of such a part; else NULL. */
struct shard_part_sum *load_records_sum(const struct load_records *records, size_t run);
/* After all parts have been read. Collective; every rank passes its status. DCP_ERR_CHECKSUM, at
 * the coordinator alone, so that ranks still have to agree, if a record does not match its
 * checksum. */
dcp_status load_records_compare(const struct load_records *records, dcp_status mine);
/* The most memory that this takes on any rank, under a memory limit. */
uint64_t load_records_memory(const struct load_sharing *sharing, const struct load_share *share);
void load_records_free(struct load_records *records);

#endif
