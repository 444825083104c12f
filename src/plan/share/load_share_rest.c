/* SPDX-License-Identifier: BSD-3-Clause */
/* The rest of a plan, when other ranks read some of its regions. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/share/load_share.h"

enum { ITEMS_FIRST = 64 };

struct resting {
    const struct load_share *share;
    const struct metadata *metadata;
    uint32_t rank;
    struct load_plan *rest;
    size_t capacity;
};

/* The first region of a piece, or of a later one. */
static size_t find_regions(const struct load_share *share, uint32_t entry, uint32_t piece)
{
    size_t low = 0, high = share->region_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct share_region *region = &share->regions[middle];
        if (region->entry < entry || (region->entry == entry && region->piece < piece))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static dcp_status add_item(struct resting *resting, struct read_item item)
{
    struct load_plan *rest = resting->rest;
    if (rest->count == resting->capacity) {
        size_t capacity = resting->capacity != 0 ? 2 * resting->capacity : ITEMS_FIRST;
        void *grown = memory_reallocate_array(rest->items, capacity, sizeof *rest->items);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *rest->items, "the rest of a load plan");
        rest->items = grown;
        resting->capacity = capacity;
    }
    rest->items[rest->count++] = item;
    return DCP_OK;
}

static dcp_status keep_region(struct resting *resting, const struct box_storage *box,
                              struct box *region)
{
    size_t bytes = (size_t)region->ndim * sizeof(int64_t);
    int64_t *numbers = arena_allocate(&resting->rest->arena, 2 * bytes);
    if (numbers == NULL)
        return error_no_memory(2 * bytes, "the rest of a load plan");
    memcpy(numbers, box->offsets, bytes);
    memcpy(numbers + region->ndim, box->sizes, bytes);
    region->offsets = numbers;
    region->sizes = numbers + region->ndim;
    return DCP_OK;
}

/* Cuts an region out of the items from first on. */
static dcp_status cut_out(struct resting *resting, size_t first, struct box region)
{
    struct load_plan *rest = resting->rest;
    for (size_t i = rest->count; i-- > first;) {
        struct box_storage common, left;
        struct box_rest remainder;
        struct read_item item = rest->items[i];
        if (!box_intersect(item.region, region, &common))
            continue;
        rest->items[i] = rest->items[--rest->count];
        box_rest_start(&remainder, item.region, box_of(region.ndim, &common));
        while (box_rest_next(&remainder, &left)) {
            RETURN_IF_ERROR(keep_region(resting, &left, &item.region));
            RETURN_IF_ERROR(add_item(resting, item));
        }
    }
    return DCP_OK;
}

static dcp_status add_rest(struct resting *resting, const struct read_item *item)
{
    const struct load_share *share = resting->share;
    size_t first = resting->rest->count;
    RETURN_IF_ERROR(add_item(resting, *item));
    if (!resting->metadata->entries[item->entry].is_tensor)
        return DCP_OK;
    for (size_t at = find_regions(share, item->entry, item->piece);
         at < share->region_count && share->regions[at].entry == item->entry &&
         share->regions[at].piece == item->piece;
         at++)
        if (load_share_wants(share, share->regions[at].set, resting->rank))
            RETURN_IF_ERROR(cut_out(resting, first, share->regions[at].box));
    return DCP_OK;
}

bool load_share_brings(const struct load_share *share, uint32_t rank, uint32_t entry)
{
    size_t at = find_regions(share, entry, 0);
    return at < share->region_count && share->regions[at].entry == entry &&
           load_share_wants(share, share->regions[at].set, rank);
}

dcp_status load_share_rest(const struct load_share *share, uint32_t rank,
                           const struct load_plan *plan, const struct metadata *metadata,
                           struct load_plan *rest)
{
    struct resting resting = {share, metadata, rank, rest, 0};
    *rest = (struct load_plan){0};
    arena_init(&rest->arena, 0);
    for (size_t i = 0; i < plan->count; i++)
        RETURN_IF_ERROR(add_rest(&resting, &plan->items[i]));
    for (size_t i = 0; i < rest->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[rest->items[i].entry];
        if (entry->is_tensor)
            rest->bytes_wanted +=
                (uint64_t)box_volume(rest->items[i].region) * dcp_dtype_size(entry->dtype);
    }
    return DCP_OK;
}
