/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/dtype.h"

#include <string.h>

struct dtype_facts {
    dcp_dtype dtype;
    unsigned size;
    const char *name;
};

static const struct dtype_facts dtypes[] = {
    {DCP_F64, 8, "float64"},
    {DCP_F32, 4, "float32"},
    {DCP_F16, 2, "float16"},
    {DCP_BF16, 2, "bfloat16"},
    {DCP_I64, 8, "int64"},
    {DCP_I32, 4, "int32"},
    {DCP_I16, 2, "int16"},
    {DCP_I8, 1, "int8"},
    {DCP_U64, 8, "uint64"},
    {DCP_U32, 4, "uint32"},
    {DCP_U16, 2, "uint16"},
    {DCP_U8, 1, "uint8"},
    {DCP_BOOL, 1, "bool"},
    {DCP_C128, 16, "complex128"},
    {DCP_C64, 8, "complex64"},
    {DCP_C32, 4, "complex32"},
    {DCP_BCOMPLEX32, 4, "bcomplex32"},
    {DCP_F8_E4M3FN, 1, "float8_e4m3fn"},
    {DCP_F8_E4M3FNUZ, 1, "float8_e4m3fnuz"},
    {DCP_F8_E5M2, 1, "float8_e5m2"},
    {DCP_F8_E5M2FNUZ, 1, "float8_e5m2fnuz"},
    {DCP_F8_E8M0FNU, 1, "float8_e8m0fnu"},
    {DCP_F4_E2M1FN_X2, 1, "float4_e2m1fn_x2"},
    {DCP_BITS8, 1, "bits8"},
    {DCP_BITS16, 2, "bits16"},
    {DCP_BITS1X8, 1, "bits1x8"},
    {DCP_BITS2X4, 1, "bits2x4"},
    {DCP_BITS4X2, 1, "bits4x2"},
};

#define DTYPE_COUNT (sizeof dtypes / sizeof dtypes[0])

static const struct dtype_facts *dtype_find(dcp_dtype dtype)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (dtypes[i].dtype == dtype)
            return &dtypes[i];
    return NULL;
}

size_t dcp_dtype_size(dcp_dtype dtype)
{
    const struct dtype_facts *facts = dtype_find(dtype);
    return facts ? facts->size : 0;
}

const char *dcp_dtype_name(dcp_dtype dtype)
{
    const struct dtype_facts *facts = dtype_find(dtype);
    return facts ? facts->name : NULL;
}

dcp_dtype dcp_dtype_from_name(const char *name)
{
    if (!name)
        return DCP_DTYPE_NONE;
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].dtype;
    return DCP_DTYPE_NONE;
}

bool dtype_is_savable(dcp_dtype dtype)
{
    return dtype < DCP_BITS8 && dtype != DCP_BCOMPLEX32;
}
