/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/element_sign.h"

#include "state/dtype.h"

static enum sign_kind kind_of(dcp_dtype dtype)
{
    const struct dtype_facts *facts = dtype_facts(dtype);
    return facts ? facts->sign : SIGN_NONE;
}

bool element_has_sign(dcp_dtype dtype)
{
    return kind_of(dtype) != SIGN_NONE;
}

static void flip_top_bits(unsigned char *bytes, size_t size, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i * size + size - 1] ^= 0x80;
}

static void negate_integer(unsigned char *bytes, size_t size)
{
    unsigned carry = 1;
    for (size_t i = 0; i < size; i++) {
        unsigned value = (unsigned)(unsigned char)~bytes[i] + carry;
        bytes[i] = (unsigned char)value;
        carry = value >> 8;
    }
}

void element_negate(dcp_dtype dtype, void *elements, size_t count)
{
    unsigned char *bytes = elements;
    size_t size = dcp_dtype_size(dtype);
    switch (kind_of(dtype)) {
    case SIGN_BIT:
        flip_top_bits(bytes, size, count);
        break;
    case SIGN_PAIR:
        flip_top_bits(bytes, size / 2, count * 2);
        break;
    case SIGN_NONZERO:
        for (size_t i = 0; i < count; i++)
            bytes[i] ^= bytes[i] & 0x7f ? 0x80 : 0;
        break;
    case SIGN_INTEGER:
        for (size_t i = 0; i < count; i++)
            negate_integer(bytes + i * size, size);
        break;
    case SIGN_NONE:
        break;
    }
}

void element_conjugate(dcp_dtype dtype, void *elements, size_t count)
{
    if (kind_of(dtype) == SIGN_PAIR)
        flip_top_bits(elements, dcp_dtype_size(dtype), count);
}
