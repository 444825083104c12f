/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of load sharing: which regions are wanted by which classes. */
#ifndef PLAN_SHARE_LOAD_SHARE_REGIONS_H
#define PLAN_SHARE_LOAD_SHARE_REGIONS_H

#include "plan/share/load_share.h"

/* Sets of classes, each once. */
struct share_sets {
    struct share_set *sets;
    size_t count;
    size_t capacity;
    struct name_table by_classes;
    uint32_t *scratch; /* as many as there are classes, and one more */
    struct arena *arena;
};

/* Regions that the same classes want; no two have a common element. */
struct share_regions {
    struct share_region *regions;
    size_t count;
    size_t capacity;
};

dcp_status share_sets_init(struct share_sets *sets, size_t class_count, struct arena *arena);
void share_sets_free(struct share_sets *sets);
/* The set of these classes, which are ascending. */
dcp_status share_sets_find(struct share_sets *sets, const uint32_t *classes, size_t count,
                           uint32_t *set);

/* A want of a class. */
struct share_claim {
    const struct share_want *want;
    uint32_t class;
};

dcp_status share_regions_append(struct share_regions *regions, struct share_region region);

/* Adds the regions of claims that are all for one piece, sorted by region, then class. *cut_up:
 * there would be too many, as the regions overlap in too many ways, and none was added. */
dcp_status share_regions_add(struct share_regions *regions, struct share_sets *sets,
                             const struct share_claim *claims, size_t count, bool *cut_up);

#endif
