/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/streams/storage_class.h"

#include <string.h>

#include "state/dtype.h"

const char *storage_class_name(dcp_dtype dtype)
{
    const struct dtype_facts *facts = dtype_facts(dtype);
    return facts != NULL ? facts->storage_class : NULL;
}

dcp_dtype storage_class_dtype(const char *name, size_t length)
{
    const struct dtype_facts *facts;
    for (size_t i = 0; (facts = dtype_facts_at(i)) != NULL; i++)
        if (facts->storage_class != NULL && strlen(facts->storage_class) == length &&
            memcmp(facts->storage_class, name, length) == 0)
            return facts->dtype;
    return DCP_DTYPE_NONE;
}
