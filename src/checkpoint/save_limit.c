/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save_limit.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/sized.h"
#include "checkpoint/conductor.h"
#include "checkpoint/save_needs.h"

/* When this rank has its orders. */
static dcp_status find_needs(const dcp_saving *saving, struct save_needs *needs)
{
    return save_needs_find(&saving->operation, &saving->session, saving->rank, &saving->orders,
                           saving->local.sources, saving->coordinates ? &saving->coordinator : NULL,
                           &saving->options, &saving->how, needs);
}

/* Takes the steps of a save up to writing, without making anything; then tells what the save needs,
 * here and in all. */
static dcp_status imagine(dcp_saving *saving, dcp_state *state, dcp_status status,
                          struct save_needs *mine, struct save_needs *all)
{
    struct dcp_collective call = {"sharing what the save needs", saving->options.timeout_seconds};

    saving->imagined = true;
    if (status == DCP_OK)
        status = saving_set_up(saving, state);
    if (status == DCP_OK)
        status = saving_plan_local(saving);
    status = saving_plan_global(saving, status);
    if (status == DCP_OK)
        status = find_needs(saving, mine);
    return save_needs_share(saving->options.group, &call, saving->options.coordinator, status, mine,
                            all);
}

dcp_status save_limit_keep(dcp_saving *saving, dcp_status status)
{
    uint64_t limit = saving->options.memory_limit;
    struct save_needs needs;

    if (status == DCP_OK)
        status = find_needs(saving, &needs);
    if (status == DCP_OK && needs.smallest > limit) {
        saving->limit_too_small = true;
        status = error_no_memory((size_t)needs.smallest, "a save");
    }
    if (status == DCP_OK)
        shard_needs_fit(&needs.writing, limit - needs.held, &saving->how);
    return saving_agree(saving, "keeping within the memory limit", status);
}

/* What has been planned goes; the operation stays. */
static void start_over(dcp_saving *saving)
{
    struct dcp_saving fresh = {.ops = saving->ops, .path = saving->path};

    saving_free(saving);
    saving->hooks = fresh.hooks;
    saving->local = fresh.local;
    saving->session = fresh.session;
    saving->orders = fresh.orders;
    saving->results = fresh.results;
    saving->coordinator = fresh.coordinator;
    saving->planning = fresh.planning;
    save_hooks_init(&saving->hooks, &saving->options, saving->path, DCP_OK);
    metadata_init(&saving->coordinator.metadata);
}

dcp_status save_limit_explain(dcp_saving *saving, dcp_state *state)
{
    bool reached = saving->limit_too_small || memory_account_limit_reached() != 0;
    struct save_needs mine = {0}, all;
    struct error_story story;

    error_save(&story);
    dcp_status asked = reached ? DCP_ERR_NO_MEMORY : DCP_OK;
    asked = saving_agree(saving, "asking whether the memory limit was reached", asked);
    if (asked != DCP_ERR_NO_MEMORY)
        return error_restore(&story);
    start_over(saving);
    memory_account_set_limit(saving->operation.account, 0);
    dcp_status status = imagine(saving, state, DCP_OK, &mine, &all);
    if (status != DCP_OK || all.smallest <= saving->options.memory_limit)
        return status != DCP_OK ? status : error_restore(&story);
    return dcp_error_set(DCP_ERR_NO_MEMORY,
                         "memory_limit is %" PRIu64
                         " bytes, the smallest that would do is %" PRIu64,
                         saving->options.memory_limit, all.smallest);
}

static void tell(const dcp_saving *saving, struct save_needs *mine, const struct save_needs *all,
                 dcp_estimate *estimate)
{
    struct shard_write_options how = saving->how;
    uint64_t limit = saving->options.memory_limit;
    if (limit >= mine->smallest)
        shard_needs_fit(&mine->writing, limit - mine->held, &how);
    dcp_estimate ours = {
        .size_of = estimate->size_of,
        .memory = save_needs_memory(mine, &how),
        .smallest_memory = all->smallest,
        .bytes = mine->writing.bytes,
        .files = mine->writing.files,
        .total_bytes = all->bytes,
        .total_files = all->files,
    };
    sized_write(estimate, estimate->size_of, &ours, sizeof ours);
}

dcp_status checkpoint_save_estimate(const struct file_ops *ops, dcp_state *state, const char *path,
                                    const dcp_save_options *given, dcp_estimate *estimate)
{
    struct dcp_saving saving = {.ops = ops, .path = path};
    struct save_needs mine = {0}, all;

    dcp_status status = saving_begin(&saving, given);
    if (!estimate || estimate->size_of < sizeof estimate->size_of)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the estimate has no size_of");
    if (status == DCP_OK && saving.hooks.any)
        status = dcp_error_set(DCP_ERR_UNSUPPORTED,
                               "what a planner or storage writer needs is not known");
    memory_account_set_limit(saving.operation.account, 0);
    status = imagine(&saving, state, status, &mine, &all);
    if (status == DCP_OK && estimate)
        tell(&saving, &mine, &all, estimate);
    saving_free(&saving);
    operation_finish(&saving.operation, NULL);
    return status;
}

dcp_status dcp_save_estimate_sized(dcp_state *state, const char *path,
                                   const dcp_save_options *options, size_t options_size,
                                   dcp_estimate *estimate)
{
    dcp_save_options ours;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_save_options"));
    return checkpoint_save_estimate(&file_ops_system, state, path, &ours, estimate);
}
