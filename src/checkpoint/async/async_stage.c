/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/async/async.h"
#include "state/box.h"
#include "state/node_block.h"

void chain_describe_staging(const dcp_save_chain *chain, struct dcp_saving *saving)
{
    const dcp_save_chain_options *options = &chain->options;
    saving->staging = (struct save_staging){
        .threaded = true,
        .wanted = !options->stager && !saving->steps.needs_state,
        .tree = !options->stager && saving->steps.needs_state,
        .whole = chain_may_try_again(options),
        .options = {.limit = options->staging_limit,
                    .threads = (uint32_t)options->staging_threads,
                    .page_lock = options->staging != DCP_STAGING_BLOCKING,
                    .detect_changes = options->detect_changes},
    };
}

/* A digest of what an order writes. */
static uint64_t digest_of(const struct write_order *order)
{
    int64_t numbers[1 + 2 * DCP_MAX_DIMS] = {order->item};
    size_t count = 1;
    for (int32_t i = 0; i < order->box.ndim; i++) {
        numbers[count++] = order->box.offsets[i];
        numbers[count++] = order->box.sizes[i];
    }
    return xxh3_64(numbers, count * sizeof *numbers);
}

/* Makes a source for each order, and a staging source for each order of tensor elements. */
static void make_sources(dcp_future *future, struct staging_source *sources, size_t *count)
{
    struct write_orders *orders = &future->saving.orders;
    const struct save_local *local = &future->saving.local;
    *count = 0;
    for (size_t i = 0; i < orders->count; i++) {
        struct write_order *order = &orders->orders[i];
        struct shard_source *source = &future->staged.sources[i];
        *source = local->sources[order->item];
        future->digests[i] = digest_of(order);
        order->item = (uint32_t)i;
        if (save_staging_describe(order, source, &sources[*count]))
            source->staged = (*count)++;
    }
}

/* Whether dcp_save_async() waits for the copies itself. */
static bool copies_at_once(const dcp_save_chain_options *options)
{
    return options->staging != DCP_STAGING_OVERLAPPED || options->detect_changes;
}

static dcp_status await_devices(dcp_future *future)
{
    const struct dcp_saving *saving = &future->saving;
    return flatten_await_devices(&saving->local.flat, saving->options.timeout_seconds);
}

dcp_status future_stage(dcp_future *future)
{
    size_t order_count = future->saving.orders.count, count = 0;
    const struct staging_options *options = &future->saving.staging.options;
    struct staging_source *sources = memory_allocate_zeroed(order_count, sizeof *sources);
    dcp_status status = DCP_OK;
    future->staged.sources = memory_allocate_zeroed(order_count, sizeof *future->staged.sources);
    future->digests = memory_allocate_zeroed(order_count, sizeof *future->digests);
    future->order_count = order_count;
    if (!sources || !future->staged.sources || !future->digests)
        status = error_no_memory(order_count * sizeof *sources, "staging");
    if (status == DCP_OK && copies_at_once(&future->chain->options))
        status = await_devices(future);
    if (status == DCP_OK)
        make_sources(future, sources, &count);
    if (status == DCP_OK && count > 0)
        status =
            staging_begin(&future->chain->pool, sources, count, options, &future->staged.staging);
    for (size_t i = 0; status == DCP_OK && i < order_count; i++)
        if (future->staged.sources[i].item->is_tensor && future->staged.sources[i].chunk)
            future->staged.sources[i].staging = future->staged.staging;
    memory_release(sources);
    if (status == DCP_OK)
        future->saving.staged = &future->staged;
    return status;
}

/* Planning the same state gives the same orders. If not, the copies cannot be used. */
dcp_status future_rematch(dcp_future *future)
{
    struct write_orders *orders = &future->saving.orders;
    if (!future->staged.sources)
        return DCP_OK;
    if (orders->count != future->order_count)
        return dcp_error_set(DCP_ERR_INTERNAL,
                             "another attempt was planned with %zu orders instead of %zu",
                             orders->count, future->order_count);
    for (size_t i = 0; i < orders->count; i++) {
        struct write_order *order = &orders->orders[i];
        if (digest_of(order) != future->digests[i])
            return dcp_error_set(DCP_ERR_INTERNAL, "%s: planned differently in another attempt",
                                 future->staged.sources[i].item->name);
        order->item = (uint32_t)i;
    }
    return DCP_OK;
}

/* ---- whole trees ---- */

/* Dense, on the host. */
static dcp_status refer_to_copies(const struct flat_state *flat, struct staging *staging)
{
    size_t next = 0;
    for (size_t i = 0; i < flat->count; i++) {
        if (flat->entries[i].node->kind != DCP_KIND_TENSOR)
            continue;
        struct state_tensor *tensor = flat->entries[i].node->as.tensor;
        for (size_t c = 0; c < tensor->chunk_count; c++) {
            struct state_chunk *chunk = &tensor->chunks[c];
            const void *bytes;
            RETURN_IF_ERROR(staging_take(staging, next++, &bytes));
            chunk->data = (void *)(uintptr_t)bytes;
            chunk->device = (dcp_device){0};
            chunk->block = NULL;
            shape_strides(tensor->ndim, chunk->sizes, chunk->strides);
        }
    }
    return DCP_OK;
}

/* Another attempt would encode objects again. */
static dcp_status own_objects(const struct flat_state *flat)
{
    for (size_t i = 0; i < flat->count; i++)
        if (flat->entries[i].node->kind != DCP_KIND_TENSOR)
            RETURN_IF_ERROR(node_own_tensors(flat->entries[i].node));
    return DCP_OK;
}

dcp_status future_stage_tree(dcp_future *future)
{
    const struct flat_state *flat = &future->saving.local.flat;
    const struct staging_options *options = &future->saving.staging.options;
    struct staging_source *sources;
    size_t count;
    RETURN_IF_ERROR(await_devices(future));
    RETURN_IF_ERROR(own_objects(flat));
    RETURN_IF_ERROR(save_staging_describe_tree(flat, &sources, &count));
    future->saving.staging.begun = &future->staged.staging;
    dcp_status status = DCP_OK;
    if (count > 0)
        status =
            staging_begin(&future->chain->pool, sources, count, options, &future->staged.staging);
    memory_release(sources);
    if (status != DCP_OK || count == 0)
        return status;
    if (!staging_is_whole(future->staged.staging))
        status = dcp_error_set(
            DCP_ERR_UNSUPPORTED,
            "staging_limit is less than the state's %" PRIu64
            " bytes, but saves with a planner or storage writer stage the whole state",
            staging_bytes(future->staged.staging));
    return status == DCP_OK ? refer_to_copies(flat, future->staged.staging) : status;
}
