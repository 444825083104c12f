/* SPDX-License-Identifier: BSD-3-Clause */
/* How an asynchronous save copies what its orders are about, as far as that is known before it
 * begins to. */
#ifndef CHECKPOINT_ASYNC_SAVE_STAGING_H
#define CHECKPOINT_ASYNC_SAVE_STAGING_H

#include "device/staging_needs.h"
#include "storage/shard/shard_writer.h"

/* All zero: nothing is copied. */
struct save_staging {
    bool wanted; /* by order, when there are orders */
    bool whole;  /* another attempt would need all of the copy */
    struct staging_options options;
    struct staging_pool *pool; /* that there is already; NULL: none is known */
};

/* Says what is to be copied for an order; false: it is not about elements. */
bool save_staging_describe(const struct write_order *order, const struct shard_source *source,
                           struct staging_source *staged);
/* What copying takes, but for the lists of the save itself. */
dcp_status save_staging_needs(const struct write_orders *orders, const struct shard_source *sources,
                              const struct save_staging *staging, struct staging_needs *needs);
/* The elements of a box of a chunk. */
void save_staging_describe_box(const struct write_item *item, const struct state_chunk *chunk,
                               struct box box, struct staging_source *staged);

#endif
