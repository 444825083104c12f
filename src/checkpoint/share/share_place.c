/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds what ranks give each other that needs no copy: bytes that are all of a chunk's memory, or a
 * part of it, go straight there. */
#include <stdint.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/share/load_exchange.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/device_memory.h"
#include "state/node_block.h"

/* The memory that a chunk's elements lie in, perhaps with others in between. */
struct extent {
    const struct state_chunk *chunk;
    uint64_t start, end;
};

static int compare_extents(const void *left, const void *right)
{
    const struct extent *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return ((uintptr_t)a->chunk > (uintptr_t)b->chunk) -
           ((uintptr_t)a->chunk < (uintptr_t)b->chunk);
}

static bool are_apart(const struct extent *extents, size_t count)
{
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        bool again = i > 0 && extents[i].chunk == extents[i - 1].chunk;
        if (extents[i].start < end && !again)
            return false;
        end = extents[i].end > end ? extents[i].end : end;
    }
    return true;
}

static const struct state_tensor *tensor_of(const struct load_exchange *exchange,
                                            const struct read_item *item)
{
    return exchange->flat->entries[item->wanted].node->as.tensor;
}

uint64_t share_places_memory(const struct load_exchange *exchange)
{
    return exchange->take ? 0 : exchange->plan->count * sizeof(struct extent);
}

/* Tied tensors may have one memory: what has been put there for one would be sent to others for the
 * other. */
dcp_status share_places_check(const struct load_exchange *exchange, bool *apart)
{
    const struct load_plan *plan = exchange->plan;
    size_t count = 0;
    *apart = false;
    if (exchange->take)
        return DCP_OK;
    struct extent *extents = memory_allocate_array(plan->count, sizeof *extents);
    if (!extents)
        return error_no_memory(plan->count * sizeof *extents, "the memory of tensors");
    for (size_t i = 0; i < plan->count; i++) {
        const struct read_item *item = &plan->items[i];
        if (!exchange->metadata->entries[item->entry].is_tensor)
            continue;
        const struct state_tensor *tensor = tensor_of(exchange, item);
        struct extent *extent = &extents[count];
        extent->chunk = &tensor->chunks[item->chunk];
        count += chunk_reach(tensor, extent->chunk, &extent->start, &extent->end);
    }
    if (count > 1)
        qsort(extents, count, sizeof *extents, compare_extents);
    *apart = are_apart(extents, count);
    memory_release(extents);
    return DCP_OK;
}

unsigned char *share_place_of(const struct load_exchange *exchange, const struct read_item *item,
                              const struct share_region *region, int64_t from)
{
    const struct metadata_entry *entry = &exchange->metadata->entries[region->entry];
    const struct state_tensor *tensor = tensor_of(exchange, item);
    const struct state_chunk *chunk = &tensor->chunks[item->chunk];
    if (tensor->dtype != entry->dtype || !device_is_host(&chunk->device) ||
        !box_contains(item->region, region->box) ||
        !copy_is_dense(region->box.ndim, region->box.sizes, chunk->strides))
        return NULL;
    int64_t way = from;
    for (int32_t i = 0; i < region->box.ndim; i++)
        way += (region->box.offsets[i] - chunk->offsets[i]) * chunk->strides[i];
    return (unsigned char *)chunk->data + way * (int64_t)share_element_size(entry);
}
