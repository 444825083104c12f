/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file mesh.h
 * @brief Device meshes and placements: which chunk of a tensor a rank holds, as PyTorch's DTensor
 * computes it.
 */
#ifndef DCP_MESH_H
#define DCP_MESH_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Fills in `sharded`, `offsets` and `sizes` of @p tensor (whose dtype, ndim and global_shape are
 * set) with the chunk of the mesh's rank, and `layout` with the mesh and the placements. Uneven
 * sizes are split like torch.chunk; a rank beyond the end gets a chunk of size 0 whose offset is
 * the size of the dimension; several mesh dimensions may divide one tensor dimension.
 *
 * A failure is stored in the tensor: calls that take the tensor afterwards (dcp_state_tensor(), and
 * so a save of the state) fail with the same status and message, until another call of this
 * function succeeds.
 *
 * @param placements one per mesh dimension.
 * Errors: DCP_ERR_ARGUMENT; DCP_ERR_UNSUPPORTED when strided placements would leave this rank
 * several boxes. Source: torch.distributed.tensor._utils.compute_local_shape_and_global_offset
 * (2.13).
 */
DCP_API dcp_status dcp_mesh_shard_sized(const dcp_mesh *mesh, dcp_tensor *tensor,
                                        size_t tensor_size, const dcp_placement *placements);

static inline dcp_status dcp_mesh_shard(const dcp_mesh *mesh, dcp_tensor *tensor,
                                        const dcp_placement *placements)
{
    return dcp_mesh_shard_sized(mesh, tensor, sizeof *tensor, placements);
}

#ifdef __cplusplus
}
#endif

#endif
