/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/crc32_wide.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define FOLD_64 __attribute__((target("avx512f,pclmul,vpclmulqdq")))
#define FOLD_32 __attribute__((target("avx2,pclmul,vpclmulqdq")))
#define FOLD_16 __attribute__((target("pclmul")))
enum { STEP = 256, LANES = STEP / 16, IN_64 = STEP / 64, IN_32 = STEP / 32 };

/* Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009: what
 * lies d bits in front of other bytes is added to them times x^(d + 32) and x^(d - 32), for the
 * lower and the upper half of 16 bytes. Reflected, and doubled, as products of reflected
 * polynomials are shifted by a bit. */
struct distance {
    long long lower, upper;
};
static const struct distance step_on = {0x11542778a, 0x1322d1430}; /* d: 2048 */
static const struct distance lane_on = {0x1751997d0, 0x0ccaa009e}; /* 128 */

size_t crc32_wide_vector(void)
{
    if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("vpclmulqdq"))
        return 0;
    if (__builtin_cpu_supports("avx512f"))
        return 64;
    return __builtin_cpu_supports("avx2") ? 32 : 0;
}

/* Bytes in front of which a checksum was taken begin with it. */
FOLD_16 static __m128i begin(uint32_t crc)
{
    return _mm_cvtsi32_si128((int)~crc);
}

FOLD_64 static size_t fold_64(uint32_t crc, const unsigned char *at, size_t size,
                              __m128i lanes[LANES])
{
    enum { XOR_OF_THREE = 0x96 };
    const __m512i by = _mm512_broadcast_i32x4(_mm_set_epi64x(step_on.upper, step_on.lower));
    __m512i folded[IN_64];
    size_t done = STEP;
    for (int i = 0; i < IN_64; i++)
        folded[i] = _mm512_loadu_si512(at + (size_t)i * 64);
    folded[0] = _mm512_xor_si512(folded[0], _mm512_zextsi128_si512(begin(crc)));
    for (; size - done >= STEP; done += STEP)
        for (int i = 0; i < IN_64; i++)
            folded[i] = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(folded[i], by, 0x00),
                                                  _mm512_clmulepi64_epi128(folded[i], by, 0x11),
                                                  _mm512_loadu_si512(at + done + (size_t)i * 64),
                                                  XOR_OF_THREE);
    for (int i = 0; i < IN_64; i++)
        _mm512_storeu_si512(lanes + i * (LANES / IN_64), folded[i]);
    return done;
}

FOLD_32 static size_t fold_32(uint32_t crc, const unsigned char *at, size_t size,
                              __m128i lanes[LANES])
{
    const __m256i by = _mm256_broadcastsi128_si256(_mm_set_epi64x(step_on.upper, step_on.lower));
    __m256i folded[IN_32];
    size_t done = STEP;
    for (int i = 0; i < IN_32; i++)
        folded[i] = _mm256_loadu_si256((const void *)(at + (size_t)i * 32));
    folded[0] = _mm256_xor_si256(folded[0], _mm256_zextsi128_si256(begin(crc)));
    for (; size - done >= STEP; done += STEP)
        for (int i = 0; i < IN_32; i++) {
            __m256i next = _mm256_loadu_si256((const void *)(at + done + (size_t)i * 32));
            next = _mm256_xor_si256(next, _mm256_clmulepi64_epi128(folded[i], by, 0x00));
            folded[i] = _mm256_xor_si256(next, _mm256_clmulepi64_epi128(folded[i], by, 0x11));
        }
    for (int i = 0; i < IN_32; i++)
        _mm256_storeu_si256((void *)(lanes + i * (LANES / IN_32)), folded[i]);
    return done;
}

FOLD_16 size_t crc32_wide_fold(size_t vector, uint32_t crc, const void *bytes, size_t size,
                               unsigned char rest[16])
{
    const __m128i by = _mm_set_epi64x(lane_on.upper, lane_on.lower);
    __m128i lanes[LANES];
    size_t done =
        vector == 64 ? fold_64(crc, bytes, size, lanes) : fold_32(crc, bytes, size, lanes);
    for (int i = 1; i < LANES; i++)
        lanes[i] =
            _mm_xor_si128(lanes[i], _mm_xor_si128(_mm_clmulepi64_si128(lanes[i - 1], by, 0x00),
                                                  _mm_clmulepi64_si128(lanes[i - 1], by, 0x11)));
    memcpy(rest, &lanes[LANES - 1], sizeof lanes[LANES - 1]);
    return done;
}

#else

size_t crc32_wide_vector(void)
{
    return 0;
}

size_t crc32_wide_fold(size_t vector, uint32_t crc, const void *bytes, size_t size,
                       unsigned char rest[16])
{
    (void)vector, (void)crc, (void)bytes, (void)size, (void)rest;
    return 0;
}

#endif
