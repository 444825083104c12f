/* SPDX-License-Identifier: BSD-3-Clause */
/* The message that carries a rank's items, with dtype and shape once for all chunks of a tensor:
 *
 *   tag, number of items, then per name: the name with its path, flags, then
 *     object: length of the stream
 *     tensor: shape, number of chunks, per chunk its box within the shape
 *
 * All numbers are varints. */
#include "base/error.h"
#include "plan/save/save_plan.h"
#include "plan/wire.h"
#include "plan/wire_names.h"

enum { FLAG_TENSOR = 1, FLAG_REQUIRES_GRAD = 2 };

static const char message[] = "save plan";

/* The number of items from this one on that are chunks of the same tensor. */
static size_t count_chunks(const struct save_plan *plan, size_t first)
{
    const struct write_item *item = &plan->items[first];
    size_t end = first + 1;
    while (end < plan->count && plan->items[end].name == item->name)
        end++;
    return end - first;
}

static void append_chunks(struct buffer *out, const struct write_item *items, size_t count)
{
    struct wire_shape shape = {items->dtype, items->ndim, items->global_shape};
    wire_append_shape(out, &shape);
    buffer_append_varint(out, count);
    for (size_t i = 0; i < count; i++)
        wire_append_box(out, box_whole(items->ndim, items->global_shape), items[i].box);
}

dcp_status save_plan_encode(const struct save_plan *plan, struct buffer *out)
{
    const char *previous = "";
    buffer_append_u8(out, WIRE_SAVE_PLAN);
    buffer_append_varint(out, plan->count);
    size_t next = 0;
    while (next < plan->count) {
        const struct write_item *item = &plan->items[next];
        struct wire_name name = {item->name, item->path, item->path_length};
        RETURN_IF_ERROR(wire_append_name(out, &name, previous));
        previous = item->name;
        buffer_append_u8(out, (uint8_t)((item->is_tensor ? FLAG_TENSOR : 0) |
                                        (item->requires_grad ? FLAG_REQUIRES_GRAD : 0)));
        if (!item->is_tensor) {
            buffer_append_varint(out, item->object_length);
            next++;
            continue;
        }
        size_t count = count_chunks(plan, next);
        append_chunks(out, item, count);
        next += count;
    }
    return buffer_status(out);
}

struct plan_reader {
    struct reader reader;
    struct save_plan *plan;
    size_t count; /* items announced */
    struct write_item
        item; /* the item being read; first holds the previous one, which may share name and path */
};

static dcp_status fault(const struct plan_reader *in, const char *what)
{
    return wire_fault(&in->reader, message, what);
}

static dcp_status read_chunks(struct plan_reader *in)
{
    struct write_item *item = &in->item;
    struct box whole = box_whole(item->ndim, item->global_shape);
    size_t count = wire_count(&in->reader);
    if (count == 0 || count > in->count - in->plan->count)
        return fault(in, "the number of chunks differs from the one announced");
    for (size_t i = 0; i < count; i++) {
        RETURN_IF_ERROR(wire_box(&in->reader, &in->plan->arena, message, whole, &item->box));
        if (in->reader.failed || !box_check(item->box, item->global_shape))
            return fault(in, "a chunk is not inside its tensor");
        in->plan->items[in->plan->count++] = *item;
    }
    return DCP_OK;
}

static dcp_status read_entry(struct plan_reader *in)
{
    struct write_item *item = &in->item;
    struct arena *arena = &in->plan->arena;
    struct wire_name name = {item->name, item->path, item->path_length};
    RETURN_IF_ERROR(wire_name(&in->reader, arena, message, &name));
    item->name = name.text;
    item->path = name.path;
    item->path_length = name.path_length;
    uint8_t flags = reader_u8(&in->reader);
    if (flags > (FLAG_TENSOR | FLAG_REQUIRES_GRAD))
        return fault(in, "unknown flags");
    item->is_tensor = (flags & FLAG_TENSOR) != 0;
    item->requires_grad = (flags & FLAG_REQUIRES_GRAD) != 0;
    item->object_length = 0;
    if (item->is_tensor) {
        struct wire_shape shape;
        RETURN_IF_ERROR(wire_shape(&in->reader, arena, message, &shape));
        item->dtype = shape.dtype;
        item->ndim = shape.ndim;
        item->global_shape = shape.sizes;
        return read_chunks(in);
    }
    item->object_length = reader_varint(&in->reader);
    item->dtype = DCP_DTYPE_NONE;
    item->ndim = 0;
    item->global_shape = NULL;
    item->box = (struct box){0};
    if (in->reader.failed || item->object_length > INT64_MAX)
        return fault(in, "an object ends too early or is too long");
    in->plan->items[in->plan->count++] = *item;
    return DCP_OK;
}

dcp_status save_plan_decode(const void *bytes, size_t size, struct save_plan *plan)
{
    struct plan_reader in = {.plan = plan};
    *plan = (struct save_plan){0};
    arena_init(&plan->arena, 0);
    reader_init(&in.reader, bytes, size);
    RETURN_IF_ERROR(wire_begin(&in.reader, WIRE_SAVE_PLAN, message));
    in.count = wire_count(&in.reader);
    if (in.count > UINT32_MAX)
        return fault(&in, "too many items");
    plan->items = arena_allocate_array(&plan->arena, in.count, sizeof *plan->items);
    if (plan->items == NULL)
        return error_no_memory(in.count * sizeof *plan->items, message);
    while (plan->count < in.count)
        RETURN_IF_ERROR(read_entry(&in));
    return wire_end(&in.reader, message);
}
