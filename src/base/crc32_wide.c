/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/crc32_wide.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define WIDE __attribute__((target("avx512f,pclmul,vpclmulqdq")))
enum { VECTORS = 4, VECTOR = 64, STEP = VECTORS * VECTOR };

/* Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009: what
 * lies d bits in front of other bytes is added to them times x^(d + 32) and x^(d - 32), for the
 * lower and the upper half of 16 bytes. Reflected, and doubled, as products of reflected
 * polynomials are shifted by a bit. */
struct distance {
    long long lower, upper;
};
static const struct distance step_on = {0x11542778a, 0x1322d1430};   /* d: 2048 */
static const struct distance vector_on = {0x154442bd4, 0x1c6e41596}; /* 512 */
static const struct distance lane_on = {0x1751997d0, 0x0ccaa009e};   /* 128 */

bool crc32_wide_is_there(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("pclmul") &&
           __builtin_cpu_supports("vpclmulqdq");
}

WIDE static __m512i constants(struct distance distance)
{
    return _mm512_set_epi64(distance.upper, distance.lower, distance.upper, distance.lower,
                            distance.upper, distance.lower, distance.upper, distance.lower);
}

WIDE static __m512i fold(__m512i folded, __m512i by, __m512i next)
{
    enum { XOR_OF_THREE = 0x96 };
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(folded, by, 0x00),
                                     _mm512_clmulepi64_epi128(folded, by, 0x11), next,
                                     XOR_OF_THREE);
}

WIDE size_t crc32_wide_fold(uint32_t crc, const void *bytes, size_t size, unsigned char rest[16])
{
    const unsigned char *at = bytes;
    const __m512i by_step = constants(step_on), by_vector = constants(vector_on);
    const __m128i by_lane = _mm_set_epi64x(lane_on.upper, lane_on.lower);
    __m512i folded[VECTORS];
    __m128i lanes[4];
    size_t done = STEP;
    for (int i = 0; i < VECTORS; i++)
        folded[i] = _mm512_loadu_si512(at + (size_t)i * VECTOR);
    folded[0] = _mm512_xor_si512(folded[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    for (; size - done >= STEP; done += STEP)
        for (int i = 0; i < VECTORS; i++)
            folded[i] =
                fold(folded[i], by_step, _mm512_loadu_si512(at + done + (size_t)i * VECTOR));
    for (int i = 1; i < VECTORS; i++)
        folded[i] = fold(folded[i - 1], by_vector, folded[i]);
    _mm512_storeu_si512(lanes, folded[VECTORS - 1]);
    for (int i = 1; i < 4; i++)
        lanes[i] = _mm_xor_si128(lanes[i],
                                 _mm_xor_si128(_mm_clmulepi64_si128(lanes[i - 1], by_lane, 0x00),
                                               _mm_clmulepi64_si128(lanes[i - 1], by_lane, 0x11)));
    memcpy(rest, &lanes[3], sizeof lanes[3]);
    return done;
}

#else

bool crc32_wide_is_there(void)
{
    return false;
}

size_t crc32_wide_fold(uint32_t crc, const void *bytes, size_t size, unsigned char rest[16])
{
    (void)crc, (void)bytes, (void)size, (void)rest;
    return 0;
}

#endif
