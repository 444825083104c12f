/* SPDX-License-Identifier: BSD-3-Clause */
/* How an asynchronous save will copy the tensors of its orders, as far as known beforehand. */
#ifndef CHECKPOINT_ASYNC_SAVE_STAGING_H
#define CHECKPOINT_ASYNC_SAVE_STAGING_H

#include "device/staging_needs.h"
#include "storage/shard/shard_writer.h"

/* All zero: nothing is copied. */
struct save_staging {
    bool threaded; /* another thread, still to be started, writes */
    bool wanted;   /* copies are made by order, once there are orders */
    bool tree;     /* instead, the whole state is copied before it is planned */
    bool whole;    /* another attempt would need the whole copy */
    struct staging_options options;
    struct staging_pool *pool; /* an existing pool; NULL: none is known */
    struct staging **begun;    /* of the whole state; NULL: none */
};

/* Describes what to copy for an order; false: the order has no tensor elements. */
bool save_staging_describe(const struct write_order *order, const struct shard_source *source,
                           struct staging_source *staged);
/* The memory that copying takes, without the lists of the save itself. */
dcp_status save_staging_needs(const struct write_orders *orders, const struct shard_source *sources,
                              const struct save_staging *staging, struct staging_needs *needs);
/* The same of copying the whole state. *objects: what the tensors in its objects take beside. */
dcp_status save_staging_tree_needs(const struct flat_state *flat,
                                   const struct save_staging *staging, struct staging_needs *needs,
                                   uint64_t *objects);
/* Describes what to copy of the whole state: all chunks, in order. *sources is the caller's. */
dcp_status save_staging_describe_tree(const struct flat_state *flat,
                                      struct staging_source **sources, size_t *count);

#endif
