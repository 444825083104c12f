/* SPDX-License-Identifier: BSD-3-Clause */
/* The message in which a rank's orders travel back:
 *
 *   tag, number of files, number of orders, per order: item, file, the box within the item's box
 *   (tensors), offset, offset of the data, length
 *
 * All numbers are varints. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "plan/save_plan.h"
#include "plan/wire.h"

static const char message[] = "write orders";

dcp_status write_orders_encode(const struct write_orders *orders, const struct save_plan *plan,
                               struct buffer *out)
{
    buffer_append_u8(out, WIRE_WRITE_ORDERS);
    buffer_append_varint(out, orders->file_count);
    buffer_append_varint(out, orders->count);
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        const struct write_item *item = &plan->items[order->item];
        buffer_append_varint(out, order->item);
        buffer_append_varint(out, order->file);
        if (item->is_tensor)
            wire_append_box(out, item->box, order->box);
        buffer_append_varint(out, order->offset);
        buffer_append_varint(out, order->data_offset);
        buffer_append_varint(out, order->length);
    }
    return buffer_status(out);
}

/* A part of the item's box, or no element at all. */
static bool box_is_offered(const struct write_item *item, struct box box)
{
    if (!box_check(box, item->global_shape))
        return false;
    if (box_volume(box) == 0)
        return true;
    for (int32_t i = 0; i < box.ndim; i++) {
        int64_t start = item->box.offsets[i];
        if (box.offsets[i] < start || box.offsets[i] + box.sizes[i] > start + item->box.sizes[i])
            return false;
    }
    return true;
}

static bool stream_holds_item(const struct write_item *item, const struct write_order *order)
{
    uint64_t end;
    if (!checked_add_u64(order->offset, order->length, &end) || end > INT64_MAX)
        return false;
    if (!item->is_tensor)
        return order->data_offset == 0 && order->length == item->object_length;
    uint64_t bytes;
    return shape_bytes(order->box.ndim, order->box.sizes, item->dtype, &bytes) &&
           order->data_offset <= order->length && bytes <= order->length - order->data_offset;
}

static bool order_follows(const struct write_order *before, const struct write_order *order)
{
    return order->file > before->file ||
           (order->file == before->file && order->offset >= before->offset + before->length);
}

static dcp_status read_order(struct reader *reader, const struct save_plan *plan,
                             struct write_orders *orders)
{
    struct write_order *order = &orders->orders[orders->count];
    *order = (struct write_order){0};
    order->item = wire_u32(reader);
    order->file = wire_u32(reader);
    if (reader->failed || order->item >= plan->count || order->file >= orders->file_count)
        return wire_fault(reader, message, "unknown item or file");
    const struct write_item *item = &plan->items[order->item];
    if (item->is_tensor)
        RETURN_IF_ERROR(wire_box(reader, &orders->arena, message, item->box, &order->box));
    order->offset = reader_varint(reader);
    order->data_offset = reader_varint(reader);
    order->length = reader_varint(reader);
    if (reader->failed || (item->is_tensor && !box_is_offered(item, order->box)))
        return wire_fault(reader, message, "box outside of the item");
    if (!stream_holds_item(item, order))
        return wire_fault(reader, message, "stream that cannot hold the item");
    if (orders->count > 0 && !order_follows(order - 1, order))
        return wire_fault(reader, message, "streams out of order");
    orders->count++;
    return DCP_OK;
}

dcp_status write_orders_decode(const void *bytes, size_t size, const struct save_plan *plan,
                               struct write_orders *orders)
{
    struct reader reader;
    *orders = (struct write_orders){0};
    arena_init(&orders->arena, 0);
    reader_init(&reader, bytes, size);
    RETURN_IF_ERROR(wire_begin(&reader, WIRE_WRITE_ORDERS, message));
    orders->file_count = wire_u32(&reader);
    size_t count = wire_count(&reader);
    orders->orders = arena_allocate_array(&orders->arena, count, sizeof *orders->orders);
    if (orders->orders == NULL)
        return error_no_memory(count * sizeof *orders->orders, message);
    while (orders->count < count)
        RETURN_IF_ERROR(read_order(&reader, plan, orders));
    return wire_end(&reader, message);
}
