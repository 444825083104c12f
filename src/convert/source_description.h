/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata that is being made of a training checkpoint. */
#ifndef CONVERT_SOURCE_DESCRIPTION_H
#define CONVERT_SOURCE_DESCRIPTION_H

#include "base/name_table.h"
#include "convert/source_training.h"
#include "state/metadata.h"

struct description {
    struct convert_source source;
    struct source_parts *parts; /* of the source */
    struct metadata *metadata;
    struct name_table file_names;
    size_t file_capacity;
    struct metadata_piece *pieces; /* of the tensor that is being described */
    size_t piece_count, piece_capacity;
};

/* The number that the file of a chunk in one of the parts' files has in the metadata. */
dcp_status description_file(struct description *made, size_t number, const char *name,
                            uint32_t *file);
/* A tensor, whose pieces are views of the parts that it consists of. */
dcp_status description_tensor(struct description *made, const struct source_tensor *tensor,
                              struct metadata_entry *entry);

#endif
