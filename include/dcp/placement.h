/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file placement.h
 * @brief What meshes and placements are. How they divide a tensor is in mesh.h.
 */
#ifndef DCP_PLACEMENT_H
#define DCP_PLACEMENT_H

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DCP_MAX_MESH_DIMS 16

/**
 * An n-dimensional array of ranks, numbered row-major, seen from one of them. A plain value; copy
 * it freely: the struct will not grow. A rank that is not part of the mesh sets `rank` to -1: it
 * holds nothing of any tensor on the mesh.
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

/** How one mesh dimension divides a tensor. The struct will not grow, as it comes in arrays and is
 * returned by value. */
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
 * How all ranks divide a tensor: the arguments of dcp_mesh_shard(), which it leaves in the tensor.
 * All zero: unknown. The struct will not grow, as tensors contain it.
 */
typedef struct dcp_layout {
    dcp_mesh mesh;
    dcp_placement placements[DCP_MAX_MESH_DIMS]; /**< mesh.ndim of them */
} dcp_layout;

#ifdef __cplusplus
}
#endif

#endif
