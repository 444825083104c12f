/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load/load_plan_cache.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "plan/load/load_structure.h"

dcp_status dcp_load_plan_cache_new(dcp_load_plan_cache **cache)
{
    if (!cache)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_load_plan_cache_new: cache is NULL");
    *cache = memory_allocate_zeroed(1, sizeof **cache);
    if (!*cache)
        return error_no_memory(sizeof **cache, "a cache of load plans");
    metadata_init(&(*cache)->metadata);
    arena_init(&(*cache)->texts, 0);
    return DCP_OK;
}

void load_plan_cache_forget_plan(dcp_load_plan_cache *cache)
{
    cache->planned = 0;
    cache->dealt = false;
    buffer_free(&cache->naming);
    buffer_free(&cache->wanted);
    buffer_free(&cache->left_out);
    load_plan_free(&cache->plan);
    load_differences_free(&cache->differences);
    load_share_free(&cache->share_of_objects);
    load_share_free(&cache->share);
    load_plan_free(&cache->rest);
}

void load_plan_cache_forget(dcp_load_plan_cache *cache)
{
    load_plan_cache_forget_plan(cache);
    cache->stored = 0;
    metadata_free(&cache->metadata);
    arena_free(&cache->texts);
    buffer_free(&cache->raw);
}

void dcp_load_plan_cache_free(dcp_load_plan_cache *cache)
{
    if (!cache)
        return;
    load_plan_cache_forget(cache);
    memory_release(cache);
}

dcp_status load_plan_cache_number(uint64_t *number)
{
    *number = 0;
    while (*number == 0)
        RETURN_IF_ERROR(random_bytes(number, sizeof *number, "a load"));
    return DCP_OK;
}

static bool ranks_match(const dcp_load_plan_cache *cache, const dcp_load_options *options)
{
    return cache->rank == dcp_group_rank(options->group) &&
           cache->size == dcp_group_size(options->group) &&
           cache->coordinator == options->coordinator;
}

bool load_plan_cache_serves(const dcp_load_plan_cache *cache, const dcp_load_options *options)
{
    return cache->stored != 0 && ranks_match(cache, options);
}

static void append_texts(struct buffer *out, const char *const *texts, size_t count)
{
    buffer_append_u64(out, count);
    for (size_t i = 0; i < count; i++)
        buffer_append_text(out, texts[i], strlen(texts[i]));
}

static dcp_status describe_naming(const dcp_load_options *options, struct buffer *out)
{
    buffer_append_u8(out, options->convert);
    buffer_append_u8(out, options->unflattened);
    append_texts(out, options->include, options->include_count);
    append_texts(out, options->exclude, options->exclude_count);
    buffer_append_u64(out, options->rename_count);
    for (size_t i = 0; i < options->rename_count; i++) {
        const dcp_rename *rename = &options->renames[i];
        buffer_append_u32(out, (uint32_t)rename->kind);
        buffer_append_text(out, rename->wanted, strlen(rename->wanted));
        buffer_append_text(out, rename->stored, strlen(rename->stored));
    }
    return buffer_status(out);
}

static dcp_status naming_matches(const dcp_load_plan_cache *cache, const dcp_load_options *options,
                                 bool *matches)
{
    struct buffer naming;
    buffer_init(&naming, 0);
    dcp_status status = describe_naming(options, &naming);
    *matches = status == DCP_OK && naming.size == cache->naming.size &&
               memcmp(naming.data, cache->naming.data, naming.size) == 0;
    buffer_free(&naming);
    return status;
}

dcp_status load_plan_cache_look(const dcp_load_plan_cache *cache, const dcp_load_options *options,
                                struct flat_state *flat, bool *holds)
{
    *holds = false;
    if (cache->planned == 0 || !ranks_match(cache, options) ||
        !load_structure_is(flat, cache->wanted.data, cache->wanted.size))
        return DCP_OK;
    RETURN_IF_ERROR(naming_matches(cache, options, holds));
    for (size_t i = 0; i < flat->count && *holds; i++)
        flat->entries[i].left_out = cache->left_out.data[i] != 0;
    return DCP_OK;
}

static dcp_status note_all(dcp_load_plan_cache *cache, const dcp_load_options *options,
                           const struct flat_state *flat)
{
    RETURN_IF_ERROR(describe_naming(options, &cache->naming));
    RETURN_IF_ERROR(load_structure_append(flat, &cache->wanted));
    RETURN_IF_ERROR(buffer_reserve(&cache->left_out, flat->count));
    for (size_t i = 0; i < flat->count; i++)
        buffer_append_u8(&cache->left_out, flat->entries[i].left_out);
    return buffer_status(&cache->left_out);
}

dcp_status load_plan_cache_note(dcp_load_plan_cache *cache, const dcp_load_options *options,
                                const struct flat_state *flat, uint64_t number)
{
    load_plan_cache_forget_plan(cache);
    dcp_status status = note_all(cache, options, flat);
    if (status != DCP_OK) {
        load_plan_cache_forget_plan(cache);
        return status;
    }
    cache->rank = dcp_group_rank(options->group);
    cache->size = dcp_group_size(options->group);
    cache->coordinator = options->coordinator;
    cache->planned = number;
    return DCP_OK;
}

bool sharing_circumstances_equal(const struct sharing_circumstances *a,
                                 const struct sharing_circumstances *b)
{
    return a->reading == b->reading && a->verification == b->verification && a->io == b->io &&
           a->group_bytes_per_second == b->group_bytes_per_second && a->remote == b->remote;
}
