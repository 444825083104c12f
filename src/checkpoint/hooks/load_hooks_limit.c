/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/hooks/load_hooks_limit.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/load_hooks_hand_over.h"
#include "format/streams/item.h"

/* What surrounds a block of memory. */
#define AROUND_BLOCK ((uint64_t)64)

static uint64_t add_up(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return checked_add_u64(a, b, &sum) ? sum : UINT64_MAX;
}

static const struct metadata_entry *entry_of(const dcp_loading *loading, size_t index)
{
    const struct read_target *target = &loading->hooks->targets.targets[index];
    return &loading->planning.stored.metadata.entries[target->entry];
}

static const struct metadata_piece *piece_of(const dcp_loading *loading, size_t index)
{
    return &entry_of(loading, index)->pieces[loading->hooks->targets.targets[index].piece];
}

/* What the plan reads after hooks have changed it. */
static dcp_status look_at_files(dcp_loading *loading)
{
    const struct load_hooks *hooks = loading->hooks;
    size_t count = hooks->plan.count;
    struct shard_request *requests = memory_allocate_array(count, sizeof *requests);
    if (!requests)
        return error_no_memory(count * sizeof *requests, "a list of reads");
    for (size_t i = 0; i < count; i++) {
        const struct read_target *target = &hooks->targets.targets[i];
        requests[i] =
            (struct shard_request){.entry = entry_of(loading, i), .piece = piece_of(loading, i)};
        if (!hooks->plan.items[i].is_tensor)
            continue;
        const struct state_tensor *tensor =
            loading->planning.flat.entries[target->wanted].node->as.tensor;
        requests[i].region = target->stored;
        requests[i].dtype = tensor->dtype;
        requests[i].target = &tensor->chunks[target->chunk];
    }
    dcp_status status = shard_read_needs_find(loading->planning.stored.reader, requests, count,
                                              loading->options.verification, &loading->limit.needs);
    memory_release(requests);
    return status;
}

/* Whether hooks may be given the streams of objects, in memory that is held until the load ends. */
static bool lends_streams(const struct load_hooks *hooks)
{
    return hooks->storage.read_data || hooks->planner.load_bytes || hooks->planner.resolve_bytes;
}

/* Decodes a stream. One that a hook decodes need not be one that the library can decode. */
static dcp_status try_decoding(dcp_loading *loading, size_t index, const struct buffer *stream)
{
    dcp_state *object = NULL;
    struct state_pool *pool = hand_over_pool(loading, index);
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status =
        item_read_object(byte_source_memory(stream->data, stream->size), pool, &object);
    state_pool_free(pool);
    return status == DCP_ERR_NO_MEMORY || !loading->hooks->planner.load_bytes ? status : DCP_OK;
}

/* As load_hooks_read() delivers a stream. */
static dcp_status try_stream(dcp_loading *loading, size_t index, uint64_t *lent)
{
    struct buffer whole, memory;
    buffer_init(&whole, 0);
    buffer_init(&memory, 0);
    dcp_status status =
        shard_read_stream(loading->planning.stored.reader, entry_of(loading, index),
                          piece_of(loading, index), loading->options.verification, &whole);
    if (status == DCP_OK && !loading->hooks->planner.resolve_bytes) {
        status = buffer_reserve(&memory, whole.size);
        *lent = add_up(*lent, whole.size + AROUND_BLOCK);
    }
    if (status == DCP_OK)
        status = try_decoding(loading, index, &whole);
    buffer_free(&memory);
    buffer_free(&whole);
    return status;
}

static dcp_status try_object(dcp_loading *loading, size_t index)
{
    dcp_state *object = NULL;
    struct state_pool *pool = hand_over_pool(loading, index);
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status =
        shard_read_object(loading->planning.stored.reader, entry_of(loading, index),
                          piece_of(loading, index), loading->options.verification, pool, &object);
    state_pool_free(pool);
    return status;
}

/* What it takes is in the peak of the account. lent: what is held beside. */
static dcp_status try_objects(dcp_loading *loading, uint64_t *lent)
{
    const struct load_hooks *hooks = loading->hooks;
    for (size_t i = 0; i < hooks->plan.count; i++) {
        if (hooks->plan.items[i].is_tensor)
            continue;
        if (lends_streams(hooks))
            RETURN_IF_ERROR(try_stream(loading, i, lent));
        else
            RETURN_IF_ERROR(try_object(loading, i));
    }
    return DCP_OK;
}

dcp_status load_hooks_find_limit(dcp_loading *loading)
{
    const struct load_sharing sharing = loading_sharing(loading);
    uint64_t lent = 0;
    dcp_status status = look_at_files(loading);
    if (status == DCP_OK)
        status = try_objects(loading, &lent);
    /* What only the storage reader sees, it brings in memory that is not counted. */
    if (status != DCP_OK && status != DCP_ERR_NO_MEMORY && loading->hooks->storage.read_data) {
        loading->hooks->unseen = true;
        error_clear();
        loading->limit.needs = (struct shard_read_needs){0};
        lent = 0;
        status = DCP_OK;
    }
    RETURN_IF_ERROR(status);
    load_limit_find(&loading->limit, &loading->operation, &sharing);
    lent = add_up(lent, load_hooks_list_memory(loading));
    loading->limit.smallest = add_up(loading->limit.smallest, lent);
    return DCP_OK;
}
