/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/save/save_structure.h"

#include "plan/structure_walk.h"

/* An empty text is followed by a mark that distinguishes a list position from an empty key. */
static bool walk_part(struct structure_walk *walk, const dcp_path_part *part)
{
    if (part->key && *part->key)
        return structure_walk_text(walk, part->key);
    const int64_t place[] = {part->key == NULL, part->key ? 0 : part->position};
    return structure_walk_text(walk, "") && structure_walk_bytes(walk, place, sizeof place);
}

static bool walk_item(struct structure_walk *walk, const struct write_item *item)
{
    const int32_t traits[] = {item->is_tensor, item->requires_grad, (int32_t)item->dtype,
                              item->ndim, (int32_t)item->path_length};
    size_t bytes = (size_t)item->ndim * sizeof(int64_t);
    if (!structure_walk_bytes(walk, traits, sizeof traits) ||
        !structure_walk_text(walk, item->name))
        return false;
    for (size_t i = 0; i < item->path_length; i++)
        if (!walk_part(walk, &item->path[i]))
            return false;
    return !item->is_tensor || (structure_walk_bytes(walk, item->global_shape, bytes) &&
                                structure_walk_bytes(walk, item->box.offsets, bytes) &&
                                structure_walk_bytes(walk, item->box.sizes, bytes));
}

static bool walk_all(struct structure_walk *walk, const struct save_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        if (!walk_item(walk, &plan->items[i]))
            return false;
    return true;
}

dcp_status save_structure_append(const struct save_plan *plan, struct buffer *out)
{
    struct structure_walk walk = {.out = out};
    walk_all(&walk, plan);
    return buffer_status(out);
}

bool save_structure_is(const struct save_plan *plan, const void *bytes, size_t size)
{
    struct structure_walk walk = {.expected = bytes, .left = size};
    return walk_all(&walk, plan) && walk.left == 0;
}
