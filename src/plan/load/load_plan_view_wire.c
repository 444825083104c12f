/* SPDX-License-Identifier: BSD-3-Clause */
/* The message that carries the items of a load plan:
 *
 *   tag, number of items, per item: destination's name, stored name (texts), for an object 0, for a
 *   tensor 1 + its dimensions and, for each dimension, offset of the destination's chunk, of the
 *   stored chunk, of the part in either, and length
 *
 * All numbers are varints. */
#include <string.h>

#include "base/error.h"
#include "plan/load/load_plan_view.h"
#include "plan/wire.h"

static const char message[] = "load plan";

void load_plan_view_encode(const struct dcp_load_plan *plan, struct buffer *out)
{
    buffer_append_u8(out, WIRE_READ_PLAN);
    buffer_append_varint(out, plan->count);
    for (size_t i = 0; i < plan->count; i++) {
        const dcp_read_item *item = &plan->items[i];
        buffer_append_text(out, item->destination.name, strlen(item->destination.name));
        buffer_append_text(out, item->stored.name, strlen(item->stored.name));
        buffer_append_varint(out, item->is_tensor ? 1 + (uint64_t)item->stored.ndim : 0);
        for (int32_t d = 0; item->is_tensor && d < item->stored.ndim; d++) {
            buffer_append_varint(out, (uint64_t)item->destination.offsets[d]);
            buffer_append_varint(out, (uint64_t)item->stored.offsets[d]);
            buffer_append_varint(out, (uint64_t)item->destination_offsets[d]);
            buffer_append_varint(out, (uint64_t)item->stored_offsets[d]);
            buffer_append_varint(out, (uint64_t)item->lengths[d]);
        }
    }
}

/* A name, NUL-terminated, in the plan's memory. */
static dcp_status read_name(struct reader *reader, struct dcp_load_plan *plan, const char **name)
{
    const char *text;
    size_t length;
    RETURN_IF_ERROR(wire_text(reader, message, &text, &length));
    *name = arena_copy_text(&plan->arena, text, length);
    return *name != NULL ? DCP_OK : error_no_memory(length, message);
}

static dcp_status read_item(struct reader *reader, struct dcp_load_plan *plan)
{
    int64_t numbers[5][DCP_MAX_DIMS];
    dcp_read_item item = {0};
    RETURN_IF_ERROR(read_name(reader, plan, &item.destination.name));
    RETURN_IF_ERROR(read_name(reader, plan, &item.stored.name));
    uint32_t dimensions = wire_u32(reader);
    if (reader->failed || dimensions > 1 + DCP_MAX_DIMS)
        return wire_fault(reader, message, "an item has too many dimensions");
    item.is_tensor = dimensions > 0;
    int32_t ndim = item.is_tensor ? (int32_t)dimensions - 1 : 0;
    for (int32_t d = 0; d < ndim; d++)
        for (int n = 0; n < 5; n++)
            numbers[n][d] = wire_size(reader);
    if (reader->failed)
        return wire_fault(reader, message, "an item ends too early");
    item.destination.ndim = item.stored.ndim = ndim;
    item.destination.offsets = numbers[0];
    item.stored.offsets = numbers[1];
    item.destination_offsets = numbers[2];
    item.stored_offsets = numbers[3];
    item.lengths = numbers[4];
    return dcp_load_plan_add_sized(plan, &item, sizeof item);
}

dcp_status load_plan_view_decode(struct reader *reader, struct dcp_load_plan *plan)
{
    RETURN_IF_ERROR(wire_begin(reader, WIRE_READ_PLAN, message));
    size_t count = wire_count(reader);
    for (size_t i = 0; i < count && !reader->failed; i++)
        RETURN_IF_ERROR(read_item(reader, plan));
    return reader->failed ? wire_fault(reader, message, "the message ends too early") : DCP_OK;
}
