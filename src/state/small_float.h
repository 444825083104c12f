/* SPDX-License-Identifier: BSD-3-Clause */
/* Floats of 8 and 16 bits, by their bits: integer arithmetic alone, so that neither the rounding
 * mode nor flushing of denormals in the caller's thread plays a part.
 *
 * Results are those of PyTorch 2.13's copy_ on x86. Which NaN comes out of bfloat16 depends there
 * on the source and its layout; here it is the one of dense float32. */
#ifndef STATE_SMALL_FLOAT_H
#define STATE_SMALL_FLOAT_H

#include <stdint.h>
#include <string.h>

#define F32_INFINITY 0x7f800000u
#define F32_NAN      0x7fc00000u

static inline uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A magnitude (bits of a finite float, without sign) as a float of `mantissa` bits and the given
 * exponent bias, to nearest, ties to even. What is too large comes out with an exponent beyond. */
static inline uint32_t small_round(uint32_t magnitude, unsigned mantissa, unsigned bias)
{
    unsigned drop = 23 - mantissa;
    unsigned exponent = magnitude >> 23;
    if (exponent + bias > 127) { /* normal there */
        uint32_t rebiased = magnitude - ((127u - bias) << 23);
        return (rebiased + (1u << (drop - 1)) - 1 + ((rebiased >> drop) & 1)) >> drop;
    }
    uint32_t significand = magnitude & 0x7fffff;
    if (exponent == 0)
        exponent = 1;
    else
        significand |= 0x800000;
    unsigned shift = 128 - bias + drop - exponent;
    if (shift > 24)
        return 0;
    return (significand + (1u << (shift - 1)) - 1 + ((significand >> shift) & 1)) >> shift;
}

/* The magnitude (without sign, finite) of a small float as a float's bits. */
static inline uint32_t small_widen(uint32_t magnitude, unsigned mantissa, unsigned bias)
{
    if (magnitude >> mantissa != 0)
        return (magnitude << (23 - mantissa)) + ((127u - bias) << 23);
    if (magnitude == 0)
        return 0;
    unsigned high = 31 - (unsigned)__builtin_clz(magnitude); /* the leading bit's place */
    return ((magnitude << (23 - high)) & 0x7fffff) | ((128u - bias - mantissa + high) << 23);
}

static inline uint16_t f16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > F32_INFINITY) /* quiet, with what fits of the payload */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    uint32_t rounded = magnitude >= 0x47800000 ? 0x7c00 : small_round(magnitude, 10, 15);
    return (uint16_t)(sign | rounded);
}

static inline float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & 0x7fff;
    if (magnitude > 0x7c00)
        return f32_from_bits(sign | F32_NAN | magnitude << 13);
    if (magnitude == 0x7c00)
        return f32_from_bits(sign | F32_INFINITY);
    return f32_from_bits(sign | small_widen(magnitude, 10, 15));
}

static inline uint16_t bf16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    if ((bits & 0x7fffffff) > F32_INFINITY)
        return 0xffff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float bf16_to_f32(uint16_t half)
{
    return f32_from_bits((uint32_t)half << 16);
}

/* IEEE's way: an infinity, and NaNs above it. */
static inline uint8_t e5m2_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    uint32_t sign = bits >> 24 & 0x80;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > F32_INFINITY)
        return (uint8_t)(sign | 0x7f);
    uint32_t rounded = magnitude >= 0x47800000 ? 0x7c : small_round(magnitude, 2, 15);
    return (uint8_t)(sign | rounded);
}

static inline float e5m2_to_f32(uint8_t small)
{
    return f16_to_f32((uint16_t)(small << 8));
}

/* No infinity and one NaN for each sign: what is too large, infinities too, becomes the largest
 * number (before PyTorch 2.13: NaN). */
static inline uint8_t e4m3fn_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    uint32_t sign = bits >> 24 & 0x80;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > F32_INFINITY)
        return (uint8_t)(sign | 0x7f);
    uint32_t rounded = small_round(magnitude, 3, 7);
    return (uint8_t)(sign | (rounded < 0x7e ? rounded : 0x7e));
}

static inline float e4m3fn_to_f32(uint8_t small)
{
    uint32_t sign = (uint32_t)(small & 0x80) << 24;
    uint32_t magnitude = small & 0x7f;
    if (magnitude == 0x7f)
        return f32_from_bits(sign | 0x7ff00000);
    return f32_from_bits(sign | small_widen(magnitude, 3, 7));
}

/* No infinity and no negative zero; the bits of negative zero are the only NaN. */
static inline uint8_t fnuz_from_f32(float value, unsigned mantissa, unsigned bias)
{
    uint32_t bits = f32_bits(value);
    uint32_t sign = bits >> 24 & 0x80;
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t rounded = magnitude >= F32_INFINITY ? 0x80 : small_round(magnitude, mantissa, bias);
    if (rounded > 0x7f)
        return 0x80;
    return (uint8_t)(rounded == 0 ? 0 : sign | rounded);
}

static inline float fnuz_to_f32(uint8_t small, unsigned mantissa, unsigned bias)
{
    if (small == 0x80)
        return f32_from_bits(F32_INFINITY + 1);
    uint32_t sign = (uint32_t)(small & 0x80) << 24;
    return f32_from_bits(sign | small_widen(small & 0x7f, mantissa, bias));
}

static inline uint8_t e4m3fnuz_from_f32(float value)
{
    return fnuz_from_f32(value, 3, 8);
}

static inline float e4m3fnuz_to_f32(uint8_t small)
{
    return fnuz_to_f32(small, 3, 8);
}

static inline uint8_t e5m2fnuz_from_f32(float value)
{
    return fnuz_from_f32(value, 2, 16);
}

static inline float e5m2fnuz_to_f32(uint8_t small)
{
    return fnuz_to_f32(small, 2, 16);
}

/* A power of two; the sign is dropped, 0xff is NaN. Ties go to the even significand: up from
 * normal floats (1.5), down from the denormal one (0.5). */
static inline uint8_t e8m0fnu_from_f32(float value)
{
    uint32_t magnitude = f32_bits(value) & 0x7fffffff;
    uint32_t exponent = magnitude >> 23;
    uint32_t fraction = magnitude & 0x7fffff;
    if (exponent == 0xff)
        return 0xff;
    return (uint8_t)(exponent + (fraction > 0x400000 || (fraction == 0x400000 && exponent > 0)));
}

static inline float e8m0fnu_to_f32(uint8_t small)
{
    if (small == 0)
        return f32_from_bits(0x00400000);
    return f32_from_bits(small == 0xff ? F32_INFINITY + 1 : (uint32_t)small << 23);
}

#endif
