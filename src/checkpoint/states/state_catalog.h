/* SPDX-License-Identifier: BSD-3-Clause */
/* What a tree in memory holds, as the metadata of a checkpoint whose files are ranks and whose
 * pieces are numbered, and moving such pieces between ranks. */
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

/* Of what is not left out. The catalog points into flat. streams: objects are encoded, so that they
 * can be passed on. Free in either case. */
dcp_status state_catalog_make(const struct flat_state *flat, int rank, bool streams,
                              struct state_catalog *catalog);
void state_catalog_free(struct state_catalog *catalog);
/* The rank that has the pieces of a file; -1 if none can. */
int state_catalog_owner(const struct metadata *metadata, uint32_t file);
/* Elements of a chunk, into dense memory on the host. box: in the coordinates of its tensor. */
dcp_status state_catalog_read(const struct catalog_source *source, struct box box, void *elements);

/* Pieces on their way from the ranks that have them straight to those that want them. */
struct state_transfer {
    const dcp_load_options *options;  /* group, timeout_seconds */
    const struct metadata *whole;     /* the same on every rank */
    const struct state_catalog *mine; /* NULL: none of the pieces is here */
    const struct flat_state *flat;    /* where they go to, by the plan's items */
    const struct load_plan *plan;     /* what this rank wants, all of which comes */
};

/* Collective; every rank's failure becomes everyone's. */
dcp_status state_transfer_run(const struct state_transfer *transfer, dcp_status status);

#endif
