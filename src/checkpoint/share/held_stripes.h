/* SPDX-License-Identifier: BSD-3-Clause */
/* Stripes that a rank has read for others, until they are sent: of one large piece, or of all small
 * pieces in a lot, of which each set of ranks gets a part in turn. */
#ifndef CHECKPOINT_SHARE_HELD_STRIPES_H
#define CHECKPOINT_SHARE_HELD_STRIPES_H

#include "plan/share/load_share.h"

/* At a time: more than a lot has of pieces that are striped. */
enum { HELD_STRIPES_MOST = 64 };

/* All zero: none. */
struct held_stripes {
    struct held_stripe {
        const struct metadata_piece *piece;
        struct share_stripe stripe;
        size_t place; /* in bytes */
    } stripes[HELD_STRIPES_MOST];
    size_t count;
    size_t last;  /* that was copied from */
    uint64_t lot; /* of all of them, as the file */
    size_t size;  /* of all of them */
    unsigned char *bytes;
    size_t capacity;
};

/* The stripe that has a position of a piece, until the next one gets its room; NULL: none has. */
const struct held_stripe *held_stripes_find(struct held_stripes *held,
                                            const struct metadata_piece *piece, int64_t position);
/* Makes room for a stripe, of so many bytes, at held->bytes + held->size: beside those of the same
 * lot, or in their place. */
dcp_status held_stripes_make_room(struct held_stripes *held, const struct metadata_piece *piece,
                                  uint64_t lot, size_t size);
/* That has been read to there. */
void held_stripes_add(struct held_stripes *held, const struct metadata_piece *piece,
                      struct share_stripe stripe, size_t size);
void held_stripes_free(struct held_stripes *held);

#endif
