/* SPDX-License-Identifier: BSD-3-Clause */
/* A growable byte buffer with an optional maximum, and a reader that cannot run past the end of its
 * bytes.
 *
 * A failed append marks the buffer, and buffer_status() reports it once, so that writers need no
 * check per field. Likewise a reader past its end yields zeros and sets `failed`. Integers are
 * little-endian; "varint" is LEB128. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

struct buffer {
    unsigned char *data;
    size_t size;
    size_t capacity;
    size_t maximum; /* 0: none; buffer_set_maximum() */
    dcp_status status;
};

void buffer_init(struct buffer *buffer, size_t maximum);
void buffer_free(struct buffer *buffer);
/* From now on appends beyond it fail, whatever memory and contents the buffer has already. 0: no
 * maximum. */
void buffer_set_maximum(struct buffer *buffer, size_t maximum);
/* Keeps the memory; discards the contents and any failure. */
void buffer_clear(struct buffer *buffer);
/* DCP_OK, or the status of the first failed append, with its message set. */
dcp_status buffer_status(const struct buffer *buffer);
dcp_status buffer_reserve(struct buffer *buffer, size_t more);
void buffer_append(struct buffer *buffer, const void *bytes, size_t size);
/* Inline: writers of pickles append millions of opcodes. */
static inline void buffer_append_u8(struct buffer *buffer, uint8_t value)
{
    if (buffer->status == DCP_OK && buffer->size < buffer->capacity && buffer->maximum == 0)
        buffer->data[buffer->size++] = value;
    else
        buffer_append(buffer, &value, sizeof value);
}
void buffer_append_zeros(struct buffer *buffer, size_t count);
void buffer_append_u16(struct buffer *buffer, uint16_t value);
void buffer_append_u32(struct buffer *buffer, uint32_t value);
void buffer_append_u64(struct buffer *buffer, uint64_t value);
void buffer_append_long_varint(struct buffer *buffer, uint64_t value);
static inline void buffer_append_varint(struct buffer *buffer, uint64_t value)
{
    if (value < 0x80)
        buffer_append_u8(buffer, (uint8_t)value);
    else
        buffer_append_long_varint(buffer, value);
}
/* Length as varint, then the bytes. */
void buffer_append_text(struct buffer *buffer, const char *text, size_t length);
void buffer_append_format(struct buffer *buffer, const char *format, ...) DCP_PRINTF(2, 3);

struct reader {
    const unsigned char *data;
    size_t size;
    size_t position;
    bool failed; /* a read went past the end, or a varint was malformed */
};

void reader_init(struct reader *reader, const void *data, size_t size);
size_t reader_left(const struct reader *reader);
uint8_t reader_u8(struct reader *reader);
uint16_t reader_u16(struct reader *reader);
uint32_t reader_u32(struct reader *reader);
uint64_t reader_u64(struct reader *reader);
uint64_t reader_long_varint(struct reader *reader);
/* Most are small. */
static inline uint64_t reader_varint(struct reader *reader)
{
    if (!reader->failed && reader->position < reader->size && reader->data[reader->position] < 0x80)
        return reader->data[reader->position++];
    return reader_long_varint(reader);
}
/* Borrowed bytes; NULL past the end. */
const unsigned char *reader_bytes(struct reader *reader, size_t size);
/* Counterpart of buffer_append_text(); borrowed, not NUL-terminated. */
const char *reader_text(struct reader *reader, size_t *length);

/* Little-endian access to memory of any alignment. */
uint16_t load_u16(const void *bytes);
uint32_t load_u32(const void *bytes);
uint64_t load_u64(const void *bytes);
void store_u16(void *bytes, uint16_t value);
void store_u32(void *bytes, uint32_t value);
void store_u64(void *bytes, uint64_t value);

#endif
