/* SPDX-License-Identifier: BSD-3-Clause */
/* Stripes of pieces that ranks want in short runs. Readers are assigned as if all ranks wanted all
 * of such a piece; then its runs are divided by stripes and by the regions that are wanted. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/share/load_share_assign.h"

struct striping {
    struct load_share *share;
    const struct metadata *metadata;
    uint32_t *starts; /* of each region that was assigned, the regions in its place; and the end */
    struct share_region *regions;
    struct share_runs runs;
};

/* Stripes of a piece, as many as it takes for them to be small enough. */
struct stripes {
    const struct metadata *metadata;
    struct share_region whole;
    int64_t volume;
    uint64_t bytes;
    uint64_t count;
};

static struct stripes stripes_of(const struct metadata *metadata, const struct share_region *region)
{
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    struct stripes stripes = {.metadata = metadata, .whole = *region};
    stripes.whole.box = share_piece_box(entry, region->piece);
    stripes.volume = box_volume(stripes.whole.box);
    stripes.bytes = (uint64_t)stripes.volume * share_element_size(entry);
    stripes.count = (stripes.bytes - 1) / SHARE_STRIPE + 1;
    return stripes;
}

static int64_t start_of(const struct stripes *stripes, uint64_t index)
{
    if (index == 0 || index >= stripes->count)
        return index == 0 ? 0 : stripes->volume;
    return share_choose_cut(stripes->metadata, &stripes->whole,
                            stripes->bytes / stripes->count * index);
}

/* Behind the last element: an empty one. */
static struct share_stripe stripe_at(const struct stripes *stripes, int64_t position)
{
    uint64_t size = stripes->bytes / (uint64_t)stripes->volume;
    uint64_t index = (uint64_t)position * size / (stripes->bytes / stripes->count);
    index = index < stripes->count ? index : stripes->count;
    while (start_of(stripes, index) > position)
        index--;
    while (index < stripes->count && start_of(stripes, index + 1) <= position)
        index++;
    return (struct share_stripe){(int64_t)index, start_of(stripes, index),
                                 start_of(stripes, index + 1)};
}

struct share_stripe share_stripe_of(const struct metadata *metadata,
                                    const struct share_region *region, int64_t element)
{
    const struct stripes stripes = stripes_of(metadata, region);
    return stripe_at(&stripes, box_position(stripes.whole.box, region->box, element));
}

bool share_read_together(const struct load_share *share, const struct metadata *metadata,
                         const struct share_run *a, const struct share_run *b)
{
    const struct share_region *x = &share->regions[a->region], *y = &share->regions[b->region];
    if (!x->striped || !y->striped)
        return x->striped == y->striped;
    const struct metadata_piece *p = &metadata->entries[x->entry].pieces[x->piece];
    const struct metadata_piece *q = &metadata->entries[y->entry].pieces[y->piece];
    uint64_t lot = share_lot_of(share, metadata, x);
    if (p->file != q->file || lot != share_lot_of(share, metadata, y))
        return false;
    return lot != SHARE_NO_LOT || (p == q && share_stripe_of(metadata, x, a->from).index ==
                                                 share_stripe_of(metadata, y, b->from).index);
}

static bool is_part_of(const struct share_region *part, const struct share_region *piece)
{
    return part->entry == piece->entry && part->piece == piece->piece;
}

/* Lists the regions anew, with the parts of each striped piece in its place. */
static dcp_status replace_regions(struct striping *striping, const struct share_regions *parts)
{
    const struct load_share *share = striping->share;
    size_t count = share->region_count + parts->count, filled = 0, part = 0;
    striping->starts = memory_allocate_array(share->region_count + 1, sizeof *striping->starts);
    striping->regions = memory_allocate_array(count, sizeof *striping->regions);
    if (striping->starts == NULL || striping->regions == NULL)
        return error_no_memory(count * sizeof *striping->regions, "regions to share");
    for (size_t i = 0; i < share->region_count; i++) {
        const struct share_region *region = &share->regions[i];
        striping->starts[i] = (uint32_t)filled;
        if (!region->striped)
            striping->regions[filled++] = *region;
        for (; region->striped && part < parts->count && is_part_of(&parts->regions[part], region);
             part++) {
            striping->regions[filled] = parts->regions[part];
            striping->regions[filled++].striped = true;
        }
    }
    striping->starts[share->region_count] = (uint32_t)filled;
    return DCP_OK;
}

/* Divides the stripes that begin in what one rank reads of a piece. */
static dcp_status divide_run(struct striping *striping, const struct share_run *run)
{
    const struct share_region *whole = &striping->share->regions[run->region];
    const struct stripes stripes = stripes_of(striping->metadata, whole);
    struct share_stripe stripe = stripe_at(&stripes, run->from);
    if (stripe.from < run->from)
        stripe = stripe_at(&stripes, stripe.end);
    for (; stripe.from < run->end; stripe = stripe_at(&stripes, stripe.end)) {
        for (uint32_t i = striping->starts[run->region]; i < striping->starts[run->region + 1];
             i++) {
            struct box box = striping->regions[i].box;
            struct share_run part = {i, run->reader,
                                     box_elements_before(whole->box, box, stripe.from),
                                     box_elements_before(whole->box, box, stripe.end)};
            if (part.from < part.end)
                RETURN_IF_ERROR(share_runs_append(&striping->runs, part));
        }
    }
    return DCP_OK;
}

static dcp_status divide_runs(struct striping *striping)
{
    const struct load_share *share = striping->share;
    for (size_t i = 0; i < share->run_count; i++) {
        struct share_run run = share->runs[i];
        if (share->regions[run.region].striped) {
            RETURN_IF_ERROR(divide_run(striping, &run));
            continue;
        }
        run.region = striping->starts[run.region];
        RETURN_IF_ERROR(share_runs_append(&striping->runs, run));
    }
    return DCP_OK;
}

dcp_status load_share_stripe(struct load_share *share, const struct metadata *metadata,
                             const struct share_regions *parts)
{
    struct striping striping = {.share = share, .metadata = metadata};
    if (parts->count == 0)
        return DCP_OK;
    dcp_status status = replace_regions(&striping, parts);
    if (status == DCP_OK)
        status = divide_runs(&striping);
    if (status == DCP_OK) {
        memory_release(share->regions);
        share->regions = striping.regions;
        share->region_count = striping.starts[share->region_count];
        share_runs_hand_over(&striping.runs, share);
    } else {
        memory_release(striping.regions);
        memory_release(striping.runs.runs);
    }
    memory_release(striping.starts);
    return status;
}
