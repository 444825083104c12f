/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_retention.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool counts(const struct run_candidate *candidate)
{
    return candidate->ours && candidate->whole;
}

static void DCP_PRINTF(3, 4)
    judge(struct run_candidate *candidate, dcp_run_verdict verdict, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    candidate->verdict = verdict;
    vsnprintf(candidate->why, sizeof candidate->why, format, arguments);
    va_end(arguments);
}

static bool removes_nothing(const dcp_run_keep *keep)
{
    return keep->last <= 0 && keep->every_steps <= 0 && keep->best <= 0 &&
           keep->younger_seconds <= 0;
}

/* How many are better; of equal ones the newer is. */
static int32_t count_better(const dcp_run_keep *keep, const struct run_candidate *candidates,
                            size_t count, size_t index)
{
    const double metric = candidates[index].metric;
    int32_t better = 0;
    for (size_t i = 0; i < count; i++) {
        const struct run_candidate *other = &candidates[i];
        if (!counts(other) || !other->has_metric || i == index)
            continue;
        better += other->metric == metric ? i > index
                                          : (other->metric > metric) == keep->higher_is_better;
    }
    return better;
}

/* newer: whole ones of later steps. */
static void decide_whole(const dcp_run_keep *keep, const struct run_bounds *bounds,
                         struct run_candidate *candidates, size_t count, size_t index,
                         int32_t newer)
{
    struct run_candidate *candidate = &candidates[index];
    if (bounds->has_bound && candidate->step > bounds->bound)
        judge(candidate, DCP_RUN_KEPT, "newer than the save that was committed");
    else if (candidate->pinned)
        judge(candidate, DCP_RUN_KEPT, "pinned");
    else if (newer == 0)
        judge(candidate, DCP_RUN_KEPT, "the newest whole one");
    else if (removes_nothing(keep))
        judge(candidate, DCP_RUN_KEPT, "there are no rules");
    else if (keep->last > newer)
        judge(candidate, DCP_RUN_KEPT, "one of the last %" PRId32, keep->last);
    else if (keep->every_steps > 0 && candidate->step % keep->every_steps == 0)
        judge(candidate, DCP_RUN_KEPT, "a multiple of %" PRId64 " steps", keep->every_steps);
    else if (keep->best > 0 && candidate->has_metric &&
             count_better(keep, candidates, count, index) < keep->best)
        judge(candidate, DCP_RUN_KEPT, "one of the best %" PRId32 " by %.60s", keep->best,
              keep->metric);
    else if (keep->younger_seconds > 0 && candidate->unix_time <= 0)
        judge(candidate, DCP_RUN_KEPT, "its age is not known");
    else if (keep->younger_seconds > 0 &&
             (double)(bounds->now - candidate->unix_time) < keep->younger_seconds)
        judge(candidate, DCP_RUN_KEPT, "younger than %.0f s", keep->younger_seconds);
    else
        judge(candidate, DCP_RUN_REMOVED, "no rule keeps it");
}

void run_retention_decide(const dcp_run_keep *keep, const struct run_bounds *bounds,
                          struct run_candidate *candidates, size_t count)
{
    int32_t newer = 0;
    for (size_t i = count; i-- > 0;) {
        struct run_candidate *candidate = &candidates[i];
        if (counts(candidate)) {
            decide_whole(keep, bounds, candidates, count, i, newer);
            /* Those beyond the bound may be what was there before a resume from an older step. */
            newer += newer < INT32_MAX && !(bounds->has_bound && candidate->step > bounds->bound);
        } else if (candidate->removing && !candidate->whole) {
            judge(candidate, DCP_RUN_REMOVED, "its removal was interrupted");
        } else if (candidate->ours && newer > 0 && !candidate->pinned) {
            judge(candidate, DCP_RUN_REMOVED, "left by a save that did not end");
        } else {
            candidate->verdict = DCP_RUN_LEFT;
        }
    }
}
