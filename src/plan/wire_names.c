/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/wire_names.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "plan/wire.h"

enum { SHARED_MAX = 255, PART_IS_POSITION = 1 };

static size_t position_length(int64_t position)
{
    size_t length = 1;
    while (position >= 10) {
        position /= 10;
        length++;
    }
    return length;
}

static dcp_status append_path(struct buffer *out, const struct wire_name *name, size_t name_length)
{
    size_t total = 0;
    buffer_append_varint(out, name->path_length);
    for (size_t i = 0; i < name->path_length; i++) {
        const dcp_path_part *part = &name->path[i];
        size_t length = part->key != NULL ? strlen(part->key) : position_length(part->position);
        buffer_append_varint(out, (uint64_t)length << 1 | (part->key == NULL));
        total += length + (i != 0);
    }
    if (total != name_length)
        return dcp_error_set(DCP_ERR_INTERNAL,
                             "the name \"%s\" differs from its path joined by dots", name->text);
    return DCP_OK;
}

dcp_status wire_append_name(struct buffer *out, const struct wire_name *name, const char *previous)
{
    size_t length = strlen(name->text);
    size_t shared = 0;
    while (shared < SHARED_MAX && previous[shared] != '\0' &&
           previous[shared] == name->text[shared])
        shared++;
    buffer_append_u8(out, (uint8_t)shared);
    buffer_append_text(out, name->text + shared, length - shared);
    return append_path(out, name, length);
}

/* State while a name is read. */
struct name_reader {
    struct reader *reader;
    struct arena *arena;
    const char *message;
};

static dcp_status fault(const struct name_reader *in, const char *what)
{
    return wire_fault(in->reader, in->message, what);
}

static dcp_status read_text(const struct name_reader *in, const char *previous, const char **text,
                            size_t *text_length)
{
    size_t shared = reader_u8(in->reader);
    size_t length;
    const char *rest = reader_text(in->reader, &length);
    if (rest == NULL || shared > strlen(previous))
        return fault(in, "a name ends too early");
    char *name = arena_allocate(in->arena, shared + length + 1);
    if (name == NULL)
        return error_no_memory(shared + length + 1, in->message);
    memcpy(name, previous, shared);
    memcpy(name + shared, rest, length);
    *text_length = shared + length;
    name[*text_length] = '\0';
    if (memchr(rest, '\0', length) != NULL || !utf8_is_valid(name, *text_length))
        return fault(in, "a name is not UTF-8, or contains NUL");
    *text = name;
    return DCP_OK;
}

/* A key at the end of the name is borrowed from it, and most neighbours share the keys before. */
static dcp_status read_key(const struct name_reader *in, const char *text, size_t length, bool last,
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
    *key = arena_copy_text(in->arena, text, length);
    return *key != NULL ? DCP_OK : error_no_memory(length + 1, in->message);
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

static dcp_status read_path(const struct name_reader *in, struct wire_name *name,
                            size_t name_length)
{
    size_t count = wire_count(in->reader);
    if (count == 0)
        return fault(in, "no path");
    dcp_path_part *path = arena_allocate_array(in->arena, count, sizeof *path);
    if (path == NULL)
        return error_no_memory(count * sizeof *path, in->message);
    size_t start = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t part = reader_varint(in->reader);
        bool last = i == count - 1;
        if (start > name_length || part >> 1 > name_length - start ||
            (last && part >> 1 != name_length - start))
            return fault(in, "a path does not match its name");
        size_t length = (size_t)(part >> 1);
        const char *text = name->text + start;
        path[i] = (dcp_path_part){NULL, 0};
        if ((part & PART_IS_POSITION) == 0)
            RETURN_IF_ERROR(read_key(in, text, length, last,
                                     i < name->path_length ? &name->path[i] : NULL, &path[i].key));
        else if (!parse_position(text, length, &path[i].position))
            return fault(in, "a list position is not a number");
        if (!last && text[length] != '.')
            return fault(in, "a path does not match its name");
        start += length + 1;
    }
    name->path = path;
    name->path_length = count;
    return DCP_OK;
}

dcp_status wire_name(struct reader *reader, struct arena *arena, const char *message,
                     struct wire_name *name)
{
    struct name_reader in = {reader, arena, message};
    size_t length = 0;
    RETURN_IF_ERROR(read_text(&in, name->text != NULL ? name->text : "", &name->text, &length));
    return read_path(&in, name, length);
}

void wire_append_shape(struct buffer *out, const struct wire_shape *shape)
{
    buffer_append_u8(out, (uint8_t)shape->dtype);
    buffer_append_varint(out, (uint64_t)shape->ndim);
    for (int32_t i = 0; i < shape->ndim; i++)
        buffer_append_varint(out, (uint64_t)shape->sizes[i]);
}

dcp_status wire_shape(struct reader *reader, struct arena *arena, const char *message,
                      struct wire_shape *shape)
{
    shape->dtype = (dcp_dtype)reader_u8(reader);
    uint32_t ndim = wire_u32(reader);
    if (reader->failed || dcp_dtype_size(shape->dtype) == 0 || ndim > DCP_MAX_DIMS)
        return wire_fault(reader, message,
                          "a dtype is unknown, or a shape has too many dimensions");
    int64_t *sizes = arena_allocate_array(arena, ndim, sizeof *sizes);
    if (sizes == NULL)
        return error_no_memory(ndim * sizeof *sizes, message);
    for (uint32_t i = 0; i < ndim; i++)
        sizes[i] = wire_size(reader);
    shape->ndim = (int32_t)ndim;
    shape->sizes = sizes;
    uint64_t bytes;
    if (reader->failed || !shape_bytes(shape->ndim, sizes, shape->dtype, &bytes))
        return wire_fault(reader, message, "a shape is too large");
    return DCP_OK;
}
