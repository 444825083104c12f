/* SPDX-License-Identifier: BSD-3-Clause */
/* How the bytes read of a piece are checked, each once: by its record's CRC-32 if the whole
 * record is in memory; else by the block sums of the footer, if there is one; else by the CRC if
 * the whole record is read, or if reading the rest costs little. */
#ifndef STORAGE_SHARD_PIECE_CHECK_H
#define STORAGE_SHARD_PIECE_CHECK_H

#include "dcp/types.h"
#include "state/metadata.h"
#include "storage/shard/shard_request.h"
#include "storage/shard/stored_item.h"

/* How much of a piece is read: all of it, in order; a region; or only some of a region. */
enum piece_extent { EXTENT_WHOLE, EXTENT_REGION, EXTENT_PART };

/* What of a piece is read now. */
struct piece_reading {
    struct box region;
    enum piece_extent extent;         /* of all parts together, if there are some */
    const struct read_window *window; /* NULL, or one that may hold the piece */
    const struct shard_range *next;   /* NULL, or what is read after that */
    struct shard_parts *parts;        /* NULL, or the region is one of these */
    size_t part;
    struct shard_part_sum *sum; /* NULL, or of elements from to end - 1 of the whole piece */
    int64_t from;
    int64_t end;
};

struct piece_check {
    bool held;                    /* what was read was right, or will be before it is handed out */
    bool bare;                    /* there is no checksum for it */
    uint64_t before, before_size; /* of the record: bytes that are read only for its checksum */
    uint64_t after, after_size;
};

/* The positions in the view refer to the item. Both may be changed: a small record is read into
 * memory. */
dcp_status piece_check_arrange(struct piece_check *check, struct stored_item *item,
                               struct tensor_view *view, const struct piece_reading *reading,
                               dcp_verification verification);
/* In front of and behind what is read. */
dcp_status piece_check_begin(const struct piece_check *check, const struct stored_item *item);
dcp_status piece_check_end(const struct piece_check *check, const struct stored_item *item);
/* So many stored bytes of elements were read; after the item's end. */
void piece_check_count(const struct piece_check *check, const struct stored_item *item,
                       uint64_t bytes, struct shard_tally *tally);

#endif
