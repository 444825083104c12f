/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors inside of objects: views of their storages, which are read whole, once, into blocks of
 * the tree. */
#ifndef FORMAT_OBJECTS_OBJECT_TENSOR_H
#define FORMAT_OBJECTS_OBJECT_TENSOR_H

#include "format/streams/tensor_pickle.h"
#include "state/node.h"

/* The storages of one archive that tensors were found to look at. */
struct object_tensors {
    const struct zip_archive *archive;
    uint64_t allowance;       /* bytes that blocks may still take */
    struct name_table blocks; /* key and width of what was swapped -> struct state_block */
    struct arena names;
};

void object_tensors_init(struct object_tensors *tensors, const struct zip_archive *archive);
void object_tensors_free(struct object_tensors *tensors);
/* Reads a tensor with its offset and strides in the storage, in this machine's byte order, and
 * checks the record's CRC. If it is flagged as conjugated or negated, the operation is applied, and
 * the result is row-major in a separate block. *node and the blocks live in the pool. */
dcp_status object_tensor_read(struct object_tensors *tensors, const struct pickle_value *value,
                              struct state_pool *pool, dcp_state **node);

#endif
