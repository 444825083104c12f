/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/dtype.h"

#include <string.h>

static const struct dtype_facts dtypes[] = {
#define FACTS(dtype, size, numbers, sign, name, storage_class, safetensors)                        \
    {dtype, size, numbers, sign, name, storage_class, safetensors},
    DTYPES(FACTS)
#undef FACTS
};

#define DTYPE_COUNT (sizeof dtypes / sizeof dtypes[0])

const struct dtype_facts *dtype_facts_at(size_t n)
{
    return n < DTYPE_COUNT ? &dtypes[n] : NULL;
}

const struct dtype_facts *dtype_facts(dcp_dtype dtype)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (dtypes[i].dtype == dtype)
            return &dtypes[i];
    return NULL;
}

size_t dcp_dtype_size(dcp_dtype dtype)
{
    const struct dtype_facts *facts = dtype_facts(dtype);
    return facts ? facts->size : 0;
}

const char *dcp_dtype_name(dcp_dtype dtype)
{
    const struct dtype_facts *facts = dtype_facts(dtype);
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
    return dtype_facts(dtype) && dtype < DCP_BITS8 && dtype != DCP_BCOMPLEX32;
}
