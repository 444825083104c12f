/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata that is being made of a training checkpoint. */
#ifndef CONVERT_SOURCE_DESCRIPTION_H
#define CONVERT_SOURCE_DESCRIPTION_H

#include "base/name_table.h"
#include "convert/source_training.h"
#include "state/metadata.h"

/* The tensor that a part lies in. */
struct holder {
    size_t number; /* of the file among the parts' */
    size_t index;  /* of the entry in it */
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    dcp_stored_chunk chunk; /* the first one; of tensors that are no streams the only one */
    uint32_t file;          /* that the chunk is in, in the metadata */
};

struct description {
    struct convert_source source;
    struct source_parts *parts; /* of the source */
    struct metadata *metadata;
    struct name_table file_names;
    size_t file_capacity;
    struct metadata_piece *pieces; /* of the tensor that is being described */
    size_t piece_count, piece_capacity;
    struct name_table stream_lists; /* of holders: see source_streams.c */
};

/* The number that the file of a chunk in one of the parts' files has in the metadata. */
dcp_status description_file(struct description *made, size_t number, const char *name,
                            uint32_t *file);
/* A tensor, whose pieces are views of the parts that it consists of. */
dcp_status description_tensor(struct description *made, const struct source_tensor *tensor,
                              struct metadata_entry *entry);
/* Appends a piece to the tensor that is being described. */
dcp_status description_piece(struct description *made, const struct source_tensor *tensor,
                             struct box box, struct metadata_piece piece);
/* DCP_ERR_UNSUPPORTED: "NAME: cannot be read in place, as FILE why". */
dcp_status description_refuse(const struct description *made, const struct source_tensor *tensor,
                              size_t file, const char *why);

/* ---- what lies in streams (source_streams.c) ---- */

/* Appends a tensor that is in streams as it is, in the chunks that it has there. */
dcp_status description_streams(struct description *made, const struct source_tensor *tensor,
                               const struct holder *holder);
/* Appends a part that is inside of such a tensor and has no entry_offsets, as ranges of its chunks.
 * from: the part's first element in the tensor that is described, unless it is a box. */
dcp_status description_stream_ranges(struct description *made, const struct source_tensor *tensor,
                                     const struct source_part *part, const struct holder *holder,
                                     int64_t from);

#endif
