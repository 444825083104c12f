/* SPDX-License-Identifier: BSD-3-Clause */
/* Removing, one after the other, what the rules do not keep. */
#ifndef RUN_RUN_PRUNE_APPLY_H
#define RUN_RUN_PRUNE_APPLY_H

#include "run/run_place.h"
#include "run/run_retention.h"

struct run_removals {
    const struct run_place *place; /* of the candidates' names */
    const dcp_run_prune_options *options;
    const dcp_run_keep *keep;
    dcp_status (*remove)(void *context, size_t index); /* the candidate of that number */
    void *context;
};

/* Whether the caller wants no more to be removed. */
bool run_prune_is_stopped(const dcp_run_prune_options *options);
/* Carries out what was decided, and reports each verdict. A removal that fails ends nothing, unless
 * it says nothing of its candidate; the first failure is returned. *removed: those that went, added
 * to what it was. */
dcp_status run_prune_apply(const struct run_removals *removals, struct run_candidate *candidates,
                           size_t count, uint64_t *removed);

#endif
