/* SPDX-License-Identifier: BSD-3-Clause */
/* This rank's side of a save: what it holds, in every form that the steps of a save need. */
#ifndef CHECKPOINT_SAVE_LOCAL_H
#define CHECKPOINT_SAVE_LOCAL_H

#include "base/buffer.h"
#include "state/flatten.h"
#include "state/write_plan.h"
#include "storage/shard_writer.h"

struct save_local {
    struct flat_state flat;
    struct buffer streams;    /* the streams of all objects, one after the other */
    uint64_t *stream_offsets; /* per entry of flat; tensors have none */
    uint64_t *stream_lengths;
    struct save_plan plan;
    struct shard_source *sources; /* per item of the plan */
};

/* Flattens, encodes the objects, and plans. On failure *local is safe to free. */
dcp_status save_local_prepare(dcp_state *state, struct save_local *local);
void save_local_free(struct save_local *local);

#endif
