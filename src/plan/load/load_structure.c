/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/load/load_structure.h"

#include "plan/structure_walk.h"

static bool walk_tensor(struct structure_walk *walk, const struct state_tensor *tensor)
{
    const int64_t traits[] = {tensor->dtype, tensor->ndim, (int64_t)tensor->chunk_count};
    size_t bytes = (size_t)tensor->ndim * sizeof(int64_t);
    if (!structure_walk_bytes(walk, traits, sizeof traits) ||
        !structure_walk_bytes(walk, tensor->global_shape, bytes))
        return false;
    for (size_t i = 0; i < tensor->chunk_count; i++)
        if (!structure_walk_bytes(walk, tensor->chunks[i].offsets, bytes) ||
            !structure_walk_bytes(walk, tensor->chunks[i].sizes, bytes))
            return false;
    return true;
}

static bool walk_all(struct structure_walk *walk, const struct flat_state *flat)
{
    for (size_t i = 0; i < flat->count; i++) {
        const struct flat_entry *entry = &flat->entries[i];
        bool is_tensor = entry->node->kind == DCP_KIND_TENSOR;
        if (!structure_walk_text(walk, entry->name) ||
            !structure_walk_bytes(walk, &is_tensor, sizeof is_tensor) ||
            (is_tensor && !walk_tensor(walk, entry->node->as.tensor)))
            return false;
    }
    return true;
}

dcp_status load_structure_append(const struct flat_state *flat, struct buffer *out)
{
    struct structure_walk walk = {.out = out};
    walk_all(&walk, flat);
    return buffer_status(out);
}

bool load_structure_is(const struct flat_state *flat, const void *bytes, size_t size)
{
    struct structure_walk walk = {.expected = bytes, .left = size};
    return walk_all(&walk, flat) && walk.left == 0;
}
