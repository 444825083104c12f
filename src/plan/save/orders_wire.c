/* SPDX-License-Identifier: BSD-3-Clause */
/* The message that carries a rank's orders back to it:
 *
 *   tag, number of files, number of orders, per order: item, file and whether the box is another
 *   than the item's own, that box, offset after the end of the order before in the file, offset of
 *   the data, room for the stream
 *
 * All numbers are varints. */
#include "base/checked.h"
#include "base/error.h"
#include "plan/save/save_plan.h"
#include "plan/wire.h"

static const char message[] = "write orders";

static void append_box(struct buffer *out, struct box box)
{
    for (int32_t i = 0; i < box.ndim; i++) {
        buffer_append_varint(out, (uint64_t)box.offsets[i]);
        buffer_append_varint(out, (uint64_t)box.sizes[i]);
    }
}

dcp_status write_orders_encode(const struct write_orders *orders, struct buffer *out)
{
    uint64_t end = 0;
    buffer_append_u8(out, WIRE_WRITE_ORDERS);
    buffer_append_varint(out, orders->file_count);
    buffer_append_varint(out, orders->count);
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        buffer_append_varint(out, order->item);
        buffer_append_varint(out, (uint64_t)order->file << 1 | order->is_part);
        if (order->is_part)
            append_box(out, order->box);
        end = i > 0 && order->file == order[-1].file ? end : 0;
        buffer_append_varint(out, order->offset - end);
        buffer_append_varint(out, order->data_offset);
        buffer_append_varint(out, order->room);
        end = order->offset + order->room;
    }
    return buffer_status(out);
}

/* A tensor's stream fills its space exactly; an object's is as long as the object is now. */
static bool room_holds_item(const struct write_item *item, struct write_order *order)
{
    uint64_t end, bytes;
    if (!checked_add_u64(order->offset, order->room, &end) || end > INT64_MAX)
        return false;
    order->length = item->is_tensor ? order->room : item->object_length;
    if (!item->is_tensor)
        return order->data_offset == 0 && order->length <= order->room;
    return shape_bytes(order->box.ndim, order->box.sizes, item->dtype, &bytes) &&
           order->data_offset <= order->length && bytes <= order->length - order->data_offset;
}

static dcp_status read_box(struct reader *reader, struct arena *arena, int32_t ndim,
                           struct box *box)
{
    int64_t *numbers = arena_allocate_array(arena, 2 * (size_t)ndim, sizeof *numbers);
    if (numbers == NULL)
        return error_no_memory(2 * (size_t)ndim * sizeof *numbers, message);
    for (int32_t i = 0; i < ndim; i++) {
        numbers[i] = wire_size(reader);
        numbers[ndim + i] = wire_size(reader);
    }
    *box = (struct box){ndim, numbers, numbers + ndim};
    return DCP_OK;
}

/* The item, the file, and the part of the item. */
static dcp_status read_target(struct reader *reader, const struct save_plan *plan,
                              struct write_orders *orders, struct write_order *order)
{
    order->item = wire_u32(reader);
    uint64_t file = reader_varint(reader);
    if (reader->failed || order->item >= plan->count || file >> 1 >= orders->file_count)
        return wire_fault(reader, message, "an order names an unknown item or file");
    const struct write_item *item = &plan->items[order->item];
    order->file = (uint32_t)(file >> 1);
    order->is_part = (file & 1) != 0;
    order->box = item->box;
    if (!order->is_part)
        return DCP_OK;
    if (!item->is_tensor)
        return wire_fault(reader, message, "an order is for a part of an object");
    return read_box(reader, &orders->arena, item->ndim, &order->box);
}

static dcp_status read_order(struct reader *reader, const struct save_plan *plan,
                             struct write_orders *orders)
{
    struct write_order *order = &orders->orders[orders->count];
    const struct write_order *before = orders->count > 0 ? order - 1 : NULL;
    *order = (struct write_order){0};
    RETURN_IF_ERROR(read_target(reader, plan, orders, order));
    if (before != NULL && order->file < before->file)
        return wire_fault(reader, message, "streams are not in order");
    uint64_t end =
        before != NULL && order->file == before->file ? before->offset + before->room : 0;
    uint64_t gap = reader_varint(reader);
    order->data_offset = reader_varint(reader);
    order->room = reader_varint(reader);
    const struct write_item *item = &plan->items[order->item];
    if (reader->failed || (order->is_part && !write_item_offers(item, order->box)))
        return wire_fault(reader, message, "a box is not inside its item");
    if (!checked_add_u64(end, gap, &order->offset) || !room_holds_item(item, order))
        return wire_fault(reader, message, "the space for a stream is too small for its item");
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
