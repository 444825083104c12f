/* SPDX-License-Identifier: BSD-3-Clause */
/* Flat ranges: consecutive elements of a row-major tensor as few boxes. */
#include <inttypes.h>

#include "base/checked.h"
#include "state/box.h"
#include "state/node.h"

/* The next box of a range, from element `from` to `end` at most: whole slices of the outermost
 * dimension whose slices begin at `from` and fit, as many as there are before that dimension ends.
 * volumes[i] is the volume of dimensions i and beyond. Returns the box's elements. */
static int64_t next_box(int32_t ndim, const int64_t *volumes, int64_t from, int64_t end,
                        int64_t *offsets, int64_t *sizes)
{
    int32_t dim = 0;
    while (dim < ndim - 1 && (from % volumes[dim + 1] != 0 || end - from < volumes[dim + 1]))
        dim++;
    int64_t rest = from;
    for (int32_t i = 0; i < ndim; i++) {
        int64_t slice = volumes[i + 1];
        int64_t slices = volumes[i] / slice;
        offsets[i] = i <= dim ? rest / slice : 0;
        sizes[i] = i < dim ? 1 : slices;
        rest %= slice;
        if (i == dim) {
            int64_t fitting = (end - from) / slice;
            sizes[i] = fitting < slices - offsets[i] ? fitting : slices - offsets[i];
        }
    }
    return ndim == 0 ? 1 : sizes[dim] * volumes[dim + 1];
}

static dcp_status check_range(const dcp_tensor *whole, int64_t start, int64_t length)
{
    int64_t end;
    int64_t elements;
    RETURN_IF_ERROR(tensor_check_shape(whole));
    if (whole->sharded || whole->strided)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "a flat range is of a whole tensor, neither sharded nor strided");
    shape_volume(whole->ndim, whole->global_shape, &elements);
    if (start < 0 || length < 0 || !checked_add_i64(start, length, &end) || end > elements)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the range of %" PRId64 " elements from %" PRId64
                             " is not inside the tensor's %" PRId64 " elements",
                             length, start, elements);
    return DCP_OK;
}

/* Adds the chunks to a node without any. A range without elements has none, but a tensor without
 * elements is there all the same: as one chunk. */
static dcp_status add_boxes(dcp_state *node, const dcp_tensor *whole, int64_t start, int64_t length,
                            void *data)
{
    int64_t volumes[DCP_MAX_DIMS + 1];
    size_t element_size = dcp_dtype_size(whole->dtype);
    dcp_tensor chunk = *whole;
    chunk.sharded = true;
    volumes[whole->ndim] = 1;
    for (int32_t i = whole->ndim - 1; i >= 0; i--)
        volumes[i] = volumes[i + 1] * whole->global_shape[i];
    if (volumes[0] == 0) {
        chunk.sharded = false;
        chunk.data = data;
        return node_add_chunk(node, &chunk);
    }
    for (int64_t from = start; from < start + length;) {
        chunk.data = data ? (char *)data + (size_t)(from - start) * element_size : NULL;
        from += next_box(whole->ndim, volumes, from, start + length, chunk.offsets, chunk.sizes);
        RETURN_IF_ERROR(node_add_chunk(node, &chunk));
    }
    node->as.tensor->sharded = true;
    return DCP_OK;
}

dcp_state *node_flat_range(struct state_pool *pool, const dcp_tensor *whole, int64_t start,
                           int64_t length, void *data)
{
    if (check_range(whole, start, length) != DCP_OK)
        return NULL;
    dcp_state *node = node_tensor_empty(pool, whole);
    if (!node || add_boxes(node, whole, start, length, data) != DCP_OK)
        return NULL;
    return node;
}
