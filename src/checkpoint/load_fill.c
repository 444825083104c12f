/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load_fill.h"

#include "base/error.h"
#include "base/memory.h"

static size_t count_objects(const struct metadata *metadata, const struct load_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->count; i++)
        count += !metadata->entries[plan->items[i].entry].is_tensor;
    return count;
}

dcp_status load_read_objects(const struct flat_state *flat, const struct metadata *metadata,
                             const struct load_plan *plan, struct shard_reader *reader,
                             dcp_verification verification, struct loaded_objects *objects)
{
    size_t count = count_objects(metadata, plan);

    objects->items = memory_allocate_zeroed(count, sizeof *objects->items);
    if (!objects->items)
        return error_no_memory(count * sizeof *objects->items, "objects of a load");
    for (size_t i = 0; i < plan->count; i++) {
        const struct read_item *item = &plan->items[i];
        const struct metadata_entry *entry = &metadata->entries[item->entry];
        if (entry->is_tensor)
            continue;
        struct loaded_object *loaded = &objects->items[objects->count];
        loaded->target = flat->entries[item->wanted].node;
        loaded->pool = state_pool_new(loaded->target->root);
        if (!loaded->pool)
            return DCP_ERR_NO_MEMORY;
        objects->count++;
        RETURN_IF_ERROR(shard_read_object(reader, entry, &entry->pieces[item->piece], verification,
                                          loaded->pool, &loaded->object));
    }
    return DCP_OK;
}

dcp_status load_allocate(const struct flat_state *flat, const struct load_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct read_item *item = &plan->items[i];
        dcp_state *node = flat->entries[item->wanted].node;
        if (node->kind == DCP_KIND_TENSOR && !node->as.tensor->chunks[item->chunk].data)
            RETURN_IF_ERROR(node_chunk_allocate(node, item->chunk));
    }
    return DCP_OK;
}

dcp_status load_read_tensors(const struct flat_state *flat, const struct metadata *metadata,
                             const struct load_plan *plan, struct shard_reader *reader,
                             dcp_verification verification)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct read_item *item = &plan->items[i];
        const struct metadata_entry *entry = &metadata->entries[item->entry];
        if (!entry->is_tensor)
            continue;
        const struct state_tensor *tensor = flat->entries[item->wanted].node->as.tensor;
        const struct state_chunk *chunk = &tensor->chunks[item->chunk];
        RETURN_IF_ERROR(shard_read_tensor(reader, entry, &entry->pieces[item->piece], item->region,
                                          tensor->dtype, chunk, verification));
    }
    return DCP_OK;
}

dcp_status load_place_objects(struct loaded_objects *objects)
{
    for (size_t i = 0; i < objects->count; i++) {
        struct loaded_object *loaded = &objects->items[i];
        RETURN_IF_ERROR(node_replace(loaded->target, loaded->pool, loaded->object));
        loaded->pool = NULL;
    }
    return DCP_OK;
}

void loaded_objects_free(struct loaded_objects *objects)
{
    for (size_t i = 0; i < objects->count; i++)
        state_pool_free(objects->items[i].pool);
    memory_release(objects->items);
}
