/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies elements from other ranks into the chunks that want them. Objects are handed over as a
 * whole: parts in several windows are joined first. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/share/load_exchange.h"
#include "state/box.h"
#include "storage/shard/shard_reader.h"

struct share_destinations {
    const struct load_exchange *exchange;
    uint32_t *items;            /* the plan's, by entry and piece */
    unsigned char **beginnings; /* by rank: the object of which it has sent a part, or NULL */
    bool apart;                 /* chunks of tensors have no memory in common */
    uint64_t moved;
};

static int compare_items(const void *left, const void *right, void *context)
{
    const struct load_plan *plan = context;
    const struct read_item *a = &plan->items[*(const uint32_t *)left];
    const struct read_item *b = &plan->items[*(const uint32_t *)right];
    if (a->entry != b->entry)
        return a->entry < b->entry ? -1 : 1;
    return a->piece < b->piece ? -1 : a->piece > b->piece;
}

uint64_t share_destinations_memory(const struct load_exchange *exchange)
{
    const struct share_destinations *destinations;
    return sizeof *destinations + exchange->plan->count * sizeof *destinations->items +
           exchange->share->rank_count * sizeof *destinations->beginnings +
           share_places_memory(exchange);
}

dcp_status share_destinations_open(const struct load_exchange *exchange,
                                   struct share_destinations **destinations)
{
    const struct load_plan *plan = exchange->plan;
    struct share_destinations *made = *destinations = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "an index of a load plan");
    made->exchange = exchange;
    made->items = memory_allocate_array(plan->count, sizeof *made->items);
    made->beginnings =
        memory_allocate_zeroed(exchange->share->rank_count, sizeof *made->beginnings);
    if (!made->items || !made->beginnings)
        return error_no_memory(plan->count * sizeof *made->items, "an index of a load plan");
    for (size_t i = 0; i < plan->count; i++)
        made->items[i] = (uint32_t)i;
    if (plan->count > 1)
        qsort_r(made->items, plan->count, sizeof *made->items, compare_items, (void *)plan);
    return share_places_check(exchange, &made->apart);
}

/* The first item of a piece, or of a later one. */
static size_t find_items(const struct share_destinations *destinations,
                         const struct share_region *region)
{
    const struct load_plan *plan = destinations->exchange->plan;
    size_t low = 0, high = plan->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct read_item *item = &plan->items[destinations->items[middle]];
        if (item->entry < region->entry ||
            (item->entry == region->entry && item->piece < region->piece))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The item at a place of the index, if it is about the region's piece. */
static const struct read_item *item_at(const struct share_destinations *destinations,
                                       const struct share_region *region, size_t at)
{
    const struct load_plan *plan = destinations->exchange->plan;
    if (at >= plan->count)
        return NULL;
    const struct read_item *item = &plan->items[destinations->items[at]];
    return item->entry == region->entry && item->piece == region->piece ? item : NULL;
}

/* Copies a box of a region into every chunk of this rank that wants a part of it. */
static dcp_status put_box(struct share_destinations *destinations,
                          const struct share_region *region, struct box box,
                          const unsigned char *bytes)
{
    const struct load_exchange *exchange = destinations->exchange;
    const struct metadata_entry *entry = &exchange->metadata->entries[region->entry];
    const struct read_item *item;
    for (size_t at = find_items(destinations, region); (item = item_at(destinations, region, at));
         at++) {
        struct box_storage storage;
        if (!box_intersect(item->region, box, &storage))
            continue;
        const struct box common = box_of(box.ndim, &storage);
        const struct state_tensor *tensor = exchange->flat->entries[item->wanted].node->as.tensor;
        uint64_t elements = (uint64_t)box_volume(common);
        RETURN_IF_ERROR(shard_place_region(entry, box, bytes, common, tensor->dtype,
                                           &tensor->chunks[item->chunk]));
        destinations->moved += elements * dcp_dtype_size(tensor->dtype);
        RETURN_IF_ERROR(progress_add(exchange->progress, elements * dcp_dtype_size(entry->dtype)));
    }
    return DCP_OK;
}

unsigned char *share_destinations_place(const struct share_destinations *destinations,
                                        const struct share_run *run, int64_t from)
{
    const struct load_exchange *exchange = destinations->exchange;
    const struct share_region *region = &exchange->share->regions[run->region];
    const struct read_item *item, *only = NULL;
    struct box_storage common;
    if (!destinations->apart)
        return NULL;
    for (size_t at = find_items(destinations, region); (item = item_at(destinations, region, at));
         at++) {
        if (!box_intersect(item->region, region->box, &common))
            continue;
        if (only)
            return NULL;
        only = item;
    }
    return only ? share_place_of(exchange, only, region, from) : NULL;
}

dcp_status share_destinations_count(struct share_destinations *destinations,
                                    const struct share_segment *segment)
{
    const struct load_exchange *exchange = destinations->exchange;
    const struct share_region *region = &exchange->share->regions[segment->run->region];
    uint64_t bytes = (uint64_t)(segment->end - segment->from) *
                     share_element_size(&exchange->metadata->entries[region->entry]);
    destinations->moved += bytes;
    return progress_add(exchange->progress, bytes);
}

static dcp_status put_elements(struct share_destinations *destinations,
                               const struct share_segment *segment, const unsigned char *bytes)
{
    const struct share_region *region =
        &destinations->exchange->share->regions[segment->run->region];
    const struct box whole = region->box;
    size_t size = share_element_size(&destinations->exchange->metadata->entries[region->entry]);
    for (int64_t from = segment->from; from < segment->end;) {
        struct box_storage box;
        int64_t taken = box_next(whole, from, segment->end, &box);
        RETURN_IF_ERROR(put_box(destinations, region, box_of(whole.ndim, &box), bytes));
        bytes += (size_t)taken * size;
        from += taken;
    }
    return DCP_OK;
}

static dcp_status hand_over(const struct share_destinations *destinations,
                            const struct share_region *region, const unsigned char *bytes,
                            size_t size)
{
    const struct load_exchange *exchange = destinations->exchange;
    const struct read_item *item;
    for (size_t at = find_items(destinations, region); (item = item_at(destinations, region, at));
         at++)
        RETURN_IF_ERROR(exchange->take(exchange->take_context, item, bytes, size));
    return DCP_OK;
}

/* Adds a part of an object; a rank sends all parts of one object before the next. */
static dcp_status put_stream(struct share_destinations *destinations,
                             const struct share_segment *segment, const unsigned char *bytes)
{
    const struct share_region *region =
        &destinations->exchange->share->regions[segment->run->region];
    unsigned char **beginning = &destinations->beginnings[segment->run->reader];
    size_t size = (size_t)box_volume(region->box);
    size_t from = (size_t)segment->from, end = (size_t)segment->end;
    if (from == 0 && end == size)
        return hand_over(destinations, region, bytes, size);
    if (from == 0) {
        memory_release(*beginning);
        *beginning = memory_allocate(size);
    }
    if (!*beginning)
        return error_no_memory(size, "an object that comes from another rank");
    memcpy(*beginning + from, bytes, end - from);
    if (end < size)
        return DCP_OK;
    dcp_status status = hand_over(destinations, region, *beginning, size);
    memory_release(*beginning);
    *beginning = NULL;
    return status;
}

dcp_status share_destinations_put(struct share_destinations *destinations,
                                  const struct share_segment *segment, const unsigned char *bytes)
{
    const struct share_region *region =
        &destinations->exchange->share->regions[segment->run->region];
    if (destinations->exchange->metadata->entries[region->entry].is_tensor)
        return put_elements(destinations, segment, bytes);
    return put_stream(destinations, segment, bytes);
}

uint64_t share_destinations_moved(const struct share_destinations *destinations)
{
    return destinations->moved;
}

void share_destinations_close(struct share_destinations *destinations)
{
    if (!destinations)
        return;
    for (uint32_t rank = 0;
         destinations->beginnings && rank < destinations->exchange->share->rank_count; rank++)
        memory_release(destinations->beginnings[rank]);
    memory_release(destinations->beginnings);
    memory_release(destinations->items);
    memory_release(destinations);
}
