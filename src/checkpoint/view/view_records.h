/* SPDX-License-Identifier: BSD-3-Clause */
/* Records with one checksum, as PyTorch writes them, that are read part by part, in any order: the
 * sums of the parts are joined until they are all of a record, and then compared. view_read.h has
 * what a conversion needs, which reads everything. */
#ifndef CHECKPOINT_VIEW_VIEW_RECORDS_H
#define CHECKPOINT_VIEW_VIEW_RECORDS_H

#include "checkpoint/view/view.h"
#include "checkpoint/view/view_read.h"
#include "plan/load/load_plan.h"

/* What a record is of: a chunk of an entry, or its storage. */
struct view_owner {
    const struct metadata_entry *entry;
    const struct metadata_piece *piece;
    size_t index; /* of the entry */
    size_t chunk;
    bool is_storage;
};

static inline struct view_owner view_owner_of(const struct metadata_entry *entry, size_t index,
                                              size_t chunk)
{
    return (struct view_owner){entry, &entry->pieces[chunk], index, chunk, false};
}

/* Elements of it that have been read. */
struct view_span {
    int64_t from;
    int64_t end;
    struct shard_part_sum sum;
};

/* Whether the sum of so many elements of a record is to be taken; that it is a part of a record is
 * known to the caller. */
bool view_is_joined(const dcp_checkpoint *checkpoint, dcp_verification verification,
                    struct view_owner owner, int64_t count);
/* Compares a record when it is complete, DCP_ERR_CHECKSUM; then it may be read anew. A span whose
 * sum is not known counts for nothing. Any thread. */
dcp_status view_take_span(dcp_checkpoint *checkpoint, struct view_owner owner,
                          const struct view_span *span);

dcp_status view_records_new(struct view_records **records);

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
static inline struct view_owner view_owner_of_storage(const struct view_storage *storage,
                                                      size_t index)
{
    return (struct view_owner){&storage->entry, &storage->piece, index, 0, true};
}

#endif
