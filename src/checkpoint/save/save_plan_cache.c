/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_plan_cache.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_plan.h"
#include "plan/save/save_structure.h"

dcp_status dcp_save_plan_cache_new(dcp_save_plan_cache **cache)
{
    if (!cache)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_save_plan_cache_new: cache is NULL");
    *cache = memory_allocate_zeroed(1, sizeof **cache);
    if (!*cache)
        return error_no_memory(sizeof **cache, "a cache of save plans");
    buffer_init(&(*cache)->plan, 0);
    buffer_init(&(*cache)->orders, 0);
    metadata_init(&(*cache)->metadata);
    arena_init(&(*cache)->names, 0);
    return DCP_OK;
}

void save_plan_cache_forget(dcp_save_plan_cache *cache)
{
    cache->id = 0;
    buffer_free(&cache->plan);
    buffer_free(&cache->orders);
    memory_release(cache->lengths);
    cache->lengths = NULL;
    metadata_free(&cache->metadata);
    arena_free(&cache->names);
    plan_extras_free(&cache->extras);
}

void dcp_save_plan_cache_free(dcp_save_plan_cache *cache)
{
    if (!cache)
        return;
    save_plan_cache_forget(cache);
    memory_release(cache);
}

static int file_rank(const dcp_save_options *options)
{
    return options->without_collectives ? options->rank : dcp_group_rank(options->group);
}

/* The ranks and the options that a plan depends on. */
static bool circumstances_match(const dcp_save_plan_cache *cache, const dcp_save_options *options)
{
    return cache->rank == dcp_group_rank(options->group) &&
           cache->file_rank == file_rank(options) &&
           cache->size == dcp_group_size(options->group) &&
           cache->coordinator == options->coordinator && cache->replicas == options->replicas &&
           cache->files == options->files && cache->thread_count == options->thread_count &&
           cache->unflattened == options->unflattened &&
           cache->allow_partial == options->allow_partial &&
           cache->zstd == (options->compression == DCP_COMPRESSION_ZSTD);
}

static void note_circumstances(dcp_save_plan_cache *cache, const dcp_save_options *options)
{
    cache->rank = dcp_group_rank(options->group);
    cache->file_rank = file_rank(options);
    cache->size = dcp_group_size(options->group);
    cache->coordinator = options->coordinator;
    cache->replicas = options->replicas;
    cache->files = options->files;
    cache->thread_count = options->thread_count;
    cache->unflattened = options->unflattened;
    cache->allow_partial = options->allow_partial;
    cache->zstd = options->compression == DCP_COMPRESSION_ZSTD;
}

static bool is_object(const struct save_plan *plan, const struct write_order *order)
{
    return !plan->items[order->item].is_tensor;
}

static bool lengths_match(const dcp_save_plan_cache *cache, const struct save_plan *plan,
                          const struct write_orders *orders)
{
    const uint64_t *length = cache->lengths;
    for (size_t i = 0; i < orders->count; i++)
        if (is_object(plan, &orders->orders[i]) && *length++ != orders->orders[i].length)
            return false;
    return true;
}

dcp_status save_plan_cache_look(const dcp_save_plan_cache *cache, const dcp_save_options *options,
                                const struct plan_extras *extras, const struct save_plan *plan,
                                uint64_t *id, struct write_orders *orders, bool *grown)
{
    *id = 0;
    *grown = false;
    if (cache->id == 0 || !circumstances_match(cache, options) ||
        !plan_extras_match(&cache->extras, extras) ||
        !save_structure_is(plan, cache->plan.data, cache->plan.size))
        return DCP_OK;
    dcp_status status = write_orders_decode(cache->orders.data, cache->orders.size, plan, orders);
    if (status == DCP_OK) {
        *id = cache->id;
        *grown = !lengths_match(cache, plan, orders);
        return DCP_OK;
    }
    write_orders_free(orders);
    if (status == DCP_ERR_NO_MEMORY)
        return status;
    error_clear(); /* an object has outgrown its space */
    return DCP_OK;
}

void save_plan_cache_note_lengths(dcp_save_plan_cache *cache, const struct save_plan *plan,
                                  const struct write_orders *orders)
{
    uint64_t *length = cache->lengths;
    for (size_t i = 0; i < orders->count; i++)
        if (is_object(plan, &orders->orders[i]))
            *length++ = orders->orders[i].length;
}

dcp_status save_plan_cache_keep(dcp_save_plan_cache *cache, uint64_t id,
                                const dcp_save_options *options, const struct save_plan *plan,
                                const struct write_orders *orders, const void *orders_bytes,
                                size_t orders_size)
{
    size_t objects = 0;
    for (size_t i = 0; i < orders->count; i++)
        objects += is_object(plan, &orders->orders[i]);
    buffer_clear(&cache->plan);
    buffer_clear(&cache->orders);
    memory_release(cache->lengths);
    cache->lengths = memory_allocate_array(objects, sizeof *cache->lengths);
    buffer_append(&cache->orders, orders_bytes, orders_size);
    dcp_status status = save_structure_append(plan, &cache->plan);
    if (status == DCP_OK)
        status = buffer_status(&cache->orders);
    if (status == DCP_OK && !cache->lengths)
        status = error_no_memory(objects * sizeof *cache->lengths, "lengths of objects");
    if (status != DCP_OK) {
        save_plan_cache_forget(cache);
        return status;
    }
    save_plan_cache_note_lengths(cache, plan, orders);
    note_circumstances(cache, options);
    cache->id = id;
    return DCP_OK;
}

void save_plan_cache_lend_extras(dcp_save_plan_cache *cache, struct plan_extras *extras)
{
    struct plan_extras own = *extras;
    *extras = cache->extras;
    cache->extras = (struct plan_extras){0};
    if (own.planner_root) {
        dcp_state_free(extras->planner_root);
        extras->planner_root = own.planner_root;
        extras->planner_data = own.planner_data;
        own.planner_root = NULL;
    }
    plan_extras_free(&own);
}

dcp_status save_plan_cache_set_generation(dcp_save_plan_cache *cache, uint32_t generation)
{
    struct metadata *metadata = &cache->metadata;
    struct arena names;
    if (cache->generation == generation)
        return DCP_OK;
    arena_init(&names, 0);
    const char **files = memory_allocate_array(metadata->file_count, sizeof *files);
    bool complete = files != NULL;
    for (size_t i = 0; i < metadata->file_count && complete; i++) {
        char name[SHARD_NAME_MAX];
        int rank = 0;
        uint32_t file = 0, before;
        shard_name_parse(metadata->files[i], &rank, &file, &before);
        shard_name(name, rank, file, generation);
        files[i] = arena_copy_text(&names, name, strlen(name));
        complete = files[i] != NULL;
    }
    if (complete) {
        memcpy(metadata->files, files, metadata->file_count * sizeof *files);
        arena_free(&cache->names);
        cache->names = names;
        cache->generation = generation;
    } else {
        arena_free(&names);
    }
    memory_release(files);
    return complete ? DCP_OK
                    : error_no_memory(metadata->file_count * sizeof *files, "names of files");
}
