/* SPDX-License-Identifier: BSD-3-Clause */
/* Records with one checksum, as PyTorch writes them, that are read part by part, in any order: the
 * sums of the parts are joined until they are all of a record, and then compared. A record is the
 * tensor of a stream, or a storage of a .pt file, which tensors share that are views of it.
 * view_read.h has what a conversion needs, which reads everything. */
#ifndef CHECKPOINT_VIEW_VIEW_RECORDS_H
#define CHECKPOINT_VIEW_VIEW_RECORDS_H

#include <pthread.h>

#include "checkpoint/view/view.h"
#include "checkpoint/view/view_read.h"
#include "plan/load/load_plan.h"

/* A chunk of an entry. */
struct view_chunk {
    size_t entry;
    size_t chunk;
};

/* Bytes of a record that have been read. */
struct view_span {
    uint64_t from;
    uint64_t end;
    struct shard_part_sum sum;
};

struct view_record {
    uint32_t file;
    uint64_t place;          /* in the file: of the stream, or of the storage */
    struct view_chunk of;    /* one that lies in it */
    struct view_span *spans; /* in order, none of which continues another */
    size_t count;
    size_t capacity;
    bool unheld; /* more was read of it, which no checksum was compared with */
};

/* Few checkpoints have records that are read in parts: they are listed from the first part on. */
struct view_records {
    bool all; /* see view_join_records() */
    pthread_mutex_t mutex;
    struct view_record *records; /* by file and place */
    size_t count;
};

/* Of all of the record that a tensor's chunk lies in. */
uint64_t view_record_bytes(const struct metadata *metadata, struct view_chunk of);
/* Whether the sum of so many bytes of a record is to be taken, which follow each other in it. */
bool view_is_joined(const dcp_checkpoint *checkpoint, dcp_verification verification,
                    struct view_chunk of, uint64_t wanted);
/* Compares a record when it is complete, DCP_ERR_CHECKSUM; then it may be read anew. The sum is
 * known. Any thread. */
dcp_status view_take_span(dcp_checkpoint *checkpoint, struct view_chunk of,
                          const struct view_span *span);
/* Bytes read so far of which a record has a checksum that nobody compared them with. */
uint64_t view_count_unheld(const dcp_checkpoint *checkpoint);
/* Whether there are more than before, which view_complete_records() is to check. Other threads may
 * have read them: then it checks more than it has to. */
bool view_has_unheld(const dcp_checkpoint *checkpoint, uint64_t before);
/* The record of a tensor with elements is to be read whole then. Any thread. */
dcp_status view_take_unheld(dcp_checkpoint *checkpoint, struct view_chunk of);

dcp_status view_records_new(struct view_records **records);

/* The parts of records that a plan's items are. */
struct view_parts {
    struct view_span *spans;      /* by item of the plan; NULL: there are no parts */
    struct shard_part_sum **sums; /* by item: NULL, or where its sum goes */
    uint64_t unheld;              /* view_count_unheld(), before */
};

/* Free in either case. */
dcp_status view_parts_list(const dcp_checkpoint *checkpoint, const struct load_plan *plan,
                           dcp_verification verification, struct view_parts *parts);
/* They have been read, as view_take_span(). */
dcp_status view_parts_take(dcp_checkpoint *checkpoint, const struct load_plan *plan,
                           const struct view_parts *parts);
void view_parts_free(struct view_parts *parts);

/* The storage that a tensor of a .pt file is a view of, as a tensor of one dimension. */
struct view_storage {
    int64_t elements;
    struct tensor_view view;
    struct metadata_piece piece;
    struct metadata_entry entry;
};

/* It must stay where it is. */
void view_storage_init(struct view_storage *storage, const struct metadata_entry *entry,
                       const struct metadata_piece *piece, dcp_dtype dtype);

#endif
