/* SPDX-License-Identifier: BSD-3-Clause */
/* Flat ranges: consecutive elements of a row-major tensor as few boxes. */
#include <inttypes.h>

#include "base/checked.h"
#include "state/box.h"
#include "state/node.h"

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

/* Adds the chunks to a node that has none. A range without elements has no chunk; a tensor without
 * elements has one. */
static dcp_status add_boxes(dcp_state *node, const dcp_tensor *whole, int64_t start, int64_t length,
                            void *data)
{
    int64_t elements = 0;
    size_t element_size = dcp_dtype_size(whole->dtype);
    dcp_tensor chunk = *whole;
    chunk.sharded = true;
    shape_volume(whole->ndim, whole->global_shape, &elements);
    if (elements == 0) {
        chunk.sharded = false;
        chunk.data = data;
        return node_add_chunk(node, &chunk);
    }
    for (int64_t from = start; from < start + length;) {
        chunk.data = data ? (char *)data + (size_t)(from - start) * element_size : NULL;
        from += shape_next_box(whole->ndim, whole->global_shape, from, start + length,
                               chunk.offsets, chunk.sizes);
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
