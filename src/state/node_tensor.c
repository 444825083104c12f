/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensor nodes: what callers say about tensors, checked, and their chunks. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "state/box.h"
#include "state/chunk_index.h"
#include "state/device_memory.h"
#include "state/node.h"

#define BOX_TEXT_MAX 160

dcp_status tensor_check_shape(const dcp_tensor *tensor)
{
    uint64_t bytes;
    char text[BOX_TEXT_MAX];
    if (dcp_dtype_size(tensor->dtype) == 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%d is not a dtype", (int)tensor->dtype);
    if (tensor->ndim < 0 || tensor->ndim > DCP_MAX_DIMS)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%" PRId32 " dimensions, expected 0 to %d",
                             tensor->ndim, DCP_MAX_DIMS);
    RETURN_IF_ERROR(device_check(&tensor->device));
    for (int32_t i = 0; i < tensor->ndim; i++)
        if (tensor->global_shape[i] < 0)
            return dcp_error_set(
                DCP_ERR_ARGUMENT, "the global shape %s has a negative size in dimension %" PRId32,
                shape_format(tensor->ndim, tensor->global_shape, text, sizeof text), i);
    if (!shape_bytes(tensor->ndim, tensor->global_shape, tensor->dtype, &bytes))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the global shape %s of %s has more bytes than 64 bits can count",
                             shape_format(tensor->ndim, tensor->global_shape, text, sizeof text),
                             dcp_dtype_name(tensor->dtype));
    return DCP_OK;
}

/* "[2, 3]", if any of the numbers is not zero; else NULL. */
static const char *nonzero_numbers(const dcp_tensor *tensor, const int64_t *numbers, char *text,
                                   size_t size)
{
    bool found = false;
    for (int32_t i = 0; i < tensor->ndim; i++)
        found = found || numbers[i] != 0;
    return found ? shape_format(tensor->ndim, numbers, text, size) : NULL;
}

/* What dcp_mesh_shard() said when it failed. */
static dcp_status refuse_unsharded(const dcp_layout *layout)
{
    char text[sizeof layout->placements];
    dcp_status status = (dcp_status)-layout->mesh.ndim;
    memcpy(text, layout->placements, sizeof text);
    text[sizeof text - 1] = '\0';
    return dcp_error_set(error_is_status(status) ? status : DCP_ERR_ARGUMENT,
                         "dcp_mesh_shard() had failed: %s", text);
}

dcp_status tensor_check_given(const dcp_tensor *tensor)
{
    char text[BOX_TEXT_MAX];
    if (tensor->layout.mesh.ndim < 0)
        return refuse_unsharded(&tensor->layout);
    if (tensor->ndim == 0 && tensor->global_shape[0] != 0)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "ndim is 0, but global_shape begins with %" PRId64
                             ": set ndim to the number of dimensions",
                             tensor->global_shape[0]);
    if (tensor->sharded || tensor->ndim < 0 || tensor->ndim > DCP_MAX_DIMS)
        return DCP_OK;
    bool whole = memcmp(tensor->sizes, tensor->global_shape,
                        (size_t)tensor->ndim * sizeof *tensor->sizes) == 0;
    const char *offsets = nonzero_numbers(tensor, tensor->offsets, text, sizeof text);
    const char *sizes =
        offsets || whole ? NULL : nonzero_numbers(tensor, tensor->sizes, text, sizeof text);
    if (offsets || sizes)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%s are %s, but sharded is false, which means the whole tensor: set "
                             "sharded, or leave them zero",
                             offsets ? "offsets" : "sizes", text);
    return DCP_OK;
}

static dcp_status check_box(const dcp_tensor *tensor)
{
    struct box box = {tensor->ndim, tensor->offsets, tensor->sizes};
    if (box_check(box, tensor->global_shape))
        return DCP_OK;
    char offsets[BOX_TEXT_MAX];
    char sizes[BOX_TEXT_MAX];
    char shape[BOX_TEXT_MAX];
    return dcp_error_set(DCP_ERR_ARGUMENT,
                         "the chunk at %s of sizes %s is not inside the global shape %s",
                         shape_format(tensor->ndim, tensor->offsets, offsets, sizeof offsets),
                         shape_format(tensor->ndim, tensor->sizes, sizes, sizeof sizes),
                         shape_format(tensor->ndim, tensor->global_shape, shape, sizeof shape));
}

/* The farthest element must be within reach of a pointer. */
static dcp_status check_strides(const dcp_tensor *tensor, const int64_t *sizes)
{
    int64_t reach = 1;
    for (int32_t i = 0; i < tensor->ndim; i++)
        if (sizes[i] == 0)
            return DCP_OK;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        int64_t step;
        int64_t length;
        if (!checked_multiply_i64(tensor->strides[i], tensor->strides[i] < 0 ? -1 : 1, &step) ||
            !checked_multiply_i64(step, sizes[i] - 1, &length) ||
            !checked_add_i64(reach, length, &reach) ||
            !checked_multiply_i64(reach, (int64_t)dcp_dtype_size(tensor->dtype), &length))
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "stride %" PRId64 " in dimension %" PRId32 " of size %" PRId64
                                 " leaves the address space",
                                 tensor->strides[i], i, sizes[i]);
    }
    return DCP_OK;
}

static dcp_status check_chunk(const dcp_tensor *tensor)
{
    RETURN_IF_ERROR(tensor_check_shape(tensor));
    if (tensor->sharded)
        RETURN_IF_ERROR(check_box(tensor));
    if (tensor->strided)
        RETURN_IF_ERROR(
            check_strides(tensor, tensor->sharded ? tensor->sizes : tensor->global_shape));
    return DCP_OK;
}

dcp_state *node_tensor_empty(struct state_pool *pool, const dcp_tensor *tensor)
{
    if (tensor_check_shape(tensor) != DCP_OK)
        return NULL;
    dcp_state *node = node_new(pool, DCP_KIND_TENSOR);
    struct state_tensor *ours = arena_allocate(&pool->arena, sizeof *ours);
    int64_t *shape = arena_copy(&pool->arena, tensor->global_shape,
                                (size_t)tensor->ndim * sizeof *tensor->global_shape);
    if (!node || !ours || !shape) {
        error_no_memory(sizeof *ours, "a tensor");
        return NULL;
    }
    *ours = (struct state_tensor){
        .dtype = tensor->dtype,
        .ndim = tensor->ndim,
        .global_shape = shape,
        .requires_grad = tensor->requires_grad,
    };
    if (tensor->layout.mesh.ndim > 0) {
        ours->layout = arena_copy(&pool->arena, &tensor->layout, sizeof tensor->layout);
        if (!ours->layout) {
            error_no_memory(sizeof tensor->layout, "a tensor's layout");
            return NULL;
        }
    }
    node->as.tensor = ours;
    return node;
}

/* Fills in a chunk's numbers, which it allocates. */
static dcp_status chunk_init(struct state_pool *pool, struct state_chunk *chunk,
                             const dcp_tensor *tensor)
{
    size_t ndim = (size_t)tensor->ndim;
    int64_t *numbers = arena_allocate_array(&pool->arena, 3 * ndim, sizeof *numbers);
    if (!numbers)
        return error_no_memory(3 * ndim * sizeof *numbers, "a chunk's numbers");
    *chunk = (struct state_chunk){
        .offsets = numbers,
        .sizes = numbers + ndim,
        .strides = numbers + 2 * ndim,
        .data = tensor->data,
        .device = tensor->device,
    };
    for (size_t i = 0; i < ndim; i++) {
        chunk->offsets[i] = tensor->sharded ? tensor->offsets[i] : 0;
        chunk->sizes[i] = tensor->sharded ? tensor->sizes[i] : tensor->global_shape[i];
    }
    if (tensor->strided)
        memcpy(chunk->strides, tensor->strides, ndim * sizeof *chunk->strides);
    else
        shape_strides(tensor->ndim, chunk->sizes, chunk->strides);
    return DCP_OK;
}

static dcp_status check_same_tensor(const struct state_tensor *tensor, const dcp_tensor *chunk)
{
    char ours[BOX_TEXT_MAX];
    char theirs[BOX_TEXT_MAX];
    if (chunk->dtype != tensor->dtype)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the chunk has dtype %s, its tensor has %s",
                             dcp_dtype_name(chunk->dtype), dcp_dtype_name(tensor->dtype));
    if (chunk->ndim != tensor->ndim ||
        memcmp(chunk->global_shape, tensor->global_shape,
               (size_t)tensor->ndim * sizeof *tensor->global_shape) != 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the chunk's global shape is %s, its tensor's is %s",
                             shape_format(chunk->ndim, chunk->global_shape, theirs, sizeof theirs),
                             shape_format(tensor->ndim, tensor->global_shape, ours, sizeof ours));
    return DCP_OK;
}

static dcp_status check_overlap(const struct state_tensor *tensor, const struct state_chunk *added)
{
    char first[BOX_TEXT_MAX];
    char second[BOX_TEXT_MAX];
    struct box box = {tensor->ndim, added->offsets, added->sizes};
    size_t chunk;
    if (!chunk_index_find(tensor, box, &chunk))
        return DCP_OK;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): one was found, so there are some */
    struct box other = {tensor->ndim, tensor->chunks[chunk].offsets, tensor->chunks[chunk].sizes};
    return dcp_error_set(DCP_ERR_OVERLAP, "the chunk %s overlaps the chunk %s",
                         box_format(box, first, sizeof first),
                         box_format(other, second, sizeof second));
}

static dcp_status reserve_chunk(struct state_pool *pool, struct state_tensor *tensor)
{
    RETURN_IF_ERROR(chunk_index_reserve(&pool->arena, tensor));
    if (tensor->chunk_count < tensor->chunk_capacity)
        return DCP_OK;
    size_t capacity = tensor->chunk_capacity ? tensor->chunk_capacity * 2 : 1;
    struct state_chunk *chunks = arena_allocate_array(&pool->arena, capacity, sizeof *chunks);
    if (!chunks)
        return error_no_memory(capacity * sizeof *chunks, "chunks");
    if (tensor->chunk_count > 0)
        memcpy(chunks, tensor->chunks, tensor->chunk_count * sizeof *chunks);
    tensor->chunks = chunks;
    tensor->chunk_capacity = capacity;
    return DCP_OK;
}

dcp_status node_add_chunk(dcp_state *tensor_node, const dcp_tensor *chunk)
{
    struct state_tensor *tensor = tensor_node->as.tensor;
    struct state_pool *pool = tensor_node->content ? tensor_node->content : tensor_node->pool;
    struct state_chunk added;
    RETURN_IF_ERROR(check_chunk(chunk));
    RETURN_IF_ERROR(check_same_tensor(tensor, chunk));
    RETURN_IF_ERROR(chunk_init(pool, &added, chunk));
    RETURN_IF_ERROR(check_overlap(tensor, &added));
    RETURN_IF_ERROR(reserve_chunk(pool, tensor));
    tensor->chunks[tensor->chunk_count++] = added;
    chunk_index_added(tensor);
    tensor->sharded = tensor->sharded || chunk->sharded;
    return DCP_OK;
}

dcp_state *node_tensor(struct state_pool *pool, const dcp_tensor *tensor,
                       const struct state_block *block)
{
    dcp_state *node = node_tensor_empty(pool, tensor);
    if (!node || node_add_chunk(node, tensor) != DCP_OK)
        return NULL;
    node->as.tensor->chunks[0].block = block;
    return node;
}
