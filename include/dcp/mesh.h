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

#define DCP_MAX_MESH_DIMS 16

/**
 * An n-dimensional array of ranks, numbered row-major, seen from one of them. A plain value; copy
 * it freely. A rank that is not part of the mesh sets `rank` to -1: it holds nothing of any tensor
 * on the mesh.
 */
typedef struct dcp_mesh {
    int32_t ndim;
    int64_t shape[DCP_MAX_MESH_DIMS];
    int64_t rank; /**< position in the row-major mesh, 0 to product(shape) - 1, or -1 */
} dcp_mesh;

typedef enum dcp_placement_kind {
    DCP_REPLICATE = 0,
    DCP_SHARD = 1,
    DCP_STRIDED_SHARD =
        2 /**< PyTorch's _StridedShard: FSDP2 over tensor parallelism on one tensor dimension */
} dcp_placement_kind;

/** How one mesh dimension divides a tensor. */
typedef struct dcp_placement {
    dcp_placement_kind kind;
    int32_t dim;          /**< tensor dimension; negative counts from the end */
    int64_t split_factor; /**< strided shards: product of the mesh dimensions to the right that
                             shard `dim` too */
} dcp_placement;

static inline dcp_placement dcp_replicate(void)
{
    dcp_placement placement = {DCP_REPLICATE, 0, 0};
    return placement;
}

static inline dcp_placement dcp_shard(int32_t dim)
{
    dcp_placement placement = {DCP_SHARD, dim, 0};
    return placement;
}

static inline dcp_placement dcp_strided_shard(int32_t dim, int64_t split_factor)
{
    dcp_placement placement = {DCP_STRIDED_SHARD, dim, split_factor};
    return placement;
}

/**
 * Fills in `sharded`, `offsets` and `sizes` of @p tensor (whose dtype, ndim and global_shape are
 * set) with the chunk of the mesh's rank. Uneven sizes are split like torch.chunk; a rank beyond
 * the end gets a chunk of size 0 whose offset is the size of the dimension; several mesh dimensions
 * may divide one tensor dimension.
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
