/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_prune_apply.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

bool run_prune_is_stopped(const dcp_run_prune_options *options)
{
    return options->stopped && options->stopped(options->stopped_context);
}

static void leave(const struct run_removals *removals, struct run_candidate *candidate,
                  const char *why)
{
    candidate->verdict = DCP_RUN_LEFT;
    snprintf(candidate->why, sizeof candidate->why, "%.150s", why);
    log_line(DCP_LOG_WARNING, "%s/%s is not removed: %s", removals->place->root, candidate->name,
             candidate->why);
}

static dcp_status apply(const struct run_removals *removals, struct run_candidate *candidate,
                        size_t index, uint64_t *removed)
{
    const dcp_run_prune_options *options = removals->options;
    if (candidate->verdict != DCP_RUN_REMOVED || options->dry_run)
        return DCP_OK;
    if (run_prune_is_stopped(options)) {
        candidate->verdict = DCP_RUN_LEFT;
        snprintf(candidate->why, sizeof candidate->why, "pruning was stopped");
        return DCP_OK;
    }
    const char *spared =
        options->spared ? options->spared(options->spared_context, candidate->name) : NULL;
    if (spared) {
        leave(removals, candidate, spared);
        return DCP_OK;
    }
    if (*removed > 0 && removals->keep->pause_seconds > 0)
        clock_sleep_ns((int64_t)(removals->keep->pause_seconds * 1e9));
    dcp_status status = removals->remove(removals->context, index);
    if (status == DCP_OK)
        ++*removed;
    else
        leave(removals, candidate, dcp_error_message());
    return status;
}

dcp_status run_prune_apply(const struct run_removals *removals, struct run_candidate *candidates,
                           size_t count, uint64_t *removed)
{
    const dcp_run_prune_options *options = removals->options;
    struct saved_error first = {.status = DCP_OK};
    for (size_t i = 0; i < count; i++) {
        struct run_candidate *candidate = &candidates[i];
        dcp_status status = apply(removals, candidate, i, removed);
        if (status != DCP_OK && first.status == DCP_OK)
            error_save(&first);
        if (options->verdict)
            options->verdict(options->verdict_context, candidate->name, candidate->verdict,
                             candidate->why);
        if (run_place_gives_up(status))
            break;
    }
    return first.status == DCP_OK ? DCP_OK : error_restore(&first);
}
