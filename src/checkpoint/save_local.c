/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save_local.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/item.h"
#include "format/stream.h"
#include "plan/save_plan.h"
#include "state/device_memory.h"

static dcp_status check_tensor(const struct flat_entry *entry)
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
        dcp_status status = device_check_memory(&chunk->device, chunk->data, box);
        if (status != DCP_OK)
            return error_prefix(status, "%s", entry->name);
    }
    return DCP_OK;
}

static dcp_status encode_objects(struct save_local *local)
{
    struct buffer pickle;
    dcp_status status = DCP_OK;

    buffer_init(&pickle, 0);
    for (size_t i = 0; i < local->flat.count && status == DCP_OK; i++) {
        const struct flat_entry *entry = &local->flat.entries[i];
        if (entry->node->kind == DCP_KIND_TENSOR) {
            status = check_tensor(entry);
            continue;
        }
        buffer_clear(&pickle);
        status = item_encode_object(entry->node, &pickle);
        if (status != DCP_OK) {
            error_prefix(status, "%s", entry->name);
            break;
        }
        local->stream_offsets[i] = local->streams.size;
        status = stream_object(&local->streams, pickle.data, pickle.size);
        local->stream_lengths[i] = local->streams.size - local->stream_offsets[i];
    }
    buffer_free(&pickle);
    return status;
}

/* A tensor of which this rank holds no chunk has an item all the same, of no elements. */
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

dcp_status save_local_stage(dcp_state *state, struct save_local *local)
{
    memset(local, 0, sizeof *local);
    buffer_init(&local->streams, 0);
    if (!state)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to save is NULL");
    RETURN_IF_ERROR(flatten_state(state, &local->flat));

    local->stream_offsets = memory_allocate_zeroed(local->flat.count, sizeof(uint64_t));
    local->stream_lengths = memory_allocate_zeroed(local->flat.count, sizeof(uint64_t));
    if (!local->stream_offsets || !local->stream_lengths)
        return error_no_memory(local->flat.count * sizeof(uint64_t), "lengths of objects");
    return encode_objects(local);
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

void save_local_free(struct save_local *local)
{
    memory_release(local->sources);
    save_plan_free(&local->plan);
    memory_release(local->stream_lengths);
    memory_release(local->stream_offsets);
    buffer_free(&local->streams);
    flatten_free(&local->flat);
}
