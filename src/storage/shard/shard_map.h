/* SPDX-License-Identifier: BSD-3-Clause */
/* The elements of a stored piece where they are: in its file, mapped. */
#ifndef STORAGE_SHARD_SHARD_MAP_H
#define STORAGE_SHARD_SHARD_MAP_H

#include "storage/shard/shard_reader.h"
#include "storage/storage.h"

struct shard_mapping {
    struct storage_mapping bytes; /* from the first element to the end of the last */
    int64_t strides[DCP_MAX_DIMS];
};

/* DCP_ERR_UNSUPPORTED if the elements do not lie in the file as they are: compressed, byte-swapped,
 * or to be conjugated or negated. With verification, all that the file has checksums for is checked
 * beforehand, by reading it. The mapping outlives the reader. */
dcp_status shard_map_tensor(struct shard_reader *reader, const struct metadata_entry *entry,
                            const struct metadata_piece *piece, dcp_verification verification,
                            struct shard_mapping *mapping);

#endif
