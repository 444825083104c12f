/* SPDX-License-Identifier: BSD-3-Clause */
/* The shapes that tensors of Megatron-Core's old flattened form had before they were stored. */
#ifndef CONVERT_SOURCE_REFORMULATED_H
#define CONVERT_SOURCE_REFORMULATED_H

#include "base/arena.h"
#include "base/name_table.h"
#include "dcp/tensor.h"

struct reformulated {
    int32_t ndim;
    const int64_t *shape;
};

struct reformulated_shapes {
    struct name_table names; /* -> index */
    struct reformulated *shapes;
    size_t count;
    struct arena *arena;
};

/* Reads them from DIRECTORY/.metadata; none where it says nothing of any. reformulated_free() also
 * after a failure. */
dcp_status reformulated_read(struct reformulated_shapes *shapes, const char *directory,
                             struct arena *arena);
/* Likewise, from the bytes of a .metadata. */
dcp_status reformulated_decode(struct reformulated_shapes *shapes, const void *bytes, size_t size,
                               struct arena *arena);
void reformulated_free(struct reformulated_shapes *shapes);

#endif
