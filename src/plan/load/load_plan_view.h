/* SPDX-License-Identifier: BSD-3-Clause */
/* The load plan as custom planners see and change it, and its resolution against state and
 * metadata. */
#ifndef PLAN_LOAD_LOAD_PLAN_VIEW_H
#define PLAN_LOAD_LOAD_PLAN_VIEW_H

#include "dcp/plan_item.h"
#include "plan/load/load_plan.h"
#include "plan/plan_data.h"

struct dcp_load_plan {
    dcp_read_item *items;
    size_t count;
    size_t capacity;
    struct arena arena; /* memory that items point to */
    struct plan_data planner_data;
    struct plan_data storage_data;
};

void load_plan_view_init(struct dcp_load_plan *plan);
void load_plan_view_free(struct dcp_load_plan *plan);
/* Appends the items of a plan that load_plan_make() made. */
dcp_status load_plan_view_append(struct dcp_load_plan *plan, const struct flat_state *flat,
                                 const struct metadata *metadata, const struct load_plan *made);
/* Encodes the items for another rank; planner and storage data are sent separately. */
void load_plan_view_encode(const struct dcp_load_plan *plan, struct buffer *out);
/* plan must be initialized. */
dcp_status load_plan_view_decode(struct reader *reader, struct dcp_load_plan *plan);

/* The entry of the state and of the metadata that an item refers to. */
struct read_target {
    uint32_t wanted; /* index into flat->entries */
    uint32_t chunk;
    uint32_t entry; /* index into metadata->entries */
    uint32_t piece;
    struct box destination; /* tensors: the part in the coordinates of the wanted tensor */
    struct box stored;      /* the part in the coordinates of the stored tensor */
};

struct read_targets {
    struct read_target *targets; /* one for each item, in the plan's order */
    size_t count;
    uint64_t bytes; /* of the parts, in the stored dtypes */
    struct arena arena;
};

/* Resolves the items and proves that each wanted chunk and object is read completely and once.
 * flat_names: name -> index into flat->entries. accounted: by index into flat->entries, names that
 * need not be read; names that options leave out need not either. The message names the item.
 * Errors: DCP_ERR_ARGUMENT for names and chunks that are not in the state, and for parts outside
 * their chunk; DCP_ERR_MISSING_KEY, DCP_ERR_KIND, DCP_ERR_COVERAGE, DCP_ERR_OVERLAP. To be freed in
 * either case. */
dcp_status load_plan_view_resolve(const struct dcp_load_plan *plan,
                                  const struct name_table *flat_names,
                                  const struct flat_state *flat, const struct metadata *metadata,
                                  const bool *accounted, struct read_targets *targets);
void read_targets_free(struct read_targets *targets);

#endif
