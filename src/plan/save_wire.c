/* SPDX-License-Identifier: BSD-3-Clause */
/* The message in which a rank's items travel. A name is told by what it shares with the one before;
 * its path by where the name is cut; dtype and shape once for all chunks of a tensor:
 *
 *   tag, number of items, then per name: shared bytes (u8), rest (text), number of path parts, per
 *   part its length and kind, flags, then
 *     object: length of the stream
 *     tensor: dtype (u8), ndim, shape, number of chunks, per chunk its box within the shape
 *
 * All numbers are varints. At most 255 bytes are shared, so that short messages make short names.
 */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "plan/save_plan.h"
#include "plan/wire.h"

enum { SHARED_MAX = 255, FLAG_TENSOR = 1, FLAG_REQUIRES_GRAD = 2, PART_IS_POSITION = 1 };

static const char message[] = "save plan";

static size_t position_length(int64_t position)
{
    size_t length = 1;
    while (position >= 10) {
        position /= 10;
        length++;
    }
    return length;
}

static dcp_status append_path(struct buffer *out, const struct write_item *item, size_t name_length)
{
    size_t total = 0;
    buffer_append_varint(out, item->path_length);
    for (size_t i = 0; i < item->path_length; i++) {
        const dcp_path_part *part = &item->path[i];
        size_t length = part->key != NULL ? strlen(part->key) : position_length(part->position);
        buffer_append_varint(out, (uint64_t)length << 1 | (part->key == NULL));
        total += length + (i != 0);
    }
    if (total != name_length)
        return dcp_error_set(DCP_ERR_INTERNAL, "\"%s\" is not its path joined by dots", item->name);
    return DCP_OK;
}

static dcp_status append_name(struct buffer *out, const struct write_item *item,
                              const char *previous)
{
    size_t length = strlen(item->name);
    size_t shared = 0;
    while (shared < SHARED_MAX && previous[shared] != '\0' &&
           previous[shared] == item->name[shared])
        shared++;
    buffer_append_u8(out, (uint8_t)shared);
    buffer_append_text(out, item->name + shared, length - shared);
    return append_path(out, item, length);
}

/* How many items from this one on are chunks of one tensor. */
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
    buffer_append_u8(out, (uint8_t)items->dtype);
    buffer_append_varint(out, (uint64_t)items->ndim);
    for (int32_t i = 0; i < items->ndim; i++)
        buffer_append_varint(out, (uint64_t)items->global_shape[i]);
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
        RETURN_IF_ERROR(append_name(out, item, previous));
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
        item; /* being read; before that the one before, whose name and path it shares */
};

static dcp_status fault(const struct plan_reader *in, const char *what)
{
    return wire_fault(&in->reader, message, what);
}

static dcp_status read_name(struct plan_reader *in, size_t *name_length)
{
    const char *previous = in->item.name != NULL ? in->item.name : "";
    size_t shared = reader_u8(&in->reader);
    size_t length;
    const char *rest = reader_text(&in->reader, &length);
    if (rest == NULL || shared > strlen(previous))
        return fault(in, "name cut short");
    char *name = arena_allocate(&in->plan->arena, shared + length + 1);
    if (name == NULL)
        return error_no_memory(shared + length + 1, message);
    memcpy(name, previous, shared);
    memcpy(name + shared, rest, length);
    *name_length = shared + length;
    name[*name_length] = '\0';
    if (memchr(rest, '\0', length) != NULL || !utf8_is_valid(name, *name_length))
        return fault(in, "name that is not UTF-8 without NUL");
    in->item.name = name;
    return DCP_OK;
}

/* The end of the name is a key already, and neighbours mostly share the keys before it. */
static dcp_status read_key(struct plan_reader *in, const char *text, size_t length, bool last,
                           const dcp_path_part *before, const char **key)
{
    if (last) {
        *key = text;
        return DCP_OK;
    }
    if (before != NULL && before->key != NULL && strncmp(before->key, text, length) == 0 &&
        before->key[length] == '\0') {
        *key = before->key;
        return DCP_OK;
    }
    *key = arena_copy_text(&in->plan->arena, text, length);
    return *key != NULL ? DCP_OK : error_no_memory(length + 1, message);
}

static bool parse_position(const char *text, size_t length, int64_t *position)
{
    *position = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || !checked_multiply_i64(*position, 10, position) ||
            !checked_add_i64(*position, text[i] - '0', position))
            return false;
    }
    return position_length(*position) == length;
}

static dcp_status read_path(struct plan_reader *in, size_t name_length)
{
    struct write_item *item = &in->item;
    size_t count = wire_count(&in->reader);
    if (count == 0)
        return fault(in, "no path");
    dcp_path_part *path = arena_allocate_array(&in->plan->arena, count, sizeof *path);
    if (path == NULL)
        return error_no_memory(count * sizeof *path, message);
    size_t start = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t part = reader_varint(&in->reader);
        bool last = i == count - 1;
        if (start > name_length || part >> 1 > name_length - start ||
            (last && part >> 1 != name_length - start))
            return fault(in, "path that does not fit its name");
        size_t length = (size_t)(part >> 1);
        const char *text = item->name + start;
        path[i] = (dcp_path_part){NULL, 0};
        if ((part & PART_IS_POSITION) == 0)
            RETURN_IF_ERROR(read_key(in, text, length, last,
                                     i < item->path_length ? &item->path[i] : NULL, &path[i].key));
        else if (!parse_position(text, length, &path[i].position))
            return fault(in, "list position that is no number");
        if (!last && text[length] != '.')
            return fault(in, "path that does not fit its name");
        start += length + 1;
    }
    item->path = path;
    item->path_length = count;
    return DCP_OK;
}

static dcp_status read_tensor(struct plan_reader *in)
{
    struct write_item *item = &in->item;
    item->dtype = (dcp_dtype)reader_u8(&in->reader);
    uint32_t ndim = wire_u32(&in->reader);
    if (in->reader.failed || dcp_dtype_size(item->dtype) == 0 || ndim > DCP_MAX_DIMS)
        return fault(in, "unknown dtype or too many dimensions");
    item->ndim = (int32_t)ndim;
    int64_t *shape = arena_allocate_array(&in->plan->arena, ndim, sizeof *shape);
    if (shape == NULL)
        return error_no_memory(ndim * sizeof *shape, message);
    for (uint32_t i = 0; i < ndim; i++)
        shape[i] = wire_size(&in->reader);
    uint64_t bytes;
    if (in->reader.failed || !shape_bytes(item->ndim, shape, item->dtype, &bytes))
        return fault(in, "shape that is too large");
    item->global_shape = shape;
    return DCP_OK;
}

static dcp_status read_chunks(struct plan_reader *in)
{
    struct write_item *item = &in->item;
    struct box whole = box_whole(item->ndim, item->global_shape);
    size_t count = wire_count(&in->reader);
    if (count == 0 || count > in->count - in->plan->count)
        return fault(in, "another number of chunks than announced");
    for (size_t i = 0; i < count; i++) {
        RETURN_IF_ERROR(wire_box(&in->reader, &in->plan->arena, message, whole, &item->box));
        if (in->reader.failed || !box_check(item->box, item->global_shape))
            return fault(in, "chunk that leaves its tensor");
        in->plan->items[in->plan->count++] = *item;
    }
    return DCP_OK;
}

static dcp_status read_entry(struct plan_reader *in)
{
    struct write_item *item = &in->item;
    size_t name_length = 0;
    RETURN_IF_ERROR(read_name(in, &name_length));
    RETURN_IF_ERROR(read_path(in, name_length));
    uint8_t flags = reader_u8(&in->reader);
    if (flags > (FLAG_TENSOR | FLAG_REQUIRES_GRAD))
        return fault(in, "unknown flags");
    item->is_tensor = (flags & FLAG_TENSOR) != 0;
    item->requires_grad = (flags & FLAG_REQUIRES_GRAD) != 0;
    item->object_length = 0;
    if (item->is_tensor) {
        RETURN_IF_ERROR(read_tensor(in));
        return read_chunks(in);
    }
    item->object_length = reader_varint(&in->reader);
    item->dtype = DCP_DTYPE_NONE;
    item->ndim = 0;
    item->global_shape = NULL;
    item->box = (struct box){0};
    if (in->reader.failed || item->object_length > INT64_MAX)
        return fault(in, "object cut short or too long");
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
