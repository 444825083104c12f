/* SPDX-License-Identifier: BSD-3-Clause */
/* Save planning: pure functions from plans to plans. The conductor moves the bytes between ranks.
 *
 * rank: save_plan_local(), joint_plan_add() -> up the tree, united -> coordinator:
 * joint_plan_merge(), encode orders -> scatter -> rank: decode, write. The coordinator keeps the
 * metadata. Where places are known only when all is written, rank: encode results -> gather ->
 * coordinator: decode, save_plan_place(). */
#ifndef PLAN_SAVE_SAVE_PLAN_H
#define PLAN_SAVE_SAVE_PLAN_H

#include "base/buffer.h"
#include "dcp/types.h"
#include "plan/save/joint_plan.h"
#include "state/metadata.h"
#include "state/write_plan.h"

/* How long a tensor's stream is: format's knowledge, handed in because planning must not know it.
 */
typedef dcp_status (*plan_stream_layout)(dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                                         uint64_t *data_offset, uint64_t *length);

struct save_plan_options {
    dcp_replicas replicas;
    dcp_file_layout files;
    uint32_t thread_count;
    uint32_t first_rank;   /* number of the first rank in file names */
    uint32_t generation;   /* part of file names, see shard_name() */
    bool objects_may_grow; /* the plan will be used again: objects get more room than they need */
    bool allow_partial;    /* tensors need not be covered */
    bool settled; /* who writes what has been decided: two that hold the same are an error */
    plan_stream_layout layout;
};

/* The items of one rank, one per chunk (empty ones too) and object, in the order of flat->entries.
 * object_lengths[i] belongs to flat->entries[i]. Pointers into flat are kept. */
dcp_status save_plan_local(const struct flat_state *flat, const uint64_t *object_lengths,
                           struct save_plan *plan);
/* What a rank sends to the coordinator. The decoded plan owns all that it points to; bytes that no
 * encoder made are DCP_ERR_FORMAT. */
dcp_status save_plan_encode(const struct save_plan *plan, struct buffer *out);
dcp_status save_plan_decode(const void *bytes, size_t size, struct save_plan *plan);

/* Where each rank's orders go, rank by rank, as soon as they are made; they are valid during the
 * call, and their boxes as long as the metadata. */
struct order_sink {
    dcp_status (*take)(void *context, uint32_t rank, const struct write_orders *orders);
    void *context;
    uint32_t only_rank; /* whose orders are wanted when the metadata is not */
};

/* Deduplicates or slices replicas, checks that chunks cover (if they must) and do not overlap,
 * balances bytes, assigns files and offsets (data of large tensors at multiples of 4096 of the
 * file, of all at multiples of 64). Errors name the tensor, the ranks and the boxes. The same joint
 * plan gives the same orders on every rank. metadata: complete but for save_id; it owns all that it
 * points to. Its files are in the order of the ranks, then of their files. NULL: only the orders of
 * one rank are wanted. A tensor without elements becomes one piece that is the whole of it, even
 * where the rank's own chunk is another empty box. */
dcp_status joint_plan_merge(const struct joint_plan *joint, const struct save_plan_options *options,
                            const struct order_sink *sink, struct metadata *metadata);

/* The same for plans of single ranks. orders: one per rank; their boxes are the metadata's. */
dcp_status save_plan_merge(const struct save_plan *plans, int rank_count,
                           const struct save_plan_options *options, struct write_orders *orders,
                           struct metadata *metadata);

/* The same in two steps, between which a planner of the caller's own has its say. What each rank is
 * to write: dealt[r], an array of one plan per rank, to be freed in either case, borrows from
 * plans. */
dcp_status save_plan_deal(const struct save_plan *plans, int rank_count,
                          const struct save_plan_options *options, struct save_plan *dealt);
/* Checks that each rank writes what it holds and no two the same (DCP_ERR_ARGUMENT,
 * DCP_ERR_OVERLAP, DCP_ERR_DUPLICATE, DCP_ERR_COVERAGE), and does the rest. orders: as if held had
 * been merged. */
dcp_status save_plan_settle(const struct save_plan *held, struct save_plan *dealt, int rank_count,
                            const struct save_plan_options *options, struct write_orders *orders,
                            struct metadata *metadata);

/* Whether the box is a part of the item's, or has no element at all. */
bool write_item_offers(const struct write_item *item, struct box box);

/* What the coordinator sends back to a rank: orders that refer to the plan which that rank sent,
 * and that are checked against it when decoded, and may point into it. */
dcp_status write_orders_encode(const struct write_orders *orders, struct buffer *out);
dcp_status write_orders_decode(const void *bytes, size_t size, const struct save_plan *plan,
                               struct write_orders *orders);

/* What a rank sends back when it has written: as many results as it had orders. */
dcp_status write_results_encode(const struct write_results *results, struct buffer *out);
/* results: write_results_free(), also on failure. Paths are text, and not checked further; places
 * are. */
dcp_status write_results_decode(const void *bytes, size_t size, struct write_results *results);
/* Puts the results of all ranks into the metadata of the merge, in place of what was planned, or of
 * results of the same orders before, which lay in the same order. Too few or too many are
 * DCP_ERR_GROUP; the metadata is half changed then. */
dcp_status save_plan_place(const struct write_results *results, int rank_count,
                           struct metadata *metadata);

/* Where a plan had put everything. All zero: nothing is noted. */
struct planned_places {
    struct metadata_piece *pieces; /* of all entries */
    size_t count;
    size_t file_count;
};

/* Notes the places before results that lie in another order are put in; puts them back, so that the
 * metadata can serve another save; does nothing where none are noted. */
dcp_status save_plan_places_take(const struct metadata *metadata, struct planned_places *places);
void save_plan_places_restore(struct planned_places *places, struct metadata *metadata);
void save_plan_places_free(struct planned_places *places);

#endif
