/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors inside of objects: read whole, into memory of the tree. */
#ifndef FORMAT_OBJECTS_OBJECT_TENSOR_H
#define FORMAT_OBJECTS_OBJECT_TENSOR_H

#include "format/streams/tensor_pickle.h"
#include "state/node.h"

struct object_storage;

/* The storages of one archive that several tensors look at. */
struct object_tensors {
    const struct zip_archive *archive;
    uint64_t allowance; /* bytes that tensors and storages may still take */
    struct name_table by_key;
    struct object_storage *storages; /* newest first */
};

void object_tensors_init(struct object_tensors *tensors, const struct zip_archive *archive);
void object_tensors_free(struct object_tensors *tensors);
/* Reads a tensor: row-major, without flags, in this machine's byte order, its record's CRC checked.
 * *node lives in the pool. */
dcp_status object_tensor_read(struct object_tensors *tensors, const struct pickle_value *value,
                              struct state_pool *pool, dcp_state **node);

#endif
