/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of objects that have no children, and torch.Size, whose children are ints. */
#include <string.h>

#include "base/error.h"
#include "format/objects/object_encoder.h"
#include "format/objects/object_integer.h"

void encoder_put_tuple(struct encoder *encoder, size_t count)
{
    static const uint8_t opcodes[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};
    pickle_put_op(encoder->out, count <= 3 ? opcodes[count] : OP_TUPLE);
}

void encoder_put_reduce(struct encoder *encoder, size_t count)
{
    encoder_put_tuple(encoder, count);
    if (count > 0)
        encoder_put_memo(encoder);
    pickle_put_op(encoder->out, OP_REDUCE);
}

static dcp_status check_length(size_t length)
{
    if (length > UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a string of %zu bytes exceeds 4 GiB", length);
    return DCP_OK;
}

static dcp_status put_string(struct encoder *encoder, const char *text, size_t length)
{
    RETURN_IF_ERROR(check_length(length));
    pickle_put_string(encoder->out, text, length);
    return DCP_OK;
}

static void put_latin1(struct encoder *encoder)
{
    if (encoder->memo_of_latin1 != 0) {
        pickle_get_memo(encoder->out, encoder->memo_of_latin1 - 1);
        return;
    }
    pickle_put_string(encoder->out, "latin1", strlen("latin1"));
    encoder->memo_of_latin1 = encoder_put_memo(encoder) + 1;
}

/* Each byte as one character below 256, which "latin1" turns back. */
static dcp_status put_bytes(struct encoder *encoder, const char *bytes, size_t length)
{
    struct buffer *out = encoder->out;
    size_t encoded = length;
    for (size_t i = 0; i < length; i++)
        encoded += (unsigned char)bytes[i] >> 7;
    RETURN_IF_ERROR(check_length(encoded));

    encoder_put_global(encoder, GLOBAL_ENCODE);
    pickle_put_op(out, OP_BINUNICODE);
    buffer_append_u32(out, (uint32_t)encoded);
    RETURN_IF_ERROR(buffer_reserve(out, encoded));
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte >= 0x80)
            buffer_append_u8(out, (uint8_t)(0xc0 | byte >> 6));
        buffer_append_u8(out, byte >= 0x80 ? (uint8_t)(0x80 | (byte & 0x3f)) : byte);
    }
    encoder_put_memo(encoder);
    put_latin1(encoder);
    encoder_put_reduce(encoder, 2);
    return DCP_OK;
}

static dcp_status put_bytearray(struct encoder *encoder, const char *bytes, size_t length)
{
    encoder_put_global(encoder, GLOBAL_BYTEARRAY);
    if (length > 0) {
        RETURN_IF_ERROR(put_bytes(encoder, bytes, length));
        encoder_put_memo(encoder);
    }
    encoder_put_reduce(encoder, length > 0 ? 1 : 0);
    return DCP_OK;
}

/* "cuda:1" as its type and index, "cpu" as its type. */
static dcp_status put_device(struct encoder *encoder, const char *text, size_t length)
{
    const char *colon = memchr(text, ':', length);
    size_t type_length = colon != NULL ? (size_t)(colon - text) : length;
    int64_t index = 0;
    for (size_t i = type_length + 1; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || index > INT32_MAX)
            return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\" is not a device", text);
        index = index * 10 + (text[i] - '0');
    }
    encoder_put_global(encoder, GLOBAL_DEVICE);
    RETURN_IF_ERROR(put_string(encoder, text, type_length));
    encoder_put_memo(encoder);
    if (colon != NULL)
        pickle_put_int(encoder->out, index);
    encoder_put_reduce(encoder, colon != NULL ? 2 : 1);
    return DCP_OK;
}

dcp_status encoder_put_integer(struct encoder *encoder, const dcp_state *node)
{
    unsigned char bytes[INTEGER_BYTES_MAX];
    size_t size;
    if (!node->as.integer.is_big) {
        if (node->as.integer.is_unsigned)
            pickle_put_uint(encoder->out, node->as.integer.bits);
        else
            pickle_put_int(encoder->out, (int64_t)node->as.integer.bits);
        return DCP_OK;
    }
    RETURN_IF_ERROR(integer_from_digits(node->as.integer.digits, bytes, &size));
    pickle_put_long(encoder->out, bytes, size);
    return DCP_OK;
}

static dcp_status put_size(struct encoder *encoder, const struct state_children *sizes)
{
    encoder_put_global(encoder, GLOBAL_SIZE);
    if (sizes->count > 3)
        pickle_put_op(encoder->out, OP_MARK);
    for (size_t i = 0; i < sizes->count; i++)
        RETURN_IF_ERROR(encoder_put_integer(encoder, sizes->items[i].value));
    encoder_put_tuple(encoder, sizes->count);
    if (sizes->count > 0)
        encoder_put_memo(encoder);
    encoder_put_reduce(encoder, 1);
    return DCP_OK;
}

dcp_status encoder_put_leaf(struct encoder *encoder, const dcp_state *node, bool *known)
{
    *known = true;
    switch (node->kind) {
    case DCP_KIND_STRING:
        return put_string(encoder, node->as.text.bytes, node->as.text.length);
    case DCP_KIND_BYTES:
        return put_bytes(encoder, node->as.text.bytes, node->as.text.length);
    case DCP_KIND_BYTEARRAY:
        return put_bytearray(encoder, node->as.text.bytes, node->as.text.length);
    case DCP_KIND_COMPLEX:
        encoder_put_global(encoder, GLOBAL_COMPLEX);
        pickle_put_float(encoder->out, node->as.complex.real);
        pickle_put_float(encoder->out, node->as.complex.imaginary);
        encoder_put_reduce(encoder, 2);
        return DCP_OK;
    case DCP_KIND_SIZE:
        return put_size(encoder, &node->as.children);
    case DCP_KIND_DEVICE:
        return put_device(encoder, node->as.text.bytes, node->as.text.length);
    default:
        *known = false;
        return DCP_OK;
    }
}
