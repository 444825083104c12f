/* SPDX-License-Identifier: BSD-3-Clause */
/* What there is to know of each dtype, in one line each: a new one is a line here, a value of
 * dcp_dtype, and, if it converts, a line in convert.c. */
#ifndef STATE_DTYPE_H
#define STATE_DTYPE_H

#include <stdbool.h>

#include "dcp/tensor.h"

/* Where an element's sign is. */
enum sign_kind {
    SIGN_NONE,
    SIGN_BIT,     /* floats: the top bit */
    SIGN_NONZERO, /* floats whose negative zero means NaN: the top bit, but of zero */
    SIGN_PAIR,    /* complex numbers: the top bits of both halves */
    SIGN_INTEGER  /* two's complement */
};

/* X(dtype, bytes, numbers in an element, sign, PyTorch's name, its class of storages or NULL where
 * it has none, the name in safetensors files or NULL). */
/* clang-format off */
#define DTYPES(X)                                                                                   \
    X(DCP_F64, 8, 1, SIGN_BIT, "float64", "DoubleStorage", "F64")                                   \
    X(DCP_F32, 4, 1, SIGN_BIT, "float32", "FloatStorage", "F32")                                    \
    X(DCP_F16, 2, 1, SIGN_BIT, "float16", "HalfStorage", "F16")                                     \
    X(DCP_BF16, 2, 1, SIGN_BIT, "bfloat16", "BFloat16Storage", "BF16")                              \
    X(DCP_I64, 8, 1, SIGN_INTEGER, "int64", "LongStorage", "I64")                                   \
    X(DCP_I32, 4, 1, SIGN_INTEGER, "int32", "IntStorage", "I32")                                    \
    X(DCP_I16, 2, 1, SIGN_INTEGER, "int16", "ShortStorage", "I16")                                  \
    X(DCP_I8, 1, 1, SIGN_INTEGER, "int8", "CharStorage", "I8")                                      \
    X(DCP_U64, 8, 1, SIGN_INTEGER, "uint64", NULL, "U64")                                           \
    X(DCP_U32, 4, 1, SIGN_INTEGER, "uint32", NULL, "U32")                                           \
    X(DCP_U16, 2, 1, SIGN_INTEGER, "uint16", NULL, "U16")                                           \
    X(DCP_U8, 1, 1, SIGN_INTEGER, "uint8", "ByteStorage", "U8")                                     \
    X(DCP_BOOL, 1, 1, SIGN_NONE, "bool", "BoolStorage", "BOOL")                                     \
    X(DCP_C128, 16, 2, SIGN_PAIR, "complex128", "ComplexDoubleStorage", NULL)                       \
    X(DCP_C64, 8, 2, SIGN_PAIR, "complex64", "ComplexFloatStorage", "C64")                          \
    X(DCP_C32, 4, 2, SIGN_PAIR, "complex32", NULL, NULL)                                            \
    X(DCP_BCOMPLEX32, 4, 2, SIGN_PAIR, "bcomplex32", NULL, NULL)                                    \
    X(DCP_F8_E4M3FN, 1, 1, SIGN_BIT, "float8_e4m3fn", NULL, "F8_E4M3")                              \
    X(DCP_F8_E4M3FNUZ, 1, 1, SIGN_NONZERO, "float8_e4m3fnuz", NULL, "F8_E4M3FNUZ")                  \
    X(DCP_F8_E5M2, 1, 1, SIGN_BIT, "float8_e5m2", NULL, "F8_E5M2")                                  \
    X(DCP_F8_E5M2FNUZ, 1, 1, SIGN_NONZERO, "float8_e5m2fnuz", NULL, "F8_E5M2FNUZ")                  \
    X(DCP_F8_E8M0FNU, 1, 1, SIGN_NONE, "float8_e8m0fnu", NULL, "F8_E8M0")                           \
    X(DCP_F4_E2M1FN_X2, 1, 1, SIGN_NONE, "float4_e2m1fn_x2", NULL, NULL)                            \
    X(DCP_BITS8, 1, 1, SIGN_NONE, "bits8", NULL, NULL)                                              \
    X(DCP_BITS16, 2, 1, SIGN_NONE, "bits16", NULL, NULL)                                            \
    X(DCP_BITS1X8, 1, 1, SIGN_NONE, "bits1x8", NULL, NULL)                                          \
    X(DCP_BITS2X4, 1, 1, SIGN_NONE, "bits2x4", NULL, NULL)                                          \
    X(DCP_BITS4X2, 1, 1, SIGN_NONE, "bits4x2", NULL, NULL)
/* clang-format on */

struct dtype_facts {
    dcp_dtype dtype;
    unsigned size;
    unsigned numbers;
    enum sign_kind sign;
    const char *name;
    const char *storage_class;
    const char *safetensors;
};

/* NULL: no dtype. */
const struct dtype_facts *dtype_facts(dcp_dtype dtype);
/* The n-th, from 0 on; NULL: there are no more. */
const struct dtype_facts *dtype_facts_at(size_t n);
/* Whether it is a dtype, and PyTorch 2.13 loads tensors of it: not of bcomplex32, which 2.15 has,
 * nor of bits. */
bool dtype_is_savable(dcp_dtype dtype);

#endif
