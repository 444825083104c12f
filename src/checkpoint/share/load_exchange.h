/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends tensors' elements or objects' streams from the ranks that read or hold them to the ranks
 * that want them, as a load_share says. */
#ifndef CHECKPOINT_SHARE_LOAD_EXCHANGE_H
#define CHECKPOINT_SHARE_LOAD_EXCHANGE_H

#include "base/progress.h"
#include "dcp/group.h"
#include "group/host_memory.h"
#include "plan/load/load_plan.h"
#include "plan/share/load_share.h"

/* Memory of a rank for an exchange: three buffers of data read ahead, each of which holds all that
 * is read together (SHARE_STRIPE_MOST), the windows that it receives at once, and a window to
 * discard if the group has no all_to_all. Less than the 32 MiB that dcp_load_options::reading
 * promises, as long as it receives from no more than some 30,000 ranks, of each of which it takes
 * at least one small window. */
#define EXCHANGE_LOT_BYTES     ((size_t)4 << 20)
#define PREFETCH_BUFFERS       3
#define EXCHANGE_RECEIVE_BYTES ((size_t)8 << 20)

/* Elements from to end - 1 of a run. */
struct share_span {
    const struct share_run *run;
    int64_t from;
    int64_t end;
};

/* A span and where its elements go, one after the other, in the stored dtype. */
struct share_target {
    struct share_span span;
    unsigned char *bytes;
    unsigned char *also; /* where the reader puts them as well; NULL: nowhere */
    bool done;           /* used by the reader */
};

/* Reads spans of this rank's runs, in order from run to run: one, or all that are read together
 * (share_read_together()). next: the span that it reads then; NULL: none. By one thread at a time.
 */
typedef dcp_status (*run_reader)(void *context, struct share_target *targets, size_t count,
                                 const struct share_span *next);

/* Receives an object of this rank's plan: its stream, as stored. */
typedef dcp_status (*object_taker)(void *context, const struct read_item *item,
                                   const unsigned char *bytes, size_t size);

/* What is exchanged; all borrowed. */
struct load_exchange {
    dcp_group *group;
    struct dcp_collective call;
    const struct metadata *metadata;
    const struct load_share *share;
    const struct flat_state *flat; /* destinations of tensors, by the plan's items */
    const struct load_plan *plan;
    struct progress *progress; /* NULL: no progress reports */
    run_reader read;
    dcp_status (*end)(
        void *context); /* NULL, or checks what was read, after all of this rank's runs */
    void *read_context;
    object_taker take; /* NULL: tensors are shared */
    void *take_context;
};

/* Reads, sends, receives and hands over what is shared. Collective; every rank brings its status,
 * and the result is the same on all ranks; nothing happens where nothing is shared. moved: bytes
 * that were put into chunks; received: stored bytes that came from other ranks; both grow. */
dcp_status load_exchange_run(const struct load_exchange *exchange, dcp_status mine, uint64_t *moved,
                             uint64_t *received);

/* The most memory that this takes on this rank at a time for tensors, besides that for reading
 * runs. */
uint64_t load_exchange_memory(const struct load_exchange *exchange);

struct share_destinations;

/* The windows that this rank sends, read ahead by a thread. */
struct share_prefetch;

uint64_t share_prefetch_memory(const struct load_exchange *exchange);
/* put: borrowed; what has a place there is read to it. */
dcp_status share_prefetch_open(const struct load_exchange *exchange,
                               const struct share_destinations *put,
                               struct share_prefetch **prefetch);
/* Bytes of its buffers. */
size_t share_prefetch_room(const struct share_prefetch *prefetch);
/* Begins to read. memory: borrowed; for the buffers, if other ranks read it. */
dcp_status share_prefetch_start(struct share_prefetch *prefetch, const struct host_memory *memory);
/* The bytes of the next window, which begins with that run, valid until the next call; where other
 * ranks read them, until share_prefetch_pass() is called after that. If it has one segment, of
 * which share_destinations_place() knows the place, they are there, and in *bytes only if ranks of
 * this host read them. Even after a failure, *bytes points to memory of that size. */
dcp_status share_prefetch_next(struct share_prefetch *prefetch, const struct share_run *run,
                               size_t size, const unsigned char **bytes);
/* The other ranks of this host have read all windows but the last. */
void share_prefetch_pass(struct share_prefetch *prefetch);
/* NULL is allowed. */
void share_prefetch_close(struct share_prefetch *prefetch);

/* Copies received data to its destinations. */
uint64_t share_destinations_memory(const struct load_exchange *exchange);
dcp_status share_destinations_open(const struct load_exchange *exchange,
                                   struct share_destinations **destinations);
/* Copies the elements of a segment of a window. */
dcp_status share_destinations_put(struct share_destinations *destinations,
                                  const struct share_segment *segment, const unsigned char *bytes);
/* Where in this rank's memory the elements of a run from one on belong, one after the other and as
 * they are stored; NULL if they do not, or belong to several places, or if some tensors of the load
 * have memory in common. Thread-safe. */
unsigned char *share_destinations_place(const struct share_destinations *destinations,
                                        const struct share_run *run, int64_t from);
/* Counts the elements of a segment that are in their place already. */
dcp_status share_destinations_count(struct share_destinations *destinations,
                                    const struct share_segment *segment);
uint64_t share_destinations_moved(const struct share_destinations *destinations);
/* NULL is allowed. */
void share_destinations_close(struct share_destinations *destinations);

uint64_t share_places_memory(const struct load_exchange *exchange);
/* Whether no two chunks that an exchange of tensors is for have memory in common; false for one of
 * objects. */
dcp_status share_places_check(const struct load_exchange *exchange, bool *apart);
/* share_destinations_place() in the chunk of an item that wants a part of the region. */
unsigned char *share_place_of(const struct load_exchange *exchange, const struct read_item *item,
                              const struct share_region *region, int64_t from);

#endif
