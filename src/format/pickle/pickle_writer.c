/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "format/pickle/pickle.h"

void pickle_put_protocol(struct buffer *out, int protocol)
{
    buffer_append_u8(out, OP_PROTO);
    buffer_append_u8(out, (uint8_t)protocol);
}

void pickle_put_none(struct buffer *out)
{
    pickle_put_op(out, OP_NONE);
}

void pickle_put_bool(struct buffer *out, bool value)
{
    pickle_put_op(out, value ? OP_NEWTRUE : OP_NEWFALSE);
}

void pickle_put_int(struct buffer *out, int64_t value)
{
    if (value >= 0 && value <= UINT8_MAX) {
        pickle_put_op(out, OP_BININT1);
        buffer_append_u8(out, (uint8_t)value);
    } else if (value >= 0 && value <= UINT16_MAX) {
        pickle_put_op(out, OP_BININT2);
        buffer_append_u16(out, (uint16_t)value);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        pickle_put_op(out, OP_BININT);
        buffer_append_u32(out, (uint32_t)value);
    } else {
        unsigned char bytes[8];
        store_u64(bytes, (uint64_t)value);
        pickle_put_long(out, bytes, sizeof bytes);
    }
}

void pickle_put_uint(struct buffer *out, uint64_t value)
{
    if (value <= INT64_MAX) {
        pickle_put_int(out, (int64_t)value);
    } else {
        unsigned char bytes[9] = {0};
        store_u64(bytes, value);
        pickle_put_long(out, bytes, sizeof bytes);
    }
}

void pickle_put_long(struct buffer *out, const void *twos_complement, size_t size)
{
    const unsigned char *bytes = twos_complement;
    unsigned char sign = size != 0 && bytes[size - 1] >= 0x80 ? 0xff : 0;
    while (size > 1 && bytes[size - 1] == sign && (bytes[size - 2] ^ sign) < 0x80)
        size--;
    if (size <= UINT8_MAX) {
        pickle_put_op(out, OP_LONG1);
        buffer_append_u8(out, (uint8_t)size);
    } else {
        pickle_put_op(out, OP_LONG4);
        buffer_append_u32(out, (uint32_t)size);
    }
    buffer_append(out, bytes, size);
}

void pickle_put_float(struct buffer *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    pickle_put_op(out, OP_BINFLOAT);
    buffer_append_u64(out, __builtin_bswap64(bits));
}

void pickle_put_string(struct buffer *out, const char *text, size_t length)
{
    if (length <= UINT32_MAX) {
        pickle_put_op(out, OP_BINUNICODE);
        buffer_append_u32(out, (uint32_t)length);
    } else {
        pickle_put_op(out, OP_BINUNICODE8);
        buffer_append_u64(out, length);
    }
    buffer_append(out, text, length);
}

void pickle_put_short_string(struct buffer *out, const char *text, size_t length)
{
    if (length > UINT8_MAX) {
        pickle_put_string(out, text, length);
        return;
    }
    pickle_put_op(out, OP_SHORT_BINUNICODE);
    buffer_append_u8(out, (uint8_t)length);
    buffer_append(out, text, length);
}

void pickle_put_global(struct buffer *out, const char *module, const char *name)
{
    pickle_put_op(out, OP_GLOBAL);
    buffer_append_format(out, "%s\n%s\n", module, name);
}

void pickle_put_memo(struct buffer *out, uint32_t index)
{
    if (index <= UINT8_MAX) {
        pickle_put_op(out, OP_BINPUT);
        buffer_append_u8(out, (uint8_t)index);
    } else {
        pickle_put_op(out, OP_LONG_BINPUT);
        buffer_append_u32(out, index);
    }
}

void pickle_get_memo(struct buffer *out, uint32_t index)
{
    if (index <= UINT8_MAX) {
        pickle_put_op(out, OP_BINGET);
        buffer_append_u8(out, (uint8_t)index);
    } else {
        unsigned char bytes[5] = {OP_LONG_BINGET};
        store_u32(bytes + 1, index);
        buffer_append(out, bytes, sizeof bytes);
    }
}
