/* SPDX-License-Identifier: BSD-3-Clause */
/* This rank's side of a save: what it holds, in the forms that the steps of a save need. */
#ifndef CHECKPOINT_SAVE_SAVE_LOCAL_H
#define CHECKPOINT_SAVE_SAVE_LOCAL_H

#include "base/buffer.h"
#include "state/flatten.h"
#include "state/write_plan.h"
#include "storage/shard/shard_writer.h"

struct save_local {
    struct flat_state flat;
    struct buffer streams;    /* the streams of all objects, one after the other */
    uint64_t *stream_offsets; /* per entry of flat; tensors have none */
    uint64_t *stream_lengths;
    struct save_plan plan;
    struct shard_source *sources; /* per item of the plan */
};

/* Flattens; unflattened: dcp_save_options. On failure *local is safe to free. */
dcp_status save_local_flatten(dcp_state *state, bool unflattened, struct save_local *local);
/* Checks that all chunks have memory to save from. */
dcp_status save_local_check_tensors(struct flat_state *flat);
/* Encodes the objects; after flattening. */
dcp_status save_local_encode(struct save_local *local);
/* Plans; after encoding. */
dcp_status save_local_plan(struct save_local *local);
/* The bytes of the tensors and objects of the orders. */
uint64_t save_local_bytes(const struct save_local *local, const struct write_orders *orders);
/* Returns to the state after flattening. */
void save_local_unplan(struct save_local *local);
void save_local_free(struct save_local *local);

#endif
