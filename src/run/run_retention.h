/* SPDX-License-Identifier: BSD-3-Clause */
/* Which checkpoints of a run stay: decisions alone, nothing is removed. */
#ifndef RUN_RUN_RETENTION_H
#define RUN_RUN_RETENTION_H

#include <stddef.h>

#include "dcp/run_prune.h"

enum { RUN_REASON_MAX = 160 };

/* What is known of a name that has the run's pattern. */
struct run_candidate {
    const char *name;
    int64_t step;
    bool ours; /* it carries the run's identity, and is no copy of another step */
    bool whole;
    bool removing; /* its removal was begun */
    bool pinned;
    bool has_metric;
    double metric;
    int64_t unix_time; /* 0: not known */

    dcp_run_verdict verdict;
    char why[RUN_REASON_MAX]; /* what is already said of one that is not ours or not whole stays */
};

struct run_bounds {
    int64_t now; /* unix time */
    bool has_bound;
    int64_t bound; /* no whole one of a later step is touched */
};

/* Decides on candidates in the order of their steps. */
void run_retention_decide(const dcp_run_keep *keep, const struct run_bounds *bounds,
                          struct run_candidate *candidates, size_t count);

#endif
