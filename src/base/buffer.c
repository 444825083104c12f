/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/buffer.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Bytes of the largest number. */
enum { VARINT_MOST = 10 };

uint16_t load_u16(const void *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return le16toh(value);
}

uint32_t load_u32(const void *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return le32toh(value);
}

uint64_t load_u64(const void *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return le64toh(value);
}

void store_u16(void *bytes, uint16_t value)
{
    value = htole16(value);
    memcpy(bytes, &value, sizeof value);
}

void store_u32(void *bytes, uint32_t value)
{
    value = htole32(value);
    memcpy(bytes, &value, sizeof value);
}

void store_u64(void *bytes, uint64_t value)
{
    value = htole64(value);
    memcpy(bytes, &value, sizeof value);
}

void buffer_init(struct buffer *buffer, size_t maximum)
{
    *buffer = (struct buffer){.maximum = maximum};
}

void buffer_free(struct buffer *buffer)
{
    memory_release(buffer->data);
    buffer_init(buffer, buffer->maximum);
}

void buffer_set_maximum(struct buffer *buffer, size_t maximum)
{
    buffer->maximum = maximum;
}

void buffer_clear(struct buffer *buffer)
{
    buffer->size = 0;
    buffer->status = DCP_OK;
}

dcp_status buffer_status(const struct buffer *buffer)
{
    if (buffer->status == DCP_ERR_NO_MEMORY)
        return error_no_memory(buffer->capacity, "a growing buffer");
    if (buffer->status != DCP_OK)
        return dcp_error_set(buffer->status, "the output exceeds its limit of %zu bytes",
                             buffer->maximum);
    return DCP_OK;
}

/* As buffer_reserve(), but sets no error message; buffer_status() does. */
static bool make_room(struct buffer *buffer, size_t more)
{
    if (buffer->status != DCP_OK)
        return false;
    size_t needed;
    if (__builtin_add_overflow(buffer->size, more, &needed)) {
        buffer->status = DCP_ERR_NO_MEMORY;
        return false;
    }
    if (buffer->maximum != 0 && needed > buffer->maximum) {
        buffer->status = DCP_ERR_UNSUPPORTED;
        return false;
    }
    if (needed <= buffer->capacity)
        return true;
    size_t capacity = buffer->capacity <= SIZE_MAX / 2 ? buffer->capacity * 2 : SIZE_MAX;
    if (capacity < 64)
        capacity = 64;
    if (buffer->maximum != 0 && capacity > buffer->maximum)
        capacity = buffer->maximum;
    if (capacity < needed)
        capacity = needed;
    unsigned char *data = memory_reallocate_array(buffer->data, capacity, 1);
    if (data == NULL) {
        buffer->status = DCP_ERR_NO_MEMORY;
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

dcp_status buffer_reserve(struct buffer *buffer, size_t more)
{
    return make_room(buffer, more) ? DCP_OK : buffer_status(buffer);
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t size)
{
    if (size == 0 || !make_room(buffer, size))
        return;
    memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
}

void buffer_append_zeros(struct buffer *buffer, size_t count)
{
    if (count == 0 || !make_room(buffer, count))
        return;
    memset(buffer->data + buffer->size, 0, count);
    buffer->size += count;
}

void buffer_append_u16(struct buffer *buffer, uint16_t value)
{
    unsigned char bytes[2];
    store_u16(bytes, value);
    buffer_append(buffer, bytes, sizeof bytes);
}

void buffer_append_u32(struct buffer *buffer, uint32_t value)
{
    unsigned char bytes[4];
    store_u32(bytes, value);
    buffer_append(buffer, bytes, sizeof bytes);
}

void buffer_append_u64(struct buffer *buffer, uint64_t value)
{
    unsigned char bytes[8];
    store_u64(bytes, value);
    buffer_append(buffer, bytes, sizeof bytes);
}

void buffer_append_long_varint(struct buffer *buffer, uint64_t value)
{
    unsigned char bytes[VARINT_MOST];
    size_t size = 0;
    if (buffer->status == DCP_OK && buffer->maximum == 0 &&
        buffer->capacity - buffer->size >= VARINT_MOST) {
        for (; value >= 0x80; value >>= 7)
            buffer->data[buffer->size++] = (unsigned char)(value | 0x80);
        buffer_append_u8(buffer, (uint8_t)value);
        return;
    }
    while (value >= 0x80) {
        bytes[size++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    bytes[size++] = (unsigned char)value;
    buffer_append(buffer, bytes, size);
}

void buffer_append_text(struct buffer *buffer, const char *text, size_t length)
{
    buffer_append_varint(buffer, length);
    buffer_append(buffer, text, length);
}

void buffer_append_format(struct buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    /* vsnprintf() ends in a NUL, which needs room but does not count. */
    if (length > 0 && make_room(buffer, (size_t)length + 1)) {
        vsnprintf((char *)buffer->data + buffer->size, (size_t)length + 1, format, again);
        buffer->size += (size_t)length;
    }
    va_end(again);
}

void reader_init(struct reader *reader, const void *data, size_t size)
{
    *reader = (struct reader){.data = data, .size = size};
}

size_t reader_left(const struct reader *reader)
{
    return reader->size - reader->position;
}

const unsigned char *reader_bytes(struct reader *reader, size_t size)
{
    static const unsigned char nothing;
    if (reader->failed || size > reader_left(reader)) {
        reader->failed = true;
        return NULL;
    }
    if (size == 0)
        return &nothing;
    const unsigned char *bytes = reader->data + reader->position;
    reader->position += size;
    return bytes;
}

uint8_t reader_u8(struct reader *reader)
{
    const unsigned char *bytes = reader_bytes(reader, 1);
    return bytes != NULL ? *bytes : 0;
}

uint16_t reader_u16(struct reader *reader)
{
    const unsigned char *bytes = reader_bytes(reader, 2);
    return bytes != NULL ? load_u16(bytes) : 0;
}

uint32_t reader_u32(struct reader *reader)
{
    const unsigned char *bytes = reader_bytes(reader, 4);
    return bytes != NULL ? load_u32(bytes) : 0;
}

uint64_t reader_u64(struct reader *reader)
{
    const unsigned char *bytes = reader_bytes(reader, 8);
    return bytes != NULL ? load_u64(bytes) : 0;
}

/* The same of bytes that have room for any number. */
static uint64_t read_varint(struct reader *reader)
{
    const unsigned char *at = reader->data + reader->position;
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 63; shift += 7) {
        uint64_t byte = *at++;
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            reader->position = (size_t)(at - reader->data);
            return value;
        }
    }
    reader->position = (size_t)(at - reader->data) + 1;
    reader->failed = *at > 1;
    return reader->failed ? 0 : value | (uint64_t)*at << 63;
}

/* With fewer bytes left, the number ends before its 64th bit, or beyond them. */
uint64_t reader_long_varint(struct reader *reader)
{
    uint64_t value = 0;
    uint8_t byte = 0x80;
    if (!reader->failed && reader_left(reader) >= VARINT_MOST)
        return read_varint(reader);
    for (unsigned shift = 0; byte >= 0x80; shift += 7) {
        byte = reader_u8(reader);
        value |= (uint64_t)(byte & 0x7f) << shift;
    }
    return reader->failed ? 0 : value;
}

const char *reader_text(struct reader *reader, size_t *length)
{
    uint64_t stored = reader_varint(reader);
    *length = 0;
    if (stored > reader_left(reader)) {
        reader->failed = true;
        return NULL;
    }
    const char *text = (const char *)reader_bytes(reader, (size_t)stored);
    if (text != NULL)
        *length = (size_t)stored;
    return text;
}
