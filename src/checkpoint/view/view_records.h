/* SPDX-License-Identifier: BSD-3-Clause */
/* Records with one checksum, as PyTorch writes them, that are read part by part, in any order: the
 * sums of the parts are joined until they are all of a record, and then compared. For who reads
 * everything, as a conversion does. view_read.h has how that begins and ends. */
#ifndef CHECKPOINT_VIEW_VIEW_RECORDS_H
#define CHECKPOINT_VIEW_VIEW_RECORDS_H

#include "checkpoint/view/view.h"
#include "checkpoint/view/view_read.h"
#include "plan/load/load_plan.h"

/* What a record is of. */
struct view_owner {
    const struct metadata_entry *entry;
    const struct metadata_piece *piece;
};

/* Elements of it that have been read. */
struct view_span {
    int64_t from;
    int64_t end;
    struct shard_part_sum sum;
};

/* Whether parts of a record are joined; that it is one is known to the caller. */
bool view_is_joined(const dcp_checkpoint *checkpoint, dcp_verification verification,
                    struct view_owner owner);
/* The number of a piece's record, and of that of an entry's storage. */
size_t view_record_of(const struct view_records *records, size_t entry, size_t piece);
size_t view_record_of_storage(const struct view_records *records, size_t entry);
/* Compares a record when it is complete, DCP_ERR_CHECKSUM; then it may be read anew. A span whose
 * sum is not known counts for nothing. Any thread. */
dcp_status view_take_span(dcp_checkpoint *checkpoint, size_t number, struct view_owner owner,
                          const struct view_span *span);

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
/* They have been read, as view_take_span(). */
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
#endif
