/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/box.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"

/* Product of the sizes; 1 if there are no elements, regardless of the other sizes. */
static bool shape_extent(int32_t ndim, const int64_t *shape, int64_t *extent, bool *empty)
{
    *extent = 1;
    *empty = false;
    for (int32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return false;
        *empty = *empty || shape[i] == 0;
    }
    for (int32_t i = 0; i < ndim && !*empty; i++)
        if (!checked_multiply_i64(*extent, shape[i], extent))
            return false;
    return true;
}

bool shape_volume(int32_t ndim, const int64_t *shape, int64_t *elements)
{
    bool empty;
    int64_t extent;
    if (!shape_extent(ndim, shape, &extent, &empty))
        return false;
    *elements = empty ? 0 : extent;
    return true;
}

bool shape_bytes(int32_t ndim, const int64_t *shape, dcp_dtype dtype, uint64_t *bytes)
{
    bool empty;
    int64_t extent;
    int64_t total;
    if (!shape_extent(ndim, shape, &extent, &empty) ||
        !checked_multiply_i64(extent, (int64_t)dcp_dtype_size(dtype), &total))
        return false;
    *bytes = empty ? 0 : (uint64_t)total;
    return true;
}

bool box_check(struct box box, const int64_t *shape)
{
    int64_t extent;
    bool empty;
    for (int32_t i = 0; i < box.ndim; i++)
        if (shape[i] < 0 || box.offsets[i] < 0 || box.sizes[i] < 0 || box.sizes[i] > shape[i] ||
            box.offsets[i] > shape[i] - box.sizes[i])
            return false;
    return shape_extent(box.ndim, box.sizes, &extent, &empty);
}

int64_t box_volume(struct box box)
{
    int64_t volume = 1;
    for (int32_t i = 0; i < box.ndim; i++)
        if (box.sizes[i] == 0)
            return 0;
    for (int32_t i = 0; i < box.ndim; i++)
        volume *= box.sizes[i];
    return volume;
}

int box_compare(struct box a, struct box b)
{
    for (int32_t i = 0; i < a.ndim; i++)
        if (a.offsets[i] != b.offsets[i])
            return a.offsets[i] < b.offsets[i] ? -1 : 1;
    for (int32_t i = 0; i < a.ndim; i++)
        if (a.sizes[i] != b.sizes[i])
            return a.sizes[i] < b.sizes[i] ? -1 : 1;
    return 0;
}

bool box_contains(struct box outer, struct box inner)
{
    if (inner.ndim != outer.ndim)
        return false;
    for (int32_t i = 0; i < outer.ndim; i++) {
        int64_t start;
        if (inner.sizes[i] < 0 ||
            __builtin_sub_overflow(inner.offsets[i], outer.offsets[i], &start) || start < 0 ||
            start > outer.sizes[i] || inner.sizes[i] > outer.sizes[i] - start)
            return false;
    }
    return true;
}

void box_rest_start(struct box_rest *rest, struct box outer, struct box inner)
{
    rest->inner = inner;
    rest->dim = 0;
    for (int32_t i = 0; i < outer.ndim; i++) {
        rest->left.offsets[i] = outer.offsets[i];
        rest->left.sizes[i] = outer.sizes[i];
    }
}

/* Cuts off the slab before the inner box, then the one behind it, dimension after dimension. */
bool box_rest_next(struct box_rest *rest, struct box_storage *box)
{
    struct box_storage *left = &rest->left;
    for (; rest->dim < rest->inner.ndim; rest->dim++) {
        int32_t dim = rest->dim;
        int64_t start = rest->inner.offsets[dim], size = rest->inner.sizes[dim];
        int64_t before = start - left->offsets[dim];
        if (before == 0 && left->sizes[dim] == size)
            continue;
        for (int32_t i = 0; i < rest->inner.ndim; i++) {
            box->offsets[i] = left->offsets[i];
            box->sizes[i] = left->sizes[i];
        }
        if (before > 0) {
            box->sizes[dim] = before;
            left->offsets[dim] = start;
            left->sizes[dim] -= before;
        } else {
            box->offsets[dim] = start + size;
            box->sizes[dim] = left->sizes[dim] - size;
            left->sizes[dim] = size;
        }
        return true;
    }
    return false;
}

bool box_intersect(struct box a, struct box b, struct box_storage *common)
{
    for (int32_t i = 0; i < a.ndim; i++) {
        int64_t a_end = a.offsets[i] + a.sizes[i];
        int64_t b_end = b.offsets[i] + b.sizes[i];
        int64_t start = a.offsets[i] > b.offsets[i] ? a.offsets[i] : b.offsets[i];
        int64_t end = a_end < b_end ? a_end : b_end;
        if (start >= end)
            return false;
        common->offsets[i] = start;
        common->sizes[i] = end - start;
    }
    return true;
}

struct box box_of(int32_t ndim, const struct box_storage *storage)
{
    return (struct box){ndim, storage->offsets, storage->sizes};
}

struct box box_whole(int32_t ndim, const int64_t *shape)
{
    static const int64_t origin[DCP_MAX_DIMS];
    return (struct box){ndim, origin, shape};
}

int64_t shape_next_box(int32_t ndim, const int64_t *shape, int64_t from, int64_t end,
                       int64_t *offsets, int64_t *sizes)
{
    int64_t slice = 1; /* elements of one slice of the dimension */
    for (int32_t i = 0; i < ndim; i++)
        slice *= shape[i];
    int64_t taken = ndim == 0 ? 1 : 0;
    int64_t rest = from;
    for (int32_t i = 0; i < ndim; i++) {
        offsets[i] = 0;
        sizes[i] = shape[i];
        if (taken != 0)
            continue;
        slice /= shape[i];
        offsets[i] = rest / slice;
        sizes[i] = 1;
        rest %= slice;
        if (rest != 0 || end - from < slice)
            continue;
        sizes[i] = (end - from) / slice;
        if (sizes[i] > shape[i] - offsets[i])
            sizes[i] = shape[i] - offsets[i];
        taken = sizes[i] * slice;
    }
    return taken;
}

int64_t box_next(struct box region, int64_t from, int64_t end, struct box_storage *next)
{
    int64_t taken =
        shape_next_box(region.ndim, region.sizes, from, end, next->offsets, next->sizes);
    for (int32_t i = 0; i < region.ndim; i++)
        next->offsets[i] += region.offsets[i];
    return taken;
}

void shape_strides(int32_t ndim, const int64_t *shape, int64_t *strides)
{
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        int64_t next;
        strides[i] = stride;
        /* Only a shape without elements can be too large. */
        if (shape[i] > 1 && checked_multiply_i64(stride, shape[i], &next))
            stride = next;
    }
}

/* Appends what fits; text that does not fit ends early but is always terminated. */
static DCP_PRINTF(4, 5) void text_append(char *text, size_t size, size_t *used, const char *format,
                                         ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(text + *used, size - *used, format, arguments);
    va_end(arguments);
    if (written > 0)
        *used = (size_t)written < size - *used ? *used + (size_t)written : size - 1;
}

const char *box_format(struct box box, char *text, size_t size)
{
    size_t used = 0;
    text_append(text, size, &used, "[");
    for (int32_t i = 0; i < box.ndim; i++)
        text_append(text, size, &used, "%s%" PRId64 ":%" PRId64, i ? ", " : "", box.offsets[i],
                    box.offsets[i] + box.sizes[i]);
    text_append(text, size, &used, "]");
    return text;
}

const char *shape_format(int32_t ndim, const int64_t *shape, char *text, size_t size)
{
    size_t used = 0;
    text_append(text, size, &used, "[");
    for (int32_t i = 0; i < ndim; i++)
        text_append(text, size, &used, "%s%" PRId64, i ? ", " : "", shape[i]);
    text_append(text, size, &used, "]");
    return text;
}
