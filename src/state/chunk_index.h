/* SPDX-License-Identifier: BSD-3-Clause */
/* Which chunk of a tensor a new one would overlap, without comparing it with every other. */
#ifndef STATE_CHUNK_INDEX_H
#define STATE_CHUNK_INDEX_H

#include "base/arena.h"
#include "state/box.h"
#include "state/node.h"

/* The numbers of the chunks, in sorted runs of 32, 64, 128, ...; two runs of the same length are
 * merged. Each run has a tree of bounds. The latest chunks, fewer than 32, are in no run. Memory is
 * in the tensor's arena. */
struct chunk_index;

/* Makes room for one more chunk, so that chunk_index_added() cannot fail. DCP_ERR_NO_MEMORY. */
dcp_status chunk_index_reserve(struct arena *arena, struct state_tensor *tensor);
/* The last of the tensor's chunks is new. */
void chunk_index_added(struct state_tensor *tensor);
/* Whether a box shares an element with a chunk, and with which one. */
bool chunk_index_find(const struct state_tensor *tensor, struct box box, size_t *chunk);

#endif
