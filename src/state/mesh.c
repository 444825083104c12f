/* SPDX-License-Identifier: BSD-3-Clause */
/* Which chunk of a tensor a rank holds, as PyTorch computes it: placements from left to right, each
 * dividing what the ones before it left of its tensor dimension. */
#include "dcp/mesh.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "state/node.h"

/* Most runs that strided shards may leave a rank before later placements reduce them. */
#define SPLIT_FACTOR_MAX (1 << 20)

/* Consecutive positions of a tensor dimension. */
struct run {
    int64_t start;
    int64_t length;
};

/* What the rank has left of one tensor dimension, in its local order. */
struct runs {
    struct run *items;
    size_t count;
    size_t capacity;
    int64_t length; /* of all runs */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Part `index` of `parts` of a length, as torch.chunk: all but the last ones are equally long. */
static struct run part_of(int64_t length, int64_t parts, int64_t index)
{
    int64_t step = length / parts + (length % parts != 0);
    int64_t start = step > 0 && index > length / step ? length : smaller(index * step, length);
    return (struct run){start, smaller(step, length - start)};
}

static dcp_status runs_append(struct runs *runs, struct run run)
{
    if (run.length == 0)
        return DCP_OK;
    runs->length += run.length;
    struct run *last = runs->count > 0 ? &runs->items[runs->count - 1] : NULL;
    if (last && last->start + last->length == run.start) {
        last->length += run.length;
        return DCP_OK;
    }
    if (runs->count == runs->capacity) {
        size_t capacity = runs->capacity * 2 + 4;
        struct run *items = memory_reallocate_array(runs->items, capacity, sizeof *items);
        if (!items)
            return error_no_memory(capacity * sizeof *items, "pieces of a dimension");
        runs->items = items;
        runs->capacity = capacity;
    }
    runs->items[runs->count++] = run;
    return DCP_OK;
}

/* Appends positions first to first + length - 1, counted in the local order of `from`. *at and
 * *before are where the last call ended: a run and the positions before it. */
static dcp_status runs_append_part(struct runs *runs, const struct runs *from, struct run part,
                                   size_t *at, int64_t *before)
{
    int64_t end = part.start + part.length;
    while (part.start < end) {
        while (part.start >= *before + from->items[*at].length)
            *before += from->items[(*at)++].length;
        const struct run *run = &from->items[*at];
        int64_t skip = part.start - *before;
        int64_t length = smaller(run->length - skip, end - part.start);
        RETURN_IF_ERROR(runs_append(runs, (struct run){run->start + skip, length}));
        part.start += length;
    }
    return DCP_OK;
}

/* The part of `from` that coordinate `index` of a mesh dimension of `size` gets. A strided shard
 * divides into split_factor pieces first, and takes its part of each. */
static dcp_status runs_divide(struct runs *runs, const struct runs *from,
                              const dcp_placement *placement, int64_t size, int64_t index)
{
    int64_t pieces = placement->kind == DCP_STRIDED_SHARD ? placement->split_factor : 1;
    size_t at = 0;
    int64_t before = 0;
    for (int64_t i = 0; i < pieces; i++) {
        struct run piece = part_of(from->length, pieces, i);
        if (piece.length == 0)
            break;
        struct run part = part_of(piece.length, size, index);
        part.start += piece.start;
        RETURN_IF_ERROR(runs_append_part(runs, from, part, &at, &before));
    }
    return DCP_OK;
}

static dcp_status check_mesh(const dcp_mesh *mesh, const dcp_placement *placements, int32_t ndim)
{
    int64_t ranks = 1;
    if (mesh->ndim < 1 || mesh->ndim > DCP_MAX_MESH_DIMS)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the mesh has %" PRId32 " dimensions, expected 1 to %d", mesh->ndim,
                             DCP_MAX_MESH_DIMS);
    for (int32_t i = 0; i < mesh->ndim; i++)
        if (mesh->shape[i] < 1 || !checked_multiply_i64(ranks, mesh->shape[i], &ranks))
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "mesh dimension %" PRId32 " of size %" PRId64 " is impossible", i,
                                 mesh->shape[i]);
    if (mesh->rank < -1 || mesh->rank >= ranks)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "rank %" PRId64 " is not in a mesh of %" PRId64 " ranks", mesh->rank,
                             ranks);
    for (int32_t i = 0; i < mesh->ndim; i++) {
        const dcp_placement *placement = &placements[i];
        if (placement->kind == DCP_REPLICATE)
            continue;
        if (placement->kind != DCP_SHARD && placement->kind != DCP_STRIDED_SHARD)
            return dcp_error_set(DCP_ERR_ARGUMENT, "placement %" PRId32 " is of unknown kind %d", i,
                                 (int)placement->kind);
        if (placement->dim < -ndim || placement->dim >= ndim)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "placement %" PRId32 " shards dimension %" PRId32
                                 " of a tensor of %" PRId32,
                                 i, placement->dim, ndim);
        if (placement->kind == DCP_STRIDED_SHARD &&
            (placement->split_factor < 1 || placement->split_factor > SPLIT_FACTOR_MAX))
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "placement %" PRId32 " has the split factor %" PRId64
                                 ", expected 1 to %d",
                                 i, placement->split_factor, SPLIT_FACTOR_MAX);
    }
    return DCP_OK;
}

/* Applies the placements that shard one tensor dimension. */
static dcp_status shard_dimension(const dcp_mesh *mesh, const int64_t *coordinates,
                                  const dcp_placement *placements, dcp_tensor *tensor, int32_t dim,
                                  struct runs *runs, struct runs *other)
{
    runs->count = 0;
    runs->length = 0;
    RETURN_IF_ERROR(runs_append(runs, (struct run){0, tensor->global_shape[dim]}));
    for (int32_t i = 0; i < mesh->ndim; i++) {
        int32_t sharded =
            placements[i].dim < 0 ? placements[i].dim + tensor->ndim : placements[i].dim;
        if (placements[i].kind == DCP_REPLICATE || sharded != dim)
            continue;
        other->count = 0;
        other->length = 0;
        RETURN_IF_ERROR(runs_divide(other, runs, &placements[i], mesh->shape[i], coordinates[i]));
        struct runs swap = *runs;
        *runs = *other;
        *other = swap;
    }
    if (runs->count > 1)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "strided placements leave rank %" PRId64
                             " %zu pieces of dimension %" PRId32 ", not one",
                             mesh->rank, runs->count, dim);
    tensor->sizes[dim] = runs->length;
    tensor->offsets[dim] = runs->count > 0 ? runs->items[0].start : tensor->global_shape[dim];
    return DCP_OK;
}

/* A rank outside the mesh holds a box without elements at the end. */
static dcp_status shard_outside(dcp_tensor *tensor)
{
    if (tensor->ndim == 0)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "a rank outside the mesh holds nothing of a tensor without "
                             "dimensions, which no chunk can say: leave the tensor out");
    for (int32_t i = 0; i < tensor->ndim; i++) {
        tensor->offsets[i] = i == 0 ? tensor->global_shape[i] : 0;
        tensor->sizes[i] = i == 0 ? 0 : tensor->global_shape[i];
    }
    return DCP_OK;
}

static dcp_status shard_inside(const dcp_mesh *mesh, dcp_tensor *tensor,
                               const dcp_placement *placements)
{
    int64_t coordinates[DCP_MAX_MESH_DIMS];
    int64_t rank = mesh->rank;
    for (int32_t i = mesh->ndim - 1; i >= 0; i--) {
        coordinates[i] = rank % mesh->shape[i];
        rank /= mesh->shape[i];
    }
    struct runs runs = {0};
    struct runs other = {0};
    dcp_status status = DCP_OK;
    for (int32_t dim = 0; dim < tensor->ndim && status == DCP_OK; dim++)
        status = shard_dimension(mesh, coordinates, placements, tensor, dim, &runs, &other);
    memory_release(runs.items);
    memory_release(other.items);
    return status;
}

static dcp_status shard(const dcp_mesh *mesh, dcp_tensor *tensor, const dcp_placement *placements)
{
    if (!mesh || !placements)
        return dcp_error_set(DCP_ERR_ARGUMENT, "sharding over a mesh: the %s is NULL",
                             !mesh ? "mesh" : "list of placements");
    tensor->sharded = true;
    tensor->layout = (dcp_layout){0};
    RETURN_IF_ERROR(tensor_check_given(tensor));
    RETURN_IF_ERROR(tensor_check_shape(tensor));
    RETURN_IF_ERROR(check_mesh(mesh, placements, tensor->ndim));
    RETURN_IF_ERROR(mesh->rank == -1 ? shard_outside(tensor)
                                     : shard_inside(mesh, tensor, placements));
    tensor->layout.mesh = *mesh;
    memcpy(tensor->layout.placements, placements, (size_t)mesh->ndim * sizeof *placements);
    return DCP_OK;
}

/* Stores the failure in the tensor, so that it is not taken for a whole one: the status in place of
 * the mesh, and the message in place of the placements. tensor_check_given() reports it. */
static void spoil(dcp_tensor *tensor, dcp_status status)
{
    dcp_layout *layout = &tensor->layout;
    *layout = (dcp_layout){.mesh = {.ndim = -(int32_t)status}};
    const char *message = dcp_error_message();
    size_t length = strlen(message);
    memcpy(layout->placements, message,
           length < sizeof layout->placements ? length : sizeof layout->placements - 1);
}

dcp_status dcp_mesh_shard_sized(const dcp_mesh *mesh, dcp_tensor *tensor, size_t tensor_size,
                                const dcp_placement *placements)
{
    dcp_tensor ours;
    if (!tensor)
        return dcp_error_set(DCP_ERR_ARGUMENT, "sharding over a mesh: the tensor is NULL");
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, tensor, tensor_size, "dcp_tensor"));
    dcp_status status = shard(mesh, &ours, placements);
    if (status != DCP_OK)
        spoil(&ours, status);
    sized_write(tensor, tensor_size, &ours, sizeof ours);
    return status;
}
