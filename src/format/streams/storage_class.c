/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/streams/storage_class.h"

#include <string.h>

static const struct storage_class {
    dcp_dtype dtype;
    const char *name;
} storage_classes[] = {
    {DCP_F64, "DoubleStorage"},
    {DCP_F32, "FloatStorage"},
    {DCP_F16, "HalfStorage"},
    {DCP_BF16, "BFloat16Storage"},
    {DCP_I64, "LongStorage"},
    {DCP_I32, "IntStorage"},
    {DCP_I16, "ShortStorage"},
    {DCP_I8, "CharStorage"},
    {DCP_U8, "ByteStorage"},
    {DCP_BOOL, "BoolStorage"},
    {DCP_C128, "ComplexDoubleStorage"},
    {DCP_C64, "ComplexFloatStorage"},
};

enum { CLASS_COUNT = sizeof storage_classes / sizeof storage_classes[0] };

const char *storage_class_name(dcp_dtype dtype)
{
    for (size_t i = 0; i < CLASS_COUNT; i++)
        if (storage_classes[i].dtype == dtype)
            return storage_classes[i].name;
    return NULL;
}

dcp_dtype storage_class_dtype(const char *name, size_t length)
{
    for (size_t i = 0; i < CLASS_COUNT; i++)
        if (strlen(storage_classes[i].name) == length &&
            memcmp(storage_classes[i].name, name, length) == 0)
            return storage_classes[i].dtype;
    return DCP_DTYPE_NONE;
}
