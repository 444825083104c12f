/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's save plan as hooks see it and change it. */
#ifndef CHECKPOINT_HOOKS_SAVE_PLAN_VIEW_H
#define CHECKPOINT_HOOKS_SAVE_PLAN_VIEW_H

#include "checkpoint/hooks/plan_data_wire.h"
#include "dcp/save_planner.h"
#include "state/write_plan.h"

/* The entry of an item that does not come from the state. */
#define ENTRY_NONE UINT32_MAX

struct dcp_save_plan {
    struct write_item *items;
    size_t count;
    size_t capacity;
    bool has_sources; /* items have their source in the state */
    struct plan_data planner_data;
    struct plan_data storage_data;
    struct arena arena;
};

void save_plan_view_init(struct dcp_save_plan *plan);
void save_plan_view_free(struct dcp_save_plan *plan);
/* Appends an item; what it points to is borrowed. */
dcp_status save_plan_view_append(struct dcp_save_plan *plan, const struct write_item *item);
/* The item as hooks see it. */
dcp_write_item save_plan_view_item(const struct dcp_save_plan *plan, const struct write_item *item);

/* Encodes both dicts for a message; and replaces the plan's dicts by decoded ones. */
dcp_status save_plan_view_append_data(const struct dcp_save_plan *plan, struct buffer *out);
dcp_status save_plan_view_read_data(struct dcp_save_plan *plan, struct reader *reader);

#endif
