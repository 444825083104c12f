/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/share/share_ahead.h"

#include "state/box.h"

/* What is read for a run. Of a piece in a lot that is striped, all runs together are the stripe. */
static bool add_run(const struct share_ahead *ahead, uint32_t at, struct batch_plan *plan)
{
    const struct metadata *metadata = ahead->sharing->metadata;
    const struct share_run *run = &ahead->share->runs[at];
    const struct share_region *region = &ahead->share->regions[run->region];
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    const struct box piece = share_piece_box(entry, region->piece);
    int64_t from = box_position(piece, region->box, run->from);
    int64_t end = box_position(piece, region->box, run->end - 1) + 1;
    return batch_plan_add_span(plan, entry, &entry->pieces[region->piece], from, end);
}

/* Begins with a run and as many of those after it as fit. *until: the next one. */
static struct read_batch *begin(const struct share_ahead *ahead, uint32_t first, uint32_t *until)
{
    const struct load_share *share = ahead->share;
    struct batch_plan plan = {0};
    uint32_t at = first;
    while (at < share->run_count &&
           share_read_together(share, ahead->sharing->metadata, &share->runs[first],
                               &share->runs[at]) &&
           add_run(ahead, at, &plan))
        at = share->next[at];
    if (at == first && at < share->run_count)
        at = share->next[at]; /* it is read by itself */
    *until = at;
    return read_batch_begin(ahead->sharing->reader, &plan, ahead->sharing->options->verification);
}

void share_ahead_move(struct share_ahead *ahead, const struct share_run *run)
{
    uint32_t at = (uint32_t)(run - ahead->share->runs);
    if (at < ahead->until)
        return;
    read_batch_end(ahead->batch);
    ahead->batch = ahead->next;
    ahead->until = ahead->after;
    if (at >= ahead->until) {
        read_batch_end(ahead->batch);
        ahead->batch = begin(ahead, at, &ahead->until);
    }
    ahead->next = begin(ahead, ahead->until, &ahead->after);
}

void share_ahead_end(struct share_ahead *ahead)
{
    read_batch_end(ahead->batch);
    read_batch_end(ahead->next);
    ahead->batch = ahead->next = NULL;
}
