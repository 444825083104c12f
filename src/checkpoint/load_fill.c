/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load_fill.h"

#include <stdatomic.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

/* From here on a load is worth more than one thread, and so many if nothing is said. */
#define THREADED_SIZE  ((uint64_t)16 << 20)
#define THREADS_CHOSEN 4

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

struct tensor_reading {
    const struct flat_state *flat;
    const struct metadata *metadata;
    const struct load_plan *plan;
    struct shard_reader *reader;
    dcp_verification verification;
    atomic_uint_fast64_t moved;
};

static dcp_status read_tensor(void *context, size_t index)
{
    struct tensor_reading *reading = context;
    const struct read_item *item = &reading->plan->items[index];
    const struct metadata_entry *entry = &reading->metadata->entries[item->entry];
    if (!entry->is_tensor)
        return DCP_OK;
    const struct state_tensor *tensor = reading->flat->entries[item->wanted].node->as.tensor;
    const struct state_chunk *chunk = &tensor->chunks[item->chunk];
    RETURN_IF_ERROR(shard_read_tensor(reading->reader, entry, &entry->pieces[item->piece],
                                      item->region, tensor->dtype, chunk, reading->verification));
    uint64_t bytes = (uint64_t)box_volume(item->region) * dcp_dtype_size(tensor->dtype);
    atomic_fetch_add_explicit(&reading->moved, bytes, memory_order_relaxed);
    return DCP_OK;
}

/* Other ranks may run beside this one, so half of the processors that it may use. */
static size_t choose_threads(uint64_t bytes)
{
    size_t half = thread_processor_count() / 2;
    if (bytes < THREADED_SIZE || half < 1)
        return 1;
    return half > THREADS_CHOSEN ? THREADS_CHOSEN : half;
}

dcp_status load_read_tensors(const struct flat_state *flat, const struct metadata *metadata,
                             const struct load_plan *plan, struct shard_reader *reader,
                             dcp_verification verification, int32_t thread_count, uint64_t *moved)
{
    struct tensor_reading reading = {flat, metadata, plan, reader, verification, 0};
    size_t threads = thread_count > 0 ? (size_t)thread_count : choose_threads(plan->bytes_wanted);
    dcp_status status = thread_run(plan->count, threads, read_tensor, &reading);
    *moved = reading.moved;
    return status;
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
