/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of load sharing: who reads what. */
#ifndef PLAN_SHARE_LOAD_SHARE_ASSIGN_H
#define PLAN_SHARE_LOAD_SHARE_ASSIGN_H

#include "plan/share/load_share.h"
#include "plan/share/load_share_regions.h"

/* Ranks by class: those of class c are ranks[starts[c]] to ranks[starts[c + 1] - 1], ascending. */
struct share_ranks {
    uint32_t *starts;
    uint32_t *ranks;
};

dcp_status share_ranks_init(struct share_ranks *ranks, const struct load_share *share);
void share_ranks_free(struct share_ranks *ranks);
size_t share_set_ranks(const struct share_ranks *ranks, const struct share_set *set);

/* A growing list of runs. */
struct share_runs {
    struct share_run *runs;
    size_t count;
    size_t capacity;
};

dcp_status share_runs_append(struct share_runs *runs, struct share_run run);
/* They become those of the share. */
void share_runs_hand_over(struct share_runs *runs, struct load_share *share);

/* Deals out the share's regions as runs, so that ranks read about equal bytes, or to those who hold
 * them; loads: by rank, bytes that they read besides, which grow. */
dcp_status load_share_assign(struct load_share *share, const struct metadata *metadata,
                             const struct share_rules *rules, const struct share_ranks *ranks,
                             uint64_t *loads);

/* Puts the parts of striped pieces, which are in order, in the place of these, stripe by stripe. */
dcp_status load_share_stripe(struct load_share *share, const struct metadata *metadata,
                             const struct share_regions *parts);

/* Whether several ranks may read parts of a region. */
bool share_can_be_cut(const struct metadata *metadata, const struct share_rules *rules,
                      const struct share_region *region);
/* The element at which to cut the region, near the given number of bytes. */
int64_t share_choose_cut(const struct metadata *metadata, const struct share_region *region,
                         uint64_t bytes);

/* Where a segment from an element on ends that has `count` elements, and up to a block more, so
 * that what follows is read around the page cache as well. `most` elements if that is too many, or
 * not in one place of the file. */
int64_t share_choose_end(const struct metadata *metadata, const struct share_region *region,
                         int64_t from, int64_t count, int64_t most);

/* Sets the share's window, when its runs are in order. */
dcp_status load_share_choose_window(struct load_share *share, const struct metadata *metadata,
                                    const struct share_rules *rules);

/* Puts runs in the order of load_share, and finds each reader's. */
dcp_status load_share_order_runs(struct load_share *share, const struct metadata *metadata);

#endif
