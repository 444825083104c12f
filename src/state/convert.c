/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversion between real dtypes, in blocks: from the source's dtype to the smallest of four wide
 * types that holds it exactly, and from there to the destination's dtype. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "state/copy.h"
#include "state/copy_walk.h"
#include "state/small_float.h"

#define BLOCK 512

enum wide { WIDE_F32, WIDE_F64, WIDE_I64, WIDE_U64, WIDE_COUNT };

union block {
    float f32[BLOCK];
    double f64[BLOCK];
    int64_t i64[BLOCK];
    uint64_t u64[BLOCK];
};

typedef void (*block_load)(const unsigned char *source, int64_t stride, union block *block,
                           size_t count);
typedef void (*block_store)(const union block *block, unsigned char *destination, int64_t stride,
                            size_t count);

/* Floats outside an integer's range, and NaN, have no meaning in C. These are the results of x86's
 * conversion instructions, which PyTorch shows: 8 and 16 bits wrap what 32 or 64 bits give. (From
 * f32 to u32 PyTorch itself gives one of two results, by position; this is the one of long runs.)
 */
static inline int32_t i32_from_float(double value)
{
    return value > -2147483649.0 && value < 2147483648.0 ? (int32_t)value : INT32_MIN;
}

static inline int64_t i64_from_float(double value)
{
    return value >= -9223372036854775808.0 && value < 9223372036854775808.0 ? (int64_t)value
                                                                            : INT64_MIN;
}

static inline uint32_t u32_from_float(double value)
{
    if (value >= 2147483648.0)
        return (uint32_t)i32_from_float(value - 2147483648.0) ^ 0x80000000u;
    return (uint32_t)i32_from_float(value);
}

static inline uint64_t u64_from_float(double value)
{
    if (value >= 9223372036854775808.0)
        return (uint64_t)i64_from_float(value - 9223372036854775808.0) ^ 0x8000000000000000u;
    return (uint64_t)i64_from_float(value);
}

/* The two loops differ in that the compiler knows the stride of the first. */
#define LOOP(type, body)                                                                           \
    if (stride == (int64_t)sizeof(type))                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            const size_t at = i * sizeof(type);                                                    \
            body                                                                                   \
        }                                                                                          \
    else                                                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            const int64_t at = (int64_t)i * stride;                                                \
            body                                                                                   \
        }

#define LOAD(name, type, member, expression)                                                       \
    static void load_##name(const unsigned char *source, int64_t stride, union block *block,       \
                            size_t count)                                                          \
    {                                                                                              \
        LOOP(type, {                                                                               \
            type value;                                                                            \
            memcpy(&value, source + at, sizeof value);                                             \
            block->member[i] = (expression);                                                       \
        })                                                                                         \
    }

#define STORE(name, type, member, expression)                                                      \
    static void store_##name##_##member(const union block *block, unsigned char *destination,      \
                                        int64_t stride, size_t count)                              \
    {                                                                                              \
        LOOP(type, {                                                                               \
            type result = (expression);                                                            \
            memcpy(destination + at, &result, sizeof result);                                      \
        })                                                                                         \
    }

#define FROM_F32 block->f32[i]
#define FROM_F64 block->f64[i]
#define FROM_I64 block->i64[i]
#define FROM_U64 block->u64[i]

/* Stores of a dtype from each wide type: from both floats, and from both integers. */
#define STORE_INTEGER(name, type, from_float)                                                      \
    STORE(name, type, f32, (type)from_float((double)FROM_F32))                                     \
    STORE(name, type, f64, (type)from_float(FROM_F64))                                             \
    STORE(name, type, i64, (type)FROM_I64)                                                         \
    STORE(name, type, u64, (type)FROM_U64)
#define STORE_SMALL_FLOAT(name, type)                                                              \
    STORE(name, type, f32, name##_from_f32(FROM_F32))                                              \
    STORE(name, type, f64, name##_from_f32((float)FROM_F64))                                       \
    STORE(name, type, i64, name##_from_f32((float)FROM_I64))                                       \
    STORE(name, type, u64, name##_from_f32((float)FROM_U64))

LOAD(bool, uint8_t, i64, value != 0)
LOAD(i8, int8_t, i64, value)
LOAD(i16, int16_t, i64, value)
LOAD(i32, int32_t, i64, value)
LOAD(i64, int64_t, i64, value)
LOAD(u8, uint8_t, i64, value)
LOAD(u16, uint16_t, i64, value)
LOAD(u32, uint32_t, i64, value)
LOAD(u64, uint64_t, u64, value)
LOAD(f64, double, f64, value)
LOAD(f32, float, f32, value)
LOAD(f16, uint16_t, f32, f16_to_f32(value))
LOAD(bf16, uint16_t, f32, bf16_to_f32(value))
LOAD(e4m3fn, uint8_t, f32, e4m3fn_to_f32(value))
LOAD(e4m3fnuz, uint8_t, f32, e4m3fnuz_to_f32(value))
LOAD(e5m2, uint8_t, f32, e5m2_to_f32(value))
LOAD(e5m2fnuz, uint8_t, f32, e5m2fnuz_to_f32(value))
LOAD(e8m0fnu, uint8_t, f32, e8m0fnu_to_f32(value))

STORE(bool, uint8_t, f32, FROM_F32 != 0)
STORE(bool, uint8_t, f64, FROM_F64 != 0)
STORE(bool, uint8_t, i64, FROM_I64 != 0)
STORE(bool, uint8_t, u64, FROM_U64 != 0)
STORE_INTEGER(i8, int8_t, i32_from_float)
STORE_INTEGER(i16, int16_t, i32_from_float)
STORE_INTEGER(i32, int32_t, i32_from_float)
STORE_INTEGER(i64, int64_t, i64_from_float)
STORE_INTEGER(u8, uint8_t, i64_from_float)
STORE_INTEGER(u16, uint16_t, i32_from_float)
STORE_INTEGER(u32, uint32_t, u32_from_float)
STORE_INTEGER(u64, uint64_t, u64_from_float)
STORE(f64, double, f32, (double)FROM_F32)
STORE(f64, double, f64, FROM_F64)
STORE(f64, double, i64, (double)FROM_I64)
STORE(f64, double, u64, (double)FROM_U64)
STORE(f32, float, f32, FROM_F32)
STORE(f32, float, f64, (float)FROM_F64)
STORE(f32, float, i64, (float)FROM_I64)
STORE(f32, float, u64, (float)FROM_U64)
STORE_SMALL_FLOAT(f16, uint16_t)
STORE_SMALL_FLOAT(bf16, uint16_t)
STORE_SMALL_FLOAT(e4m3fn, uint8_t)
STORE_SMALL_FLOAT(e4m3fnuz, uint8_t)
STORE_SMALL_FLOAT(e5m2, uint8_t)
STORE_SMALL_FLOAT(e5m2fnuz, uint8_t)
STORE_SMALL_FLOAT(e8m0fnu, uint8_t)

struct converter {
    dcp_dtype dtype;
    enum wide wide; /* what load gives */
    block_load load;
    block_store store[WIDE_COUNT];
};

#define CONVERTER(dtype, wide, name)                                                               \
    {                                                                                              \
        dtype, wide, load_##name,                                                                  \
        {                                                                                          \
            store_##name##_f32, store_##name##_f64, store_##name##_i64, store_##name##_u64         \
        }                                                                                          \
    }

static const struct converter converters[] = {
    CONVERTER(DCP_BOOL, WIDE_I64, bool),
    CONVERTER(DCP_I8, WIDE_I64, i8),
    CONVERTER(DCP_I16, WIDE_I64, i16),
    CONVERTER(DCP_I32, WIDE_I64, i32),
    CONVERTER(DCP_I64, WIDE_I64, i64),
    CONVERTER(DCP_U8, WIDE_I64, u8),
    CONVERTER(DCP_U16, WIDE_I64, u16),
    CONVERTER(DCP_U32, WIDE_I64, u32),
    CONVERTER(DCP_U64, WIDE_U64, u64),
    CONVERTER(DCP_F64, WIDE_F64, f64),
    CONVERTER(DCP_F32, WIDE_F32, f32),
    CONVERTER(DCP_F16, WIDE_F32, f16),
    CONVERTER(DCP_BF16, WIDE_F32, bf16),
    CONVERTER(DCP_F8_E4M3FN, WIDE_F32, e4m3fn),
    CONVERTER(DCP_F8_E4M3FNUZ, WIDE_F32, e4m3fnuz),
    CONVERTER(DCP_F8_E5M2, WIDE_F32, e5m2),
    CONVERTER(DCP_F8_E5M2FNUZ, WIDE_F32, e5m2fnuz),
    CONVERTER(DCP_F8_E8M0FNU, WIDE_F32, e8m0fnu),
};

static const struct converter *converter_of(dcp_dtype dtype)
{
    for (size_t i = 0; i < sizeof converters / sizeof converters[0]; i++)
        if (converters[i].dtype == dtype)
            return &converters[i];
    return NULL;
}

bool copy_can_convert(dcp_dtype from, dcp_dtype to)
{
    return from == to ? dcp_dtype_size(from) > 0 : converter_of(from) && converter_of(to);
}

struct conversion {
    block_load load;
    block_store store;
};

static void convert_row(const void *context, const unsigned char *source, int64_t source_stride,
                        unsigned char *destination, int64_t destination_stride, size_t count)
{
    const struct conversion *conversion = context;
    union block block;
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t some = count - done < BLOCK ? count - done : BLOCK;
        conversion->load(source + (int64_t)done * source_stride, source_stride, &block, some);
        conversion->store(&block, destination + (int64_t)done * destination_stride,
                          destination_stride, some);
    }
}

void copy_convert(int32_t ndim, const int64_t *sizes, dcp_dtype from, const void *source,
                  const int64_t *source_strides, dcp_dtype to, void *destination,
                  const int64_t *destination_strides)
{
    struct copy_walk walk;
    if (from == to) {
        copy_strided(ndim, sizes, dcp_dtype_size(from), source, source_strides, destination,
                     destination_strides);
        return;
    }
    const struct converter *reader = converter_of(from);
    const struct conversion conversion = {reader->load, converter_of(to)->store[reader->wide]};
    if (copy_walk_make(&walk, ndim, sizes, dcp_dtype_size(from), source_strides, dcp_dtype_size(to),
                       destination_strides))
        copy_walk_run(&walk, source, destination, convert_row, &conversion);
}
