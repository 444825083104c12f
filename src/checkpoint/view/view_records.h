/* SPDX-License-Identifier: BSD-3-Clause */
/* Records with one checksum, as PyTorch writes them, that are read part by part, in any order: the
 * sums of the parts are joined until they are all of a record, and then compared. For who reads
 * everything, as a conversion does. view_read.h has how that begins and ends. */
#ifndef CHECKPOINT_VIEW_VIEW_RECORDS_H
#define CHECKPOINT_VIEW_VIEW_RECORDS_H

#include "checkpoint/view/view.h"
#include "checkpoint/view/view_read.h"
#include "plan/load/load_plan.h"

/* The parts of records that a plan's items are. */
struct view_parts {
    struct view_part *parts;
    size_t count;
    struct shard_part_sum **sums; /* by item of the plan: NULL, or where its sum goes; NULL: there
                                     are no parts */
};

/* Free in either case. */
dcp_status view_parts_list(const dcp_checkpoint *checkpoint, const struct load_plan *plan,
                           dcp_verification verification, struct view_parts *parts);
/* They have been read: DCP_ERR_CHECKSUM if one completes a record that is not right. Any thread. */
dcp_status view_parts_take(dcp_checkpoint *checkpoint, const struct view_parts *parts);
void view_parts_free(struct view_parts *parts);

/* The storage that a tensor of a .pt file is a view of, as a tensor of one dimension. */
struct view_storage {
    int64_t elements;
    struct tensor_view view;
    struct metadata_piece piece;
    struct metadata_entry entry;
};

/* It must stay where it is. */
void view_storage_init(struct view_storage *storage, const struct metadata_entry *entry);
/* Where the sum of its elements from first to first + count - 1 goes: NULL if it is not wanted. */
struct shard_part_sum *view_storage_sum(const dcp_checkpoint *checkpoint,
                                        const struct view_storage *storage, int64_t count,
                                        dcp_verification verification, struct shard_part_sum *sum);
/* As view_parts_take(). entry: its number. */
dcp_status view_storage_take(dcp_checkpoint *checkpoint, size_t entry,
                             const struct view_storage *storage, int64_t first, int64_t count,
                             const struct shard_part_sum *sum);

#endif
