/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a DTensor's part lies, from its DTensorSpec: internals of PyTorch, which differ between its
 * versions. */
#include "convert/source_dtensor.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"

static dcp_status unknown(const char *what)
{
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "the DTensor's %s is none that is known here", what);
}

static bool is_class(const dcp_state *node, const char *name)
{
    const char *full = node ? dcp_state_opaque_name(node) : NULL;
    const char *last = full ? strrchr(full, '.') : NULL;
    return last && strcmp(last + 1, name) == 0;
}

/* An attribute that the pickle gave an object. */
static const dcp_state *attribute(const dcp_state *object, const char *name)
{
    size_t count = object ? dcp_state_count(object) : 0;
    for (size_t i = count; i > 0; i--) {
        const dcp_state *child = dcp_state_at(object, i - 1);
        const dcp_state *found =
            dcp_state_kind(child) == DCP_KIND_DICT ? dcp_state_find(child, name) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

static bool read_int(const dcp_state *node, int64_t *value)
{
    return node && dcp_state_as_int(node, value) == DCP_OK;
}

static dcp_status read_shape(const dcp_state *spec, struct dtensor *tensor)
{
    const dcp_state *meta = attribute(spec, "tensor_meta");
    const dcp_state *shape = is_class(meta, "TensorMeta") ? dcp_state_at(meta, 0) : NULL;
    if (!shape || dcp_state_kind(shape) != DCP_KIND_SIZE || dcp_state_count(shape) > DCP_MAX_DIMS)
        return unknown("shape");
    tensor->ndim = (int32_t)dcp_state_count(shape);
    for (int32_t d = 0; d < tensor->ndim; d++)
        if (!read_int(dcp_state_at(shape, (size_t)d), &tensor->shape[d]) || tensor->shape[d] < 0)
            return unknown("shape");
    return DCP_OK;
}

static dcp_status read_placements(const dcp_state *spec, dcp_layout *layout)
{
    const dcp_state *placements = attribute(spec, "placements");
    size_t count = placements ? dcp_state_count(placements) : 0;
    if (!placements || count > DCP_MAX_MESH_DIMS)
        return unknown("placement");
    layout->mesh.ndim = (int32_t)count;
    for (size_t i = 0; i < count; i++) {
        const dcp_state *placement = dcp_state_at(placements, i);
        dcp_placement *read = &layout->placements[i];
        int64_t dim = 0;
        bool strided = is_class(placement, "_StridedShard");
        *read = dcp_replicate();
        if (is_class(placement, "Replicate"))
            continue;
        if ((!strided && !is_class(placement, "Shard")) ||
            !read_int(attribute(placement, "dim"), &dim) || dim < 0 || dim >= DCP_MAX_DIMS ||
            (strided && !read_int(attribute(placement, "split_factor"), &read->split_factor)))
            return unknown("placement");
        read->kind = strided ? DCP_STRIDED_SHARD : DCP_SHARD;
        read->dim = (int32_t)dim;
    }
    return DCP_OK;
}

/* The ranks along each dimension of the mesh: of newer versions the axes of a layout, each of which
 * may be folded from several; of older ones the shape of a tensor of ranks. */
static bool read_extent(const dcp_state *mesh, size_t d, int64_t *extent)
{
    const dcp_state *axes = attribute(attribute(mesh, "_layout"), "axes");
    const dcp_state *axis = axes ? dcp_state_at(axes, d) : NULL;
    const dcp_state *shape = axis ? attribute(axis, "shape") : NULL;
    const dcp_state *ranks = attribute(mesh, "mesh");
    dcp_tensor tensor;
    int64_t folded;
    *extent = 1;
    if (!shape) {
        bool old = ranks && dcp_state_kind(ranks) == DCP_KIND_TENSOR &&
                   dcp_state_chunk(ranks, 0, &tensor) == DCP_OK && d < (size_t)tensor.ndim;
        *extent = old ? tensor.global_shape[d] : 0;
        return old;
    }
    if (read_int(shape, extent))
        return true;
    for (size_t i = 0; i < dcp_state_count(shape); i++)
        if (!read_int(dcp_state_at(shape, i), &folded) ||
            !checked_multiply_i64(*extent, folded, extent))
            return false;
    return true;
}

static dcp_status read_mesh(const dcp_state *spec, dcp_mesh *read)
{
    const dcp_state *mesh = attribute(spec, "mesh");
    const dcp_state *coordinates = attribute(mesh, "_coordinate_on_dim");
    read->rank = 0;
    if (!is_class(mesh, "DeviceMesh") || !coordinates)
        return unknown("mesh");
    for (int32_t i = 0; i < read->ndim; i++) {
        const dcp_state *node = dcp_state_at(coordinates, (size_t)i);
        int64_t coordinate;
        if (!read_extent(mesh, (size_t)i, &read->shape[i]) || !read_int(node, &coordinate) ||
            coordinate < 0 || coordinate >= read->shape[i] ||
            !checked_multiply_i64(read->rank, read->shape[i], &read->rank) ||
            !checked_add_i64(read->rank, coordinate, &read->rank))
            return unknown("mesh");
    }
    return DCP_OK;
}

dcp_status dtensor_read(dcp_checkpoint *checkpoint, size_t entry, struct dtensor *tensor,
                        bool *found)
{
    dcp_state *root = dcp_state_new();
    *tensor = (struct dtensor){0};
    *found = false;
    if (!root)
        return error_no_memory(1, "a placement");
    dcp_status status = dcp_checkpoint_read_object(checkpoint, entry, root, "spec", NULL);
    const dcp_state *spec = status == DCP_OK ? dcp_state_find(root, "spec") : NULL;
    *found = status == DCP_OK;
    if (status == DCP_ERR_KIND)
        status = DCP_OK; /* a plain tensor */
    if (spec)
        status = read_shape(spec, tensor);
    if (spec && status == DCP_OK)
        status = read_placements(spec, &tensor->layout);
    if (spec && status == DCP_OK)
        status = read_mesh(spec, &tensor->layout.mesh);
    dcp_state_free(root);
    return status;
}
