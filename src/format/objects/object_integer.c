/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/objects/object_integer.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Room for the magnitude of the most negative number and a sign. */
enum { LIMBS_MAX = INTEGER_BYTES_MAX / 4 + 1, GROUP = 1000 * 1000 * 1000, GROUP_DIGITS = 9 };

/* A magnitude in base 2^32, least significant limb first. */
struct magnitude {
    uint32_t limbs[LIMBS_MAX];
    size_t count; /* without leading zeros */
};

static void magnitude_trim(struct magnitude *m)
{
    while (m->count > 0 && m->limbs[m->count - 1] == 0)
        m->count--;
}

/* Divides by 10^9 and returns the remainder. */
static uint32_t divide_by_group(struct magnitude *m)
{
    uint64_t remainder = 0;
    for (size_t i = m->count; i-- > 0;) {
        uint64_t value = remainder << 32 | m->limbs[i];
        m->limbs[i] = (uint32_t)(value / GROUP);
        remainder = value % GROUP;
    }
    magnitude_trim(m);
    return (uint32_t)remainder;
}

static bool multiply_add(struct magnitude *m, uint32_t factor, uint32_t addend)
{
    uint64_t carry = addend;
    for (size_t i = 0; i < m->count; i++) {
        carry += (uint64_t)m->limbs[i] * factor;
        m->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry == 0)
        return true;
    if (m->count == LIMBS_MAX)
        return false;
    m->limbs[m->count++] = (uint32_t)carry;
    return true;
}

/* Adds one to little-endian bytes that were inverted: the second half of a negation. */
static void increment(unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (++bytes[i] != 0)
            return;
}

static void magnitude_read(struct magnitude *m, const unsigned char *bytes, size_t size,
                           bool negative)
{
    unsigned char absolute[LIMBS_MAX * 4] = {0};
    for (size_t i = 0; i < size; i++)
        absolute[i] = negative ? (unsigned char)~bytes[i] : bytes[i];
    if (negative)
        increment(absolute, size + 1);
    m->count = LIMBS_MAX;
    for (size_t i = 0; i < LIMBS_MAX; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): all bytes are set */
        m->limbs[i] = (uint32_t)absolute[4 * i] | (uint32_t)absolute[4 * i + 1] << 8 |
                      (uint32_t)absolute[4 * i + 2] << 16 | (uint32_t)absolute[4 * i + 3] << 24;
    magnitude_trim(m);
}

dcp_status integer_to_digits(const void *twos_complement, size_t size, char **digits)
{
    const unsigned char *bytes = twos_complement;
    bool negative = size > 0 && (bytes[size - 1] & 0x80) != 0;
    struct magnitude m;
    magnitude_read(&m, bytes, size, negative);

    /* 32 bits are less than ten digits; groups come out least significant first. */
    size_t room = m.count * 10 + GROUP_DIGITS + 3, start = room - 1;
    char *text = memory_allocate(room);
    if (text == NULL)
        return error_no_memory(room, "the digits of an integer");
    text[start] = '\0';
    do {
        char group[GROUP_DIGITS + 1];
        uint32_t value = divide_by_group(&m);
        int length = snprintf(group, sizeof group, m.count > 0 ? "%09u" : "%u", value);
        start -= (size_t)length;
        memcpy(text + start, group, (size_t)length);
    } while (m.count > 0);
    if (negative)
        text[--start] = '-';
    memmove(text, text + start, room - start);
    *digits = text;
    return DCP_OK;
}

/* The shortest form: a byte more where the sign bit is taken by the magnitude. */
static dcp_status magnitude_write(const struct magnitude *m, bool negative, unsigned char *bytes,
                                  size_t *size)
{
    unsigned char all[LIMBS_MAX * 4 + 1] = {0};
    for (size_t i = 0; i < m->count * 4; i++)
        all[i] = (unsigned char)(m->limbs[i / 4] >> 8 * (i % 4));
    size_t length = m->count * 4 + 1;
    if (negative) {
        for (size_t i = 0; i < length; i++)
            all[i] = (unsigned char)~all[i];
        increment(all, length);
    }
    unsigned char sign = negative && m->count > 0 ? 0xff : 0;
    while (length > 1 && all[length - 1] == sign && (all[length - 2] & 0x80) == (sign & 0x80))
        length--;
    if (length > INTEGER_BYTES_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "an integer takes %zu bytes, at most %d are "
                             "supported",
                             length, INTEGER_BYTES_MAX);
    memcpy(bytes, all, length);
    *size = length;
    return DCP_OK;
}

dcp_status integer_from_digits(const char *digits, unsigned char *twos_complement, size_t *size)
{
    struct magnitude m = {.count = 0};
    bool negative = digits[0] == '-';
    const char *next = digits + negative;
    if (*next == '\0')
        return dcp_error_set(DCP_ERR_ARGUMENT, "'%.40s' is not an integer", digits);
    while (*next != '\0') {
        uint32_t group = 0, scale = 1;
        for (int i = 0; i < GROUP_DIGITS && *next != '\0'; i++, next++) {
            if (*next < '0' || *next > '9')
                return dcp_error_set(DCP_ERR_ARGUMENT, "'%.40s' is not an integer", digits);
            group = group * 10 + (uint32_t)(*next - '0');
            scale *= 10;
        }
        if (!multiply_add(&m, scale, group))
            return dcp_error_set(DCP_ERR_UNSUPPORTED, "an integer takes more than %d bytes",
                                 INTEGER_BYTES_MAX);
    }
    return magnitude_write(&m, negative, twos_complement, size);
}
