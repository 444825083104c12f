/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to merges: the data that their steps pass on. Each step is a file.
 *
 *   runs of holders -> entries with holders                save_holders.c
 *   entries -> pieces (one per distinct box, or object)    save_pieces.c
 *   pieces -> pieces that one rank writes                  save_replicas.c, save_slice.c
 *   pieces -> metadata, and orders with files and offsets  save_metadata.c, save_orders.c,
 *                                                          save_layout.c
 *
 * Plans of thousands of ranks have millions of items: steps walk arrays, keep them small, and
 * allocate once. */
#ifndef PLAN_SAVE_SAVE_MERGE_H
#define PLAN_SAVE_SAVE_MERGE_H

#include "plan/save/joint_plan.h"
#include "plan/save/save_plan.h"

/* A box or an object of a rank's plan. */
struct held_item {
    const int64_t *offsets; /* in the metadata's arena; objects: nothing there */
    const int64_t *sizes;
    uint32_t rank;
    uint32_t index; /* in the rank's plan */
};

/* All that ranks hold under one name. */
struct merge_entry {
    const struct joint_entry *joint;
    struct held_item *held; /* by rank and item; after save_pieces.c by box, rank and item */
    size_t held_count;
};

/* A distinct box of a tensor, or an object, with the ranks that hold it; later: with the one that
 * writes it. */
struct merge_piece {
    const int64_t *offsets; /* objects: NULL */
    const int64_t *sizes;
    const struct held_item *holders; /* by rank; when the writer is chosen, that one */
    uint32_t holder_count;
    uint32_t entry;
    uint64_t data_offset; /* of the data in the stream; 0 for objects */
    uint64_t length;      /* of the stream; objects: room for it */
    size_t first_slice;   /* in merge.slices */
    uint32_t slice_count; /* 0: written whole */
    bool is_part;         /* not the whole box of the rank that writes it */
};

struct merge {
    uint32_t rank_count;
    struct save_plan_options options;
    struct metadata *metadata; /* its arena has the numbers of all boxes */
    struct metadata unwanted;  /* in place of metadata that nobody wants */
    size_t item_count;         /* of all ranks */

    struct merge_entry *entries;
    size_t entry_count;
    struct held_item *held;

    struct merge_piece *pieces; /* by entry, then box; sliced ones are replaced by their slices */
    size_t piece_count;
    uint64_t *loads; /* bytes that each rank writes */
    struct merge_piece *slices;
    size_t slice_count;
    size_t slice_capacity;

    uint64_t total_length; /* of all streams so far, with their padding */
    struct {
        dcp_dtype dtype; /* DCP_DTYPE_NONE: nothing yet */
        int32_t ndim;
        int64_t sizes[DCP_MAX_DIMS];
        uint64_t data_offset;
        uint64_t length;
    } last_layout;
};

/* Streams of data from this size on begin so that the data is at a multiple of SAVE_PAGE in the
 * file; others at a multiple of SAVE_ALIGNMENT. */
enum { SAVE_ALIGNMENT = 64, SAVE_PAGE = 4096, SAVE_PAGED_SIZE = 64 * 1024 };
/* An object may grow by this and an eighth of its size before it needs another plan. */
enum { SAVE_OBJECT_ROOM = 128 };
/* Replicas smaller than the first value are written whole; slices have at least the second. */
enum { SAVE_SLICED_SIZE = 1024 * 1024, SAVE_SLICE_MIN = 256 * 1024 };

dcp_status merge_expand(struct merge *merge, const struct joint_plan *joint);
dcp_status merge_find_pieces(struct merge *merge);
dcp_status merge_choose_writers(struct merge *merge);
/* Makes the metadata without files, and without the files and offsets of its pieces, which are
 * numbered like merge.pieces. */
dcp_status merge_make_metadata(const struct merge *merge, struct metadata_piece **pieces);

/* Divides a piece among its holders and counts the bytes to their loads. shares: room for as many
 * as there are holders. */
struct slice_share;
dcp_status merge_slice(struct merge *merge, struct merge_piece *piece, struct slice_share *shares);

struct box merge_box(const struct merge *merge, const struct merge_piece *piece);
/* How long the stream of a tensor's piece is; counts to the total. */
dcp_status merge_stream_layout(struct merge *merge, struct merge_piece *piece);
/* Adds a stream to the total length, which must fit a file offset. */
dcp_status merge_count_length(struct merge *merge, const struct merge_piece *piece);

struct slice_share {
    const struct held_item *holder;
    uint64_t load;  /* that the rank has already */
    uint64_t bytes; /* to add */
};

#endif
