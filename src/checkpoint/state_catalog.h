/* SPDX-License-Identifier: BSD-3-Clause */
/* What a tree in memory holds, as the metadata of a checkpoint whose files are ranks and whose
 * pieces are numbered, and moving such pieces between ranks. */
#ifndef CHECKPOINT_STATE_CATALOG_H
#define CHECKPOINT_STATE_CATALOG_H

#include "base/buffer.h"
#include "dcp/group.h"
#include "state/flatten.h"
#include "state/metadata.h"

struct state_catalog {
    struct metadata metadata; /* piece.offset is the number of a source */
    struct catalog_source {
        const dcp_state *node;
        const struct state_chunk *chunk; /* of a tensor */
    } * sources;
    size_t count;
};

/* Of what is not left out. The catalog points into flat. Free in either case. */
dcp_status state_catalog_make(const struct flat_state *flat, int rank,
                              struct state_catalog *catalog);
void state_catalog_free(struct state_catalog *catalog);
/* The rank that has a piece; -1 if none can. */
int state_catalog_owner(const struct metadata *metadata, const struct metadata_piece *piece);
/* The elements of a chunk, dense, on the host: the chunk's own memory if it is so, else in buffer.
 */
dcp_status state_catalog_elements(const struct catalog_source *source, struct buffer *buffer,
                                  const void **elements, size_t *size);

/* Gets a piece's bytes: dense elements, or an object's stream. */
typedef dcp_status (*piece_receiver)(void *context, size_t entry, size_t piece, const void *bytes,
                                     size_t size);

/* Pieces on their way, a few at a time, through rank 0. */
struct state_transfer {
    dcp_group *group;
    double timeout_seconds;
    const struct metadata *whole;     /* the same on every rank */
    const struct state_catalog *mine; /* NULL: none of the pieces is here */
    bool from_all;                    /* else rank 0 has all pieces */
    bool to_all;                      /* else rank 0 gets them */
    piece_receiver receive;
    void *context;
};

/* Every rank's failure becomes everyone's. */
dcp_status state_transfer_run(const struct state_transfer *transfer, dcp_status status);

/* Puts the region of a piece's elements into a chunk, converting them. */
dcp_status state_piece_put(const struct metadata_entry *entry, const struct metadata_piece *piece,
                           const void *elements, size_t size, struct box region, dcp_dtype dtype,
                           const struct state_chunk *chunk);

#endif
