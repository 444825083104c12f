/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/copy.h"

#include <stddef.h>
#include <string.h>

#include "state/copy_walk.h"
#include "state/dtype.h"

/* Elements need not be aligned: memcpy() of a constant size is one move. */
#define COPY_ROW(name, bytes)                                                                      \
    static void name(const void *context, const unsigned char *source, int64_t source_stride,      \
                     unsigned char *destination, int64_t destination_stride, size_t count)         \
    {                                                                                              \
        (void)context;                                                                             \
        if (source_stride == (bytes) && destination_stride == (bytes)) {                           \
            memcpy(destination, source, count *(bytes));                                           \
            return;                                                                                \
        }                                                                                          \
        for (size_t i = 0; i < count; i++)                                                         \
            memcpy(destination + (int64_t)i * destination_stride,                                  \
                   source + (int64_t)i * source_stride, (bytes));                                  \
    }

COPY_ROW(copy_row_1, 1)
COPY_ROW(copy_row_2, 2)
COPY_ROW(copy_row_4, 4)
COPY_ROW(copy_row_8, 8)
COPY_ROW(copy_row_16, 16)

static copy_row row_of(size_t element_size)
{
    switch (element_size) {
    case 1:
        return copy_row_1;
    case 2:
        return copy_row_2;
    case 4:
        return copy_row_4;
    case 8:
        return copy_row_8;
    default:
        return copy_row_16;
    }
}

void copy_strided(int32_t ndim, const int64_t *sizes, size_t element_size, const void *source,
                  const int64_t *source_strides, void *destination,
                  const int64_t *destination_strides)
{
    struct copy_walk walk;
    if (copy_walk_make(&walk, ndim, sizes, element_size, source_strides, element_size,
                       destination_strides))
        copy_walk_run(&walk, source, destination, row_of(element_size), NULL);
}

/* Bytes of what a machine of the other order would reverse. */
static size_t component_size(dcp_dtype dtype)
{
    const struct dtype_facts *facts = dtype_facts(dtype);
    return facts ? facts->size / facts->numbers : 0;
}

void copy_swap_bytes(dcp_dtype dtype, void *elements, size_t count)
{
    size_t size = component_size(dtype);
    unsigned char *bytes = elements;
    size_t total = count * dcp_dtype_size(dtype);
    for (size_t at = 0; at < total; at += size) {
        if (size == 2) {
            uint16_t value;
            memcpy(&value, bytes + at, sizeof value);
            value = __builtin_bswap16(value);
            memcpy(bytes + at, &value, sizeof value);
        } else if (size == 4) {
            uint32_t value;
            memcpy(&value, bytes + at, sizeof value);
            value = __builtin_bswap32(value);
            memcpy(bytes + at, &value, sizeof value);
        } else if (size == 8) {
            uint64_t value;
            memcpy(&value, bytes + at, sizeof value);
            value = __builtin_bswap64(value);
            memcpy(bytes + at, &value, sizeof value);
        }
    }
}

bool copy_is_dense(int32_t ndim, const int64_t *sizes, const int64_t *strides)
{
    int64_t expected = 1;
    bool dense = true;
    for (int32_t i = 0; i < ndim; i++)
        if (sizes[i] == 0)
            return true;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (sizes[i] > 1 && strides[i] != expected)
            dense = false;
        expected *= sizes[i];
    }
    return dense;
}

bool copy_may_overlap(int32_t ndim, const int64_t *sizes, const int64_t *strides)
{
    static const int64_t origin[DCP_MAX_DIMS];
    struct copy_walk walk;
    int64_t reach = 0;
    if (!copy_walk_make(&walk, ndim, sizes, 1, origin, 1, strides))
        return false;
    for (int32_t i = walk.ndim - 1; i >= 0; i--) {
        int64_t stride = walk.destination_strides[i] < 0 ? -walk.destination_strides[i]
                                                         : walk.destination_strides[i];
        if (walk.sizes[i] > 1 && stride <= reach)
            return true;
        reach += stride * (walk.sizes[i] - 1);
    }
    return false;
}
