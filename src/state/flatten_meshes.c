/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "base/checked.h"
#include "dcp/mesh.h"
#include "state/box.h"
#include "state/flatten.h"

int64_t mesh_size(const dcp_mesh *mesh)
{
    int64_t ranks = 1;
    for (int32_t i = 0; i < mesh->ndim && i < DCP_MAX_MESH_DIMS; i++)
        if (!checked_multiply_i64(ranks, mesh->shape[i], &ranks))
            return INT64_MAX;
    return ranks;
}

/* Whether the tensor's mesh says what this rank holds of it. */
static bool is_divided(const struct state_tensor *tensor)
{
    if (tensor->layout == NULL || tensor->chunk_count == 0)
        return false;
    struct box box = {tensor->ndim, tensor->chunks[0].offsets, tensor->chunks[0].sizes};
    return !box_equal(box, box_whole(tensor->ndim, tensor->global_shape));
}

dcp_status flatten_check_meshes(const struct flat_state *flat, int ranks)
{
    for (size_t i = 0; i < flat->count; i++) {
        const struct flat_entry *entry = &flat->entries[i];
        if (entry->left_out || entry->node->kind != DCP_KIND_TENSOR ||
            !is_divided(entry->node->as.tensor))
            continue;
        int64_t size = mesh_size(&entry->node->as.tensor->layout->mesh);
        if (size > ranks)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "\"%s\" is on a mesh of %" PRId64
                                 " ranks, and the group has %d: pass the group of all ranks in the "
                                 "options, or make the mesh of the group's ranks",
                                 entry->name, size, ranks);
    }
    return DCP_OK;
}
