/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file tensor.h
 * @brief Element types, and the description of one chunk of one tensor in memory.
 */
#ifndef DCP_TENSOR_H
#define DCP_TENSOR_H

#include "device.h"
#include "placement.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Most dimensions that a tensor may have (PyTorch's own limit). */
#define DCP_MAX_DIMS 64

/** Element types: all plain dtypes of PyTorch's serialization. Elements are little-endian on
 * disk. */
typedef enum dcp_dtype {
    DCP_DTYPE_NONE = 0, /**< not a dtype */

    DCP_F64 = 1,
    DCP_F32 = 2,
    DCP_F16 = 3,
    DCP_BF16 = 4,

    DCP_I64 = 10,
    DCP_I32 = 11,
    DCP_I16 = 12,
    DCP_I8 = 13,
    DCP_U64 = 14,
    DCP_U32 = 15,
    DCP_U16 = 16,
    DCP_U8 = 17,
    DCP_BOOL = 18, /**< one byte, 0 or 1 */

    DCP_C128 = 20,       /**< complex of two F64 */
    DCP_C64 = 21,        /**< complex of two F32 */
    DCP_C32 = 22,        /**< complex of two F16 */
    DCP_BCOMPLEX32 = 23, /**< complex of two BF16 (PyTorch 2.15): read, not saved */

    DCP_F8_E4M3FN = 30,
    DCP_F8_E4M3FNUZ = 31,
    DCP_F8_E5M2 = 32,
    DCP_F8_E5M2FNUZ = 33,
    DCP_F8_E8M0FNU = 34,
    DCP_F4_E2M1FN_X2 = 35, /**< two values a byte; shapes count bytes */

    DCP_BITS8 = 40, /**< this and what follows: read from `.pt` files, not saved */
    DCP_BITS16 = 41,
    DCP_BITS1X8 = 42,
    DCP_BITS2X4 = 43,
    DCP_BITS4X2 = 44
} dcp_dtype;

/** @return bytes of one element; 0 if @p dtype is invalid. */
DCP_API size_t dcp_dtype_size(dcp_dtype dtype);

/** @return PyTorch's name, such as "bfloat16"; static storage; NULL if @p dtype is invalid. */
DCP_API const char *dcp_dtype_name(dcp_dtype dtype);

/** @return the dtype that PyTorch calls @p name ("bfloat16", not "torch.bfloat16"), DCP_DTYPE_NONE
 * if there is none. */
DCP_API dcp_dtype dcp_dtype_from_name(const char *name);

/**
 * One chunk (an axis-aligned box) of one tensor, and the memory that holds it.
 *
 * The zero value of every field is the common case: not `sharded` means that the chunk is the whole
 * tensor, not `strided` means that it lies in memory row-major without gaps. Units: shapes,
 * offsets, sizes and strides count elements. Ambiguous descriptions are DCP_ERR_ARGUMENT:
 * `global_shape` without `ndim`, `offsets` or `sizes` without `sharded` (except sizes of the whole
 * tensor).
 */
typedef struct dcp_tensor {
    dcp_dtype dtype;
    int32_t ndim; /**< 0 to DCP_MAX_DIMS */
    bool sharded; /**< `offsets` and `sizes` say which box of the tensor this is; else the whole */
    bool strided; /**< `strides` say how the chunk lies in memory; else row-major, dense */
    bool requires_grad; /**< informative; written to the metadata */
    dcp_device device;  /**< where `data` is; chunks of one tensor may be on several devices */
    void *data; /**< element (0, ..., 0) of the chunk; borrowed. NULL on load: memory is allocated
                   for the caller. NULL on save: an error, unless the chunk has no elements */
    int64_t global_shape[DCP_MAX_DIMS];
    int64_t offsets[DCP_MAX_DIMS]; /**< of the chunk's first element in the tensor */
    int64_t sizes[DCP_MAX_DIMS]; /**< extent of the chunk; 0 is allowed: this rank holds nothing */
    /** May be 0 or negative for saving. The elements of a destination must not share memory, and
       its dimensions must nest, as those of slices and permutations of a dense array do. */
    int64_t strides[DCP_MAX_DIMS];
    /** How all ranks divide the tensor; set by dcp_mesh_shard(), otherwise zero. If every sharded
       tensor of a save has a layout over a mesh of all ranks of the group in order, no plans are
       gathered. It is ignored if the chunk does not match it. A mesh with more ranks than the group
       is DCP_ERR_ARGUMENT in saves, and in loads with a group, unless the chunk is the whole
       tensor. */
    dcp_layout layout;
} dcp_tensor;

#ifdef __cplusplus
}
#endif

#endif
