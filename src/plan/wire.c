/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/wire.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"

dcp_status wire_fault(const struct reader *reader, const char *message, const char *fault)
{
    return dcp_error_set(DCP_ERR_FORMAT, "%s: %s at byte %zu of %zu", message, fault,
                         reader->position, reader->size);
}

dcp_status wire_begin(struct reader *reader, enum wire_tag tag, const char *message)
{
    uint8_t found = reader_u8(reader);
    if (reader->failed)
        return wire_fault(reader, message, "the message is empty");
    if (found != (uint8_t)tag)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: begins with 0x%02x, expected 0x%02x", message,
                             found, (unsigned)tag);
    return DCP_OK;
}

dcp_status wire_end(const struct reader *reader, const char *message)
{
    if (reader->failed)
        return wire_fault(reader, message,
                          "the message ends too early, or a number is out of range");
    if (reader_left(reader) != 0)
        return wire_fault(reader, message, "bytes behind the end of the message");
    return DCP_OK;
}

void wire_append_signed(struct buffer *out, int64_t value)
{
    buffer_append_varint(out, (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0));
}

int64_t wire_signed(struct reader *reader)
{
    uint64_t value = reader_varint(reader);
    return (int64_t)(value >> 1 ^ ((value & 1) != 0 ? UINT64_MAX : 0));
}

int64_t wire_size(struct reader *reader)
{
    uint64_t value = reader_varint(reader);
    if (value <= INT64_MAX)
        return (int64_t)value;
    reader->failed = true;
    return 0;
}

uint32_t wire_u32(struct reader *reader)
{
    uint64_t value = reader_varint(reader);
    if (value <= UINT32_MAX)
        return (uint32_t)value;
    reader->failed = true;
    return 0;
}

size_t wire_count(struct reader *reader)
{
    uint64_t value = reader_varint(reader);
    if (value <= reader_left(reader))
        return (size_t)value;
    reader->failed = true;
    return 0;
}

dcp_status wire_text(struct reader *reader, const char *message, const char **text, size_t *length)
{
    *text = reader_text(reader, length);
    if (*text == NULL)
        return wire_fault(reader, message, "a text ends too early");
    if (memchr(*text, '\0', *length) != NULL || !utf8_is_valid(*text, *length))
        return wire_fault(reader, message, "a text is not UTF-8, or contains NUL");
    return DCP_OK;
}

void wire_append_box(struct buffer *out, struct box outer, struct box box)
{
    uint64_t differing = 0;
    for (int32_t i = 0; i < box.ndim; i++)
        if (box.offsets[i] != outer.offsets[i] || box.sizes[i] != outer.sizes[i])
            differing |= (uint64_t)1 << i;
    buffer_append_varint(out, differing);
    for (int32_t i = 0; i < box.ndim; i++) {
        if ((differing >> i & 1) == 0)
            continue;
        buffer_append_varint(out, (uint64_t)box.offsets[i]);
        buffer_append_varint(out, (uint64_t)box.sizes[i]);
    }
}

dcp_status wire_box(struct reader *reader, struct arena *arena, const char *message,
                    struct box outer, struct box *box)
{
    *box = outer;
    uint64_t differing = reader_varint(reader);
    if (outer.ndim < 64 && differing >> outer.ndim != 0)
        return wire_fault(reader, message, "a box has more dimensions than its tensor");
    if (differing == 0)
        return DCP_OK;
    size_t bytes = (size_t)outer.ndim * sizeof(int64_t);
    int64_t *numbers = arena_allocate(arena, 2 * bytes);
    if (numbers == NULL)
        return error_no_memory(2 * bytes, message);
    int64_t *sizes = numbers + outer.ndim;
    memcpy(numbers, outer.offsets, bytes);
    memcpy(sizes, outer.sizes, bytes);
    for (int32_t i = 0; i < outer.ndim; i++) {
        if ((differing >> i & 1) == 0)
            continue;
        numbers[i] = wire_size(reader);
        sizes[i] = wire_size(reader);
    }
    *box = (struct box){outer.ndim, numbers, sizes};
    return DCP_OK;
}
