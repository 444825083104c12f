/* SPDX-License-Identifier: BSD-3-Clause */
/* Save planning: pure functions from plans to plans. Callers move the messages between ranks.
 *
 * rank: save_plan_local(), joint_plan_add() -> up the tree, united -> coordinator:
 * joint_plan_merge(), merge_order_all(), encode orders -> scatter -> rank: decode, write. The
 * coordinator keeps the metadata. Or each rank, if its plan implies all: joint_plan_add_all(),
 * joint_plan_merge(), merge_order_rank(), write. Where places are known only when all is written,
 * rank: encode results -> gather -> coordinator: decode, save_plan_place(). */
#ifndef PLAN_SAVE_SAVE_PLAN_H
#define PLAN_SAVE_SAVE_PLAN_H

#include "base/buffer.h"
#include "dcp/types.h"
#include "plan/save/joint_plan.h"
#include "state/metadata.h"
#include "state/write_plan.h"

/* Computes the length of a tensor's stream. Passed in, because planning must not depend on the
 * format. */
typedef dcp_status (*plan_stream_layout)(dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                                         uint64_t *data_offset, uint64_t *length);

struct save_plan_options {
    dcp_replicas replicas;
    dcp_file_layout files;
    uint32_t thread_count;
    uint32_t first_rank;   /* number of the first rank in file names */
    bool objects_may_grow; /* the plan will be used again, so objects get spare space */
    bool allow_partial;    /* tensors need not be covered */
    bool of_wholes;        /* items are whole tensors, of which each rank has boxes */
    bool borrows;          /* the plan outlives the metadata, which need not copy what it says */
    bool settled;          /* the writers are decided: replicas are an error */
    plan_stream_layout layout;
};

/* Makes the items of one rank: one per chunk (also empty ones) and object, in the order of
 * flat->entries. object_lengths[i] belongs to flat->entries[i]. Keeps pointers into flat. */
dcp_status save_plan_local(const struct flat_state *flat, const uint64_t *object_lengths,
                           struct save_plan *plan);
/* The message of a rank to the coordinator. The decoded plan owns all that it points to. Malformed
 * bytes are DCP_ERR_FORMAT. */
dcp_status save_plan_encode(const struct save_plan *plan, struct buffer *out);
dcp_status save_plan_decode(const void *bytes, size_t size, struct save_plan *plan);

/* Receives each rank's orders, rank by rank, as they are made. Orders are valid during the call,
 * their boxes as long as the metadata, or the merge if it has none. */
struct order_sink {
    dcp_status (*take)(void *context, uint32_t rank, const struct write_orders *orders);
    void *context;
};

/* What each rank writes of what all ranks hold. */
struct merge;

/* Deduplicates or slices replicas, checks that chunks cover (if they must) and do not overlap, and
 * balances bytes. Errors name the tensor, the ranks and the boxes. The same joint plan gives the
 * same merge on every rank. *merge: to be freed; NULL after a failure. The joint plan must outlive
 * it, and so must the metadata, which is made empty here; NULL: it will not be wanted. */
dcp_status joint_plan_merge(const struct joint_plan *joint, const struct save_plan_options *options,
                            struct metadata *metadata, struct merge **merge);
void merge_free(struct merge *merge);
/* Bytes of all ranks' streams, without what lies between them in files. */
uint64_t merge_bytes(const struct merge *merge);
/* Assigns files and offsets (data of large tensors at multiples of 4096 of the file, of all at
 * multiples of 64) to what one rank writes. */
dcp_status merge_order_rank(const struct merge *merge, uint32_t rank,
                            const struct order_sink *sink);
/* The same for all ranks; and completes the metadata, but for save_id. It owns everything that it
 * points to, unless options->borrows. Its files are ordered by rank, then by number. A tensor
 * without elements becomes one piece, the whole tensor, even if the rank's chunk is another empty
 * box. generation: part of file names, see shard_name(). sink: NULL if orders are not wanted. */
dcp_status merge_order_all(const struct merge *merge, uint32_t generation,
                           const struct order_sink *sink);

/* All of it for plans of single ranks. orders: one per rank; the metadata owns their boxes. */
dcp_status save_plan_merge(const struct save_plan *plans, int rank_count,
                           const struct save_plan_options *options, uint32_t generation,
                           struct write_orders *orders, struct metadata *metadata);

/* The same in two steps, between which a custom planner may change the result. dealt[r]: what rank
 * r should write; one plan per rank, which borrow from plans, to be freed in either case. */
dcp_status save_plan_deal(const struct save_plan *plans, int rank_count,
                          const struct save_plan_options *options, struct save_plan *dealt);
/* Checks that each rank writes only what it holds, and no two ranks the same (DCP_ERR_ARGUMENT,
 * DCP_ERR_OVERLAP, DCP_ERR_DUPLICATE, DCP_ERR_COVERAGE), and does the rest. orders: as if held had
 * been merged. */
dcp_status save_plan_settle(const struct save_plan *held, struct save_plan *dealt, int rank_count,
                            const struct save_plan_options *options, uint32_t generation,
                            struct write_orders *orders, struct metadata *metadata);

/* Whether the box is inside the item's box, or has no elements. */
bool write_item_offers(const struct write_item *item, struct box box);

/* The message of the coordinator to a rank. Orders refer to the plan that the rank sent. Decoding
 * checks them against that plan, and they may point into it. */
dcp_status write_orders_encode(const struct write_orders *orders, struct buffer *out);
dcp_status write_orders_decode(const void *bytes, size_t size, const struct save_plan *plan,
                               struct write_orders *orders);

/* The message of a rank after writing: as many results as it had orders. */
dcp_status write_results_encode(const struct write_results *results, struct buffer *out);
/* results: free with write_results_free(), also on failure. Checks offsets and lengths, and that
 * paths are text, but not where paths lead. */
dcp_status write_results_decode(const void *bytes, size_t size, struct write_results *results);
/* Replaces the places in the metadata of the merge by the results of all ranks. The metadata has
 * the planned places, or those of earlier results of the same orders. Too few or too many results
 * are DCP_ERR_GROUP, and leave the metadata half changed. */
dcp_status save_plan_place(const struct write_results *results, int rank_count,
                           struct metadata *metadata);

/* The planned places of all pieces. All zero: none are saved. */
struct planned_places {
    struct metadata_piece *pieces; /* of all entries */
    size_t count;
    size_t file_count;
};

/* Saves the planned places, before results in another order replace them. The second function
 * restores them, so that the metadata can be used for another save; it does nothing if none are
 * saved. */
dcp_status save_plan_places_take(const struct metadata *metadata, struct planned_places *places);
void save_plan_places_restore(struct planned_places *places, struct metadata *metadata);
void save_plan_places_free(struct planned_places *places);

#endif
