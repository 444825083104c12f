/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/share/held_stripes.h"

#include "base/error.h"
#include "base/memory.h"

const struct held_stripe *held_stripes_find(struct held_stripes *held,
                                            const struct metadata_piece *piece, int64_t position)
{
    for (size_t i = 0; i < held->count; i++) {
        size_t at = (held->last + i) % held->count; /* those that follow come next */
        const struct held_stripe *stripe = &held->stripes[at];
        if (stripe->piece == piece && position >= stripe->stripe.from &&
            position < stripe->stripe.end) {
            held->last = at;
            return stripe;
        }
    }
    return NULL;
}

dcp_status held_stripes_make_room(struct held_stripes *held, const struct metadata_piece *piece,
                                  uint64_t lot, size_t size)
{
    bool in_lot = lot != SHARE_NO_LOT;
    bool beside = in_lot && held->count > 0 && held->count < HELD_STRIPES_MOST &&
                  lot == held->lot && piece->file == held->stripes[0].piece->file &&
                  size <= held->capacity - held->size;
    if (!beside)
        held->count = held->last = held->size = 0;
    held->lot = lot;
    size_t wanted = in_lot ? (size_t)SHARE_STRIPE : size;
    if (beside || wanted <= held->capacity)
        return DCP_OK;
    memory_release(held->bytes);
    held->bytes = memory_allocate(wanted);
    held->capacity = held->bytes ? wanted : 0;
    return held->bytes ? DCP_OK : error_no_memory(wanted, "stripes to read for other ranks");
}

void held_stripes_add(struct held_stripes *held, const struct metadata_piece *piece,
                      struct share_stripe stripe, size_t size)
{
    held->stripes[held->count++] = (struct held_stripe){piece, stripe, held->size};
    held->size += size;
}

void held_stripes_free(struct held_stripes *held)
{
    memory_release(held->bytes);
}
