/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load/load_fill.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

/* From this size on, a load uses several threads; by default, so many. */
#define THREADED_SIZE  ((uint64_t)16 << 20)
#define THREADS_CHOSEN 4

static size_t count_objects(const struct metadata *metadata, const struct load_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->count; i++)
        count += !metadata->entries[plan->items[i].entry].is_tensor;
    return count;
}

dcp_status loaded_objects_init(struct loaded_objects *objects, const struct metadata *metadata,
                               const struct load_plan *plan)
{
    size_t count = count_objects(metadata, plan);
    objects->items = memory_allocate_zeroed(count, sizeof *objects->items);
    return objects->items ? DCP_OK
                          : error_no_memory(count * sizeof *objects->items, "objects of a load");
}

dcp_status loaded_objects_add(struct loaded_objects *objects, dcp_state *target,
                              struct loaded_object **added)
{
    struct loaded_object *loaded = &objects->items[objects->count];
    loaded->target = target;
    loaded->pool = state_pool_new(target->root);
    if (!loaded->pool)
        return DCP_ERR_NO_MEMORY;
    objects->count++;
    *added = loaded;
    return DCP_OK;
}

dcp_status load_read_objects(const struct flat_state *flat, const struct metadata *metadata,
                             const struct load_plan *plan, const struct load_share *share,
                             uint32_t rank, struct shard_reader *reader,
                             dcp_verification verification, struct loaded_objects *objects)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct read_item *item = &plan->items[i];
        const struct metadata_entry *entry = &metadata->entries[item->entry];
        struct loaded_object *loaded;
        if (entry->is_tensor || load_share_brings(share, rank, item->entry))
            continue;
        RETURN_IF_ERROR(loaded_objects_add(objects, flat->entries[item->wanted].node, &loaded));
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

/* More threads than processors, even beside other ranks: the system may spread them unevenly, and
 * some extra threads keep all processors busy. */
size_t load_thread_count(int32_t given, uint64_t bytes)
{
    size_t processors = thread_processor_count();
    if (given > 0)
        return (size_t)given;
    if (bytes < THREADED_SIZE)
        return 1;
    return processors > THREADS_CHOSEN ? THREADS_CHOSEN : processors;
}

dcp_status load_list_requests(const struct flat_state *flat, const struct metadata *metadata,
                              const struct load_plan *plan, bool objects,
                              struct shard_request **list, size_t *count)
{
    struct shard_request *requests = memory_allocate_array(plan->count, sizeof *requests);

    *list = requests;
    *count = 0;
    if (!requests)
        return error_no_memory(plan->count * sizeof *requests, "a list of reads");
    for (size_t i = 0; i < plan->count; i++) {
        const struct read_item *item = &plan->items[i];
        const struct metadata_entry *entry = &metadata->entries[item->entry];
        struct shard_request request = {.entry = entry, .piece = &entry->pieces[item->piece]};
        if (entry->is_tensor) {
            const struct state_tensor *tensor = flat->entries[item->wanted].node->as.tensor;
            request.region = item->region;
            request.dtype = tensor->dtype;
            request.target = &tensor->chunks[item->chunk];
        }
        if (entry->is_tensor || objects)
            requests[(*count)++] = request;
    }
    return DCP_OK;
}

/* Requests are those of the plan's tensors, in its order. */
static void place_sums(const struct metadata *metadata, const struct load_plan *plan,
                       struct shard_part_sum *const *sums, struct shard_request *requests)
{
    size_t request = 0;
    for (size_t i = 0; i < plan->count; i++)
        if (metadata->entries[plan->items[i].entry].is_tensor)
            requests[request++].sum = sums[i];
}

dcp_status load_read_tensors(const struct flat_state *flat, const struct metadata *metadata,
                             const struct load_plan *plan, struct shard_part_sum *const *sums,
                             struct shard_reader *reader, dcp_verification verification,
                             int32_t thread_count, uint64_t *moved)
{
    size_t threads = load_thread_count(thread_count, plan->bytes_wanted);
    struct shard_request *requests;
    size_t count;

    *moved = 0;
    RETURN_IF_ERROR(load_list_requests(flat, metadata, plan, false, &requests, &count));
    if (sums)
        place_sums(metadata, plan, sums, requests);
    dcp_status status = shard_read_tensors(reader, requests, count, threads, verification, moved);
    memory_release(requests);
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
