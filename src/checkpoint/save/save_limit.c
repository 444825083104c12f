/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_limit.h"

#include <inttypes.h>

#include "base/error.h"
#include "checkpoint/save/replica_check.h"

/* The caller's cache is for a real save. What that keeps takes memory. */
static dcp_status take_empty_cache(dcp_saving *saving)
{
    return saving->options.plan_cache ? dcp_save_plan_cache_new(&saving->options.plan_cache)
                                      : DCP_OK;
}

static void drop_cache(dcp_saving *saving, dcp_save_plan_cache *callers)
{
    save_planning_forget(&saving->planning, DCP_ERR_CANCELLED);
    saving->planning.cache = NULL;
    if (saving->options.plan_cache != callers)
        dcp_save_plan_cache_free(saving->options.plan_cache);
    saving->options.plan_cache = NULL;
}

dcp_status save_limit_measure(dcp_saving *saving, dcp_state *state, dcp_status status,
                              struct save_needs *mine, struct save_needs *all)
{
    struct dcp_collective call = {"sharing the memory needs of the save",
                                  saving->options.timeout_seconds};
    dcp_save_plan_cache *callers = saving->options.plan_cache;
    dcp_status cached = take_empty_cache(saving);

    if (status == DCP_OK)
        status = cached;
    if (status == DCP_OK)
        status = saving->steps.set_up(saving, state);
    if (status == DCP_OK)
        status = saving->steps.plan_local(saving);
    status = saving_plan_global(saving, status);
    if (saving->assigned)
        status = replica_check_measure(saving, status);
    if (status == DCP_OK)
        status = save_needs_find(saving, mine);
    drop_cache(saving, callers);
    return save_needs_share(saving->options.group, &call, saving->options.coordinator, status, mine,
                            all);
}

/* A kept pool that leaves too little for the rest of the save is replaced by a smaller one. */
static void shrink_pool(const dcp_saving *saving, const struct save_needs *needs)
{
    struct staging_pool *pool = saving->staging.pool;
    if (!needs->staged || !pool)
        return;
    uint64_t memory = save_needs_memory(needs, &saving->how, &saving->staging);
    uint64_t used = staging_needs_pool(&needs->staging, &saving->staging.options);
    uint64_t kept = staging_pool_taken(pool);
    if (kept > used && memory + (kept - used) > saving->options.memory_limit)
        staging_pool_free(pool);
}

dcp_status save_limit_keep(dcp_saving *saving, dcp_status status)
{
    uint64_t limit = saving->options.memory_limit;
    struct save_needs needs;

    status = replica_check_measure(saving, status);
    if (status == DCP_OK)
        status = save_needs_find(saving, &needs);
    if (status == DCP_OK && needs.smallest > limit) {
        saving->limit_too_small = true;
        status = error_no_memory((size_t)needs.smallest, "a save");
    }
    if (status == DCP_OK) {
        save_needs_fit(&needs, limit, &saving->how, &saving->staging);
        shrink_pool(saving, &needs);
    }
    return saving_agree(saving, "keeping within the memory limit", status);
}

dcp_status save_limit_explain(dcp_saving *saving, dcp_state *state)
{
    bool reached = saving->limit_too_small || memory_account_limit_reached() != 0;
    struct save_needs mine = {0}, all;
    struct saved_error error;
    struct memory_span span;

    error_save(&error);
    dcp_status asked = reached ? DCP_ERR_NO_MEMORY : DCP_OK;
    asked = saving_agree(saving, "asking whether the memory limit was reached", asked);
    if (asked != DCP_ERR_NO_MEMORY)
        return error_restore(&error);
    save_planning_forget(&saving->planning, asked);
    dcp_status begun = saving_start_over_dry(saving);
    if (saving->staging.pool)
        staging_pool_free(saving->staging.pool);
    dcp_status status = state ? begun : error_restore(&error);
    memory_span_start(&span); /* without the peak of the save itself */
    status = save_limit_measure(saving, state, status, &mine, &all);
    memory_span_end(&span);
    if (status != DCP_OK || all.smallest <= saving->options.memory_limit)
        return status != DCP_OK ? status : error_restore(&error);
    return dcp_error_set(DCP_ERR_NO_MEMORY,
                         "memory_limit is %" PRIu64
                         " bytes, but the smallest sufficient limit is %" PRIu64,
                         saving->options.memory_limit, all.smallest);
}
