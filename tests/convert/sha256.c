/* SPDX-License-Identifier: BSD-3-Clause */
/* FIPS 180-4; for the hashes that the fixtures' expected values are given as. */
#include "convert/sha256.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t rotate(uint32_t value, unsigned by)
{
    return value >> by | value << (32 - by);
}

/* The first 32 bits of the fraction of a root of a prime. */
static uint32_t fraction(double root)
{
    return (uint32_t)((root - floor(root)) * 0x1p32);
}

static void prepare(uint32_t state[8], uint32_t constants[64])
{
    for (unsigned prime = 2, count = 0; count < 64; prime++) {
        unsigned divisor = 2;
        while (divisor * divisor <= prime && prime % divisor != 0)
            divisor++;
        if (divisor * divisor <= prime)
            continue;
        if (count < 8)
            state[count] = fraction(sqrt(prime));
        constants[count++] = fraction(cbrt(prime));
    }
}

static void take_block(uint32_t state[8], const uint32_t constants[64], const unsigned char *block)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t one = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
                       ((v[4] & v[5]) ^ (~v[4] & v[6])) + constants[i] + w[i];
        uint32_t two = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
                       ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void sha256_text(const void *bytes, size_t size, char text[65])
{
    uint32_t state[8], constants[64];
    unsigned char last[128] = {0};
    size_t whole = size / 64 * 64, rest = size - whole, end = rest < 56 ? 64 : 128;
    prepare(state, constants);
    for (size_t at = 0; at < whole; at += 64)
        take_block(state, constants, (const unsigned char *)bytes + at);
    if (rest > 0)
        memcpy(last, (const unsigned char *)bytes + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[end - 1 - (size_t)i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    for (size_t at = 0; at < end; at += 64)
        take_block(state, constants, last + at);
    for (int i = 0; i < 8; i++)
        snprintf(text + 8 * i, 9, "%08x", state[i]);
}
