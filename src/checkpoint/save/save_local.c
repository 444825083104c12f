/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_local.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/streams/item.h"
#include "plan/save/save_plan.h"
#include "state/device_memory.h"

static dcp_status check_tensor(const struct flat_entry *entry, bool *host_only)
{
    const struct state_tensor *tensor = entry->node->as.tensor;
    for (size_t i = 0; i < tensor->chunk_count; i++) {
        const struct state_chunk *chunk = &tensor->chunks[i];
        struct box box = {tensor->ndim, chunk->offsets, chunk->sizes};
        if (!chunk->data && box_volume(box) > 0) {
            char text[256];
            return dcp_error_set(DCP_ERR_ARGUMENT, "%s: chunk %s has no memory to save from",
                                 entry->name, box_format(box, text, sizeof text));
        }
        *host_only = *host_only && device_is_host(&chunk->device);
        dcp_status status = device_check_memory(&chunk->device, chunk->data, box);
        if (status != DCP_OK)
            return error_prefix(status, "%s", entry->name);
    }
    return DCP_OK;
}

dcp_status save_local_check_tensors(struct flat_state *flat)
{
    bool host_only = true;
    for (size_t i = 0; i < flat->count; i++)
        if (flat->entries[i].node->kind == DCP_KIND_TENSOR)
            RETURN_IF_ERROR(check_tensor(&flat->entries[i], &host_only));
    flat->host_only = host_only;
    return DCP_OK;
}

dcp_status save_local_encode(struct save_local *local)
{
    for (size_t i = 0; i < local->flat.count; i++) {
        const struct flat_entry *entry = &local->flat.entries[i];
        if (entry->node->kind == DCP_KIND_TENSOR)
            continue;
        local->stream_offsets[i] = local->streams.size;
        dcp_status status = item_encode_stream(entry->node, &local->streams);
        if (status != DCP_OK)
            return error_prefix(status, "%s", entry->name);
        local->stream_lengths[i] = local->streams.size - local->stream_offsets[i];
    }
    return DCP_OK;
}

/* A tensor without chunks on this rank has an empty item all the same. */
static dcp_status find_sources(struct save_local *local)
{
    local->sources = memory_allocate_zeroed(local->plan.count, sizeof *local->sources);
    if (!local->sources)
        return error_no_memory(local->plan.count * sizeof *local->sources, "sources of a save");
    for (size_t i = 0; i < local->plan.count; i++) {
        const struct write_item *item = &local->plan.items[i];
        const struct flat_entry *entry = &local->flat.entries[item->entry];
        local->sources[i].item = item;
        if (!item->is_tensor)
            local->sources[i].stream = local->streams.data + local->stream_offsets[item->entry];
        else if (item->chunk < entry->node->as.tensor->chunk_count)
            local->sources[i].chunk = &entry->node->as.tensor->chunks[item->chunk];
    }
    return DCP_OK;
}

dcp_status save_local_flatten(dcp_state *state, bool unflattened, struct save_local *local)
{
    struct flatten_rules rules = {.top_only = unflattened};

    memset(local, 0, sizeof *local);
    buffer_init(&local->streams, 0);
    if (!state)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to save is NULL");
    RETURN_IF_ERROR(flatten_by_rules(state, &rules, &local->flat));

    local->stream_offsets = memory_allocate_zeroed(local->flat.count, sizeof(uint64_t));
    local->stream_lengths = memory_allocate_zeroed(local->flat.count, sizeof(uint64_t));
    if (!local->stream_offsets || !local->stream_lengths)
        return error_no_memory(local->flat.count * sizeof(uint64_t), "lengths of objects");
    return save_local_check_tensors(&local->flat);
}

dcp_status save_local_plan(struct save_local *local)
{
    RETURN_IF_ERROR(save_plan_local(&local->flat, local->stream_lengths, &local->plan));
    return find_sources(local);
}

uint64_t save_local_bytes(const struct save_local *local, const struct write_orders *orders)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        const struct write_item *item = &local->plan.items[order->item];
        bytes += item->is_tensor ? (uint64_t)box_volume(order->box) * dcp_dtype_size(item->dtype)
                                 : item->object_length;
    }
    return bytes;
}

void save_local_unplan(struct save_local *local)
{
    memory_release(local->sources);
    local->sources = NULL;
    save_plan_free(&local->plan);
    buffer_clear(&local->streams);
}

void save_local_free(struct save_local *local)
{
    save_local_unplan(local);
    memory_release(local->stream_lengths);
    memory_release(local->stream_offsets);
    buffer_free(&local->streams);
    flatten_free(&local->flat);
}
