/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes on their way from the ranks that read or hold them to those that want them, as a load_share
 * says: tensors' elements, or objects' streams. */
#ifndef CHECKPOINT_SHARE_LOAD_EXCHANGE_H
#define CHECKPOINT_SHARE_LOAD_EXCHANGE_H

#include "base/progress.h"
#include "dcp/group.h"
#include "plan/load/load_plan.h"
#include "plan/share/load_share.h"

/* Memory that a rank takes for bytes on their way: three buffers that are read ahead, what it
 * receives at once, and a window of others' that it throws away where the group has no all_to_all.
 * Together less than the 32 MiB that dcp_load_options::reading promises, as long as it receives
 * from no more than some 30,000 ranks, of each of which it takes at least one small window. */
#define EXCHANGE_LOT_BYTES     ((size_t)4 << 20)
#define PREFETCH_BUFFERS       3
#define EXCHANGE_RECEIVE_BYTES ((size_t)8 << 20)

/* Reads elements from to end - 1 of one of this rank's runs, in order from run to run, into dense
 * memory, in the stored dtype. By one thread at a time. */
typedef dcp_status (*run_reader)(void *context, const struct share_run *run, int64_t from,
                                 int64_t end, unsigned char *bytes);

/* Gets an object that an item of this rank's plan is about: its stream, as it is stored. */
typedef dcp_status (*object_taker)(void *context, const struct read_item *item,
                                   const unsigned char *bytes, size_t size);

/* What is exchanged; all borrowed. */
struct load_exchange {
    dcp_group *group;
    struct dcp_collective call;
    const struct metadata *metadata;
    const struct load_share *share;
    const struct flat_state *flat; /* where tensors go that come, by the plan's items */
    const struct load_plan *plan;
    struct progress *progress; /* NULL: nobody listens */
    run_reader read;
    dcp_status (*end)(void *context); /* NULL, or tells whether what was read was right, when all
                                         of this rank's runs have been */
    void *read_context;
    object_taker take; /* NULL: it is tensors that are shared */
    void *take_context;
};

/* Reads, sends, receives and hands over what is shared. Collective; every rank brings its status,
 * and the result is the same on all ranks; nothing happens where nothing is shared. moved: bytes
 * that were put into chunks; received: stored bytes that came from other ranks; both grow. */
dcp_status load_exchange_run(const struct load_exchange *exchange, dcp_status mine, uint64_t *moved,
                             uint64_t *received);

/* Memory that this takes on this rank at a time at most, beside what reading runs does; of tensors.
 */
uint64_t load_exchange_memory(const struct load_exchange *exchange);

/* What this rank has to send, window after window, which a thread of its own reads ahead. */
struct share_prefetch;

uint64_t share_prefetch_memory(const struct load_exchange *exchange);
dcp_status share_prefetch_open(const struct load_exchange *exchange,
                               struct share_prefetch **prefetch);
/* The next window's bytes, size of them, which stay until the next call. After a failure *bytes is
 * some memory of that size all the same. */
dcp_status share_prefetch_next(struct share_prefetch *prefetch, size_t size,
                               const unsigned char **bytes);
/* NULL is allowed. */
void share_prefetch_close(struct share_prefetch *prefetch);

/* What comes, put where it belongs. */
struct share_destinations;

uint64_t share_destinations_memory(const struct load_exchange *exchange);
dcp_status share_destinations_open(const struct load_exchange *exchange,
                                   struct share_destinations **destinations);
/* A segment of a window: its elements. */
dcp_status share_destinations_put(struct share_destinations *destinations,
                                  const struct share_segment *segment, const unsigned char *bytes);
uint64_t share_destinations_moved(const struct share_destinations *destinations);
/* NULL is allowed. */
void share_destinations_close(struct share_destinations *destinations);

#endif
