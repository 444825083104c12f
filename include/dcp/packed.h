/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file packed.h
 * @brief A state tree as one run of bytes, for bindings to other languages.
 *
 * If calls into C are slow, a whole tree can be passed in one call: dcp_state_unpack() builds a
 * tree from a description in bytes, dcp_state_pack() describes a tree. The bytes are only valid in
 * the process that made them, because tensors are described with pointers to their memory.
 *
 * A value is one byte for its kind, and the fields below. Integers are little-endian and not
 * aligned; a count or length is a u64.
 *
 * | byte | value | what follows |
 * | --- | --- | --- |
 * | `N` | None | |
 * | `0`, `1` | False, True | |
 * | `i` | int | i64 |
 * | `I` | int of any size | length, decimal digits |
 * | `f` | float | f64 |
 * | `c` | complex | two f64 |
 * | `s` | string | length, UTF-8 |
 * | `b`, `B` | bytes, bytearray | length, the bytes |
 * | `D` | torch.dtype | u8: #dcp_dtype |
 * | `V` | torch.device | length, text |
 * | `Z` | torch.Size | count, as many i64 |
 * | `[`, `(` | list, tuple | count, as many values |
 * | `{`, `O` | dict, OrderedDict | count, as many pairs of a key and a value |
 * | `t`, `m` | tensor, tensor on a mesh | see below |
 * | `S`, `F` | set, frozenset | count, as many values |
 * | `o` | stored stream of an object, see dcp_state_stream() | length, the bytes |
 * | `x` | opaque object | name as by `s`, count, as many values; only dcp_state_pack() gives it |
 *
 * A tensor is u8 dtype, u8 ndim, u8 requires_grad, u8 sharded, a count of chunks, its global shape,
 * and then each chunk: the fields `operations`, `index` and `queue` of #dcp_device, and the address
 * of its first element (each of these a u64), offsets, sizes and strides. Shapes and the like are
 * `ndim` i64 each. A tensor that is not sharded has one chunk, the whole of it.
 *
 * A tensor on a mesh is u8 dtype, u8 ndim, u8 requires_grad, u8 dimensions of the mesh, the mesh's
 * rank and shape, for each of its dimensions a placement (kind, dim and split_factor of
 * #dcp_placement), the global shape, and the one chunk that this rank holds, as above but without
 * offsets; numbers are i64. The chunk is divided as dcp_mesh_shard() does it, and its sizes must be
 * those that come of it. dcp_state_pack() gives such a tensor with its offsets instead.
 */
#ifndef DCP_PACKED_H
#define DCP_PACKED_H

#include "state.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Builds the described value, and adds it under @p key, with the rules of the calls in state.h; a
 * failure sticks to the tree.
 * @param key as for these calls; NULL in a list or tuple. NULL with a dict for @p parent: the bytes
 * are a dict, whose pairs are added to the parent itself.
 * Errors: DCP_ERR_FORMAT, with the position of the wrong byte, and those of the calls;
 * DCP_ERR_SHAPE if the sizes of a chunk on a mesh are not those of its placements.
 */
DCP_API dcp_status dcp_state_unpack(dcp_state *parent, const char *key, const void *bytes,
                                    size_t size);

/**
 * Describes a node with its subtree. Shared values are repeated. The tree keeps the memory of
 * tensors.
 * @param limit maximum size of the description in bytes; 0 means 1 GiB. A longer one is
 * DCP_ERR_UNSUPPORTED. Errors: DCP_ERR_UNSUPPORTED for a value that contains itself or a stateful
 * entry; and the sink's.
 */
DCP_API dcp_status dcp_state_pack(const dcp_state *node, size_t limit, dcp_sink sink,
                                  void *context);

#ifdef __cplusplus
}
#endif

#endif
