/* SPDX-License-Identifier: BSD-3-Clause */
/* Describes a tree in memory as the metadata of a checkpoint, whose files are ranks and whose
 * pieces are numbered; and moves such pieces between ranks. */
#ifndef CHECKPOINT_STATES_STATE_CATALOG_H
#define CHECKPOINT_STATES_STATE_CATALOG_H

#include "base/buffer.h"
#include "dcp/load.h"
#include "plan/load/load_plan.h"
#include "state/flatten.h"
#include "state/metadata.h"

struct state_catalog {
    struct metadata metadata; /* piece.offset is the number of a source */
    struct catalog_source {
        const dcp_state *node;
        const struct state_chunk *chunk; /* of a tensor */
        size_t stream;                   /* of an object: where it begins among the streams */
    } * sources;
    size_t count;
    struct buffer streams; /* of objects */
};

/* Makes a catalog of all entries that are not left out. It points into flat. streams: objects are
 * encoded, to be sent to other ranks. Free in either case. */
dcp_status state_catalog_make(const struct flat_state *flat, int rank, bool streams,
                              struct state_catalog *catalog);
void state_catalog_free(struct state_catalog *catalog);
/* The rank that has the pieces of a file; -1 if there is none. */
int state_catalog_owner(const struct metadata *metadata, uint32_t file);
/* Elements of a chunk, into dense memory on the host. box: in the coordinates of its tensor. */
dcp_status state_catalog_read(const struct catalog_source *source, struct box box, void *elements);

/* Moves pieces from the ranks that have them directly to those that want them. */
struct state_transfer {
    const dcp_load_options *options;  /* group, timeout_seconds */
    const struct metadata *whole;     /* the same on every rank */
    const struct state_catalog *mine; /* NULL: this rank has none of the pieces */
    const struct flat_state *flat;    /* destinations, by the plan's items */
    const struct load_plan *plan;     /* what this rank wants; all of it is sent */
};

/* Collective; the failure of one rank becomes that of all. */
dcp_status state_transfer_run(const struct state_transfer *transfer, dcp_status status);

#endif
