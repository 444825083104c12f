/* SPDX-License-Identifier: BSD-3-Clause */
/* How an asynchronous save will copy the tensors of its orders, as far as known beforehand. */
#ifndef CHECKPOINT_ASYNC_SAVE_STAGING_H
#define CHECKPOINT_ASYNC_SAVE_STAGING_H

#include "device/staging_needs.h"
#include "storage/shard/shard_writer.h"

/* All zero: nothing is copied. */
struct save_staging {
    bool wanted; /* copies are made by order, once there are orders */
    bool whole;  /* another attempt would need the whole copy */
    struct staging_options options;
    struct staging_pool *pool; /* an existing pool; NULL: none is known */
};

/* Describes what to copy for an order; false: the order has no tensor elements. */
bool save_staging_describe(const struct write_order *order, const struct shard_source *source,
                           struct staging_source *staged);
/* The memory that copying takes, without the lists of the save itself. */
dcp_status save_staging_needs(const struct write_orders *orders, const struct shard_source *sources,
                              const struct save_staging *staging, struct staging_needs *needs);
/* The elements of a box of a chunk. */
void save_staging_describe_box(const struct write_item *item, const struct state_chunk *chunk,
                               struct box box, struct staging_source *staged);

#endif
