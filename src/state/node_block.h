/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a tree owns, and where tensors lie in it.
 *
 * A block is what PyTorch calls a storage: tensors that are views of one share it, and are saved so
 * that they will again. Of memory that is a caller's it is not known what it is a part of. */
#ifndef STATE_NODE_BLOCK_H
#define STATE_NODE_BLOCK_H

#include "state/node.h"

/* Memory that is freed with the pool, and charged to no account; host memory aligned to 64 bytes.
 */
dcp_status state_block_new(struct state_pool *pool, const dcp_device *device, uint64_t size,
                           struct state_block **block);
/* Whether a chunk is a view of its block, in host memory, with no stride below 0; *offset counts
 * elements. */
bool chunk_is_view(const struct state_tensor *tensor, const struct state_chunk *chunk,
                   int64_t *offset);
/* From the first byte of a chunk's elements to behind the last one, with what lies in between.
 * false: it has no elements. */
bool chunk_reach(const struct state_tensor *tensor, const struct state_chunk *chunk,
                 uint64_t *start, uint64_t *end);
/* Copies the elements to host memory, row-major. DCP_ERR_UNSUPPORTED for chunks that are strided on
 * a device. */
dcp_status chunk_read(const struct state_tensor *tensor, const struct state_chunk *chunk,
                      void *elements);
/* Copies the memory of all tensors below a node, and refers to the copies, in host memory of the
 * tree: one for each block, and row-major ones of what is not in a block. They are charged to the
 * account of the calling thread. After a failure it may have done so for some. */
dcp_status node_own_tensors(dcp_state *node);
/* The memory that the copies would take. */
dcp_status node_own_tensors_memory(dcp_state *node, uint64_t *memory);

#endif
