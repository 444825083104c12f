/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/crc32_wide.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define WIDE __attribute__((target("avx2,pclmul,vpclmulqdq")))
enum { STEP = 256, VECTOR = 32, VECTORS = STEP / VECTOR, LANE = 16, LANES = STEP / LANE };

/* Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009: what
 * lies d bits in front of other bytes is added to them times x^(d + 32) and x^(d - 32), for the
 * lower and the upper half of 16 bytes. Reflected, and doubled, as products of reflected
 * polynomials are shifted by a bit. */
struct distance {
    long long lower, upper;
};
static const struct distance step_on = {0x11542778a, 0x1322d1430}; /* d: 2048 */
static const struct distance lane_on = {0x1751997d0, 0x0ccaa009e}; /* 128 */

bool crc32_wide_is_there(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") &&
           __builtin_cpu_supports("vpclmulqdq");
}

WIDE static __m256i load(const unsigned char *at)
{
    return _mm256_loadu_si256((const void *)at);
}

WIDE size_t crc32_wide_fold(uint32_t crc, const void *bytes, size_t size, unsigned char rest[16])
{
    const unsigned char *at = bytes;
    const __m128i by_lane = _mm_set_epi64x(lane_on.upper, lane_on.lower);
    const __m256i by_step =
        _mm256_broadcastsi128_si256(_mm_set_epi64x(step_on.upper, step_on.lower));
    __m256i folded[VECTORS];
    __m128i lanes[LANES];
    size_t done = STEP;
    for (int i = 0; i < VECTORS; i++)
        folded[i] = load(at + (size_t)i * VECTOR);
    folded[0] = _mm256_xor_si256(folded[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
    for (; size - done >= STEP; done += STEP)
        for (int i = 0; i < VECTORS; i++) {
            __m256i next = load(at + done + (size_t)i * VECTOR);
            next = _mm256_xor_si256(next, _mm256_clmulepi64_epi128(folded[i], by_step, 0x00));
            folded[i] = _mm256_xor_si256(next, _mm256_clmulepi64_epi128(folded[i], by_step, 0x11));
        }
    memcpy(lanes, folded, sizeof lanes);
    for (int i = 1; i < LANES; i++)
        lanes[i] = _mm_xor_si128(lanes[i],
                                 _mm_xor_si128(_mm_clmulepi64_si128(lanes[i - 1], by_lane, 0x00),
                                               _mm_clmulepi64_si128(lanes[i - 1], by_lane, 0x11)));
    memcpy(rest, &lanes[LANES - 1], LANE);
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
