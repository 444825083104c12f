/* SPDX-License-Identifier: BSD-3-Clause */
#include "dcp/estimate.h"

#include "base/error.h"
#include "base/sized.h"
#include "checkpoint/async/async.h"
#include "checkpoint/save/save_limit.h"
#include "group/group.h"
#include "state/node.h"

static void fill_in(const struct dcp_saving *saving, const struct save_needs *mine,
                    const struct save_needs *all, dcp_estimate *estimate)
{
    struct shard_write_options how = saving->how;
    struct save_staging staging = saving->staging;
    if (saving->options.memory_limit >= mine->smallest)
        save_needs_fit(mine, saving->options.memory_limit, &how, &staging);
    dcp_estimate ours = {
        .size_of = estimate->size_of,
        .memory = save_needs_memory(mine, &how, &staging),
        .smallest_memory = all->smallest,
        .bytes = mine->writing.bytes,
        .files = mine->writing.files,
        .total_bytes = all->bytes,
        .total_files = all->files,
        .staging_memory = staging_needs_pool(&mine->staging, &staging.options),
    };
    sized_write(estimate, estimate->size_of, &ours, sizeof ours);
}

/* An asynchronous save has a tree of its own; with hooks, of what the planner is set up with. */
static dcp_status copy_tree(struct dcp_saving *saving, const dcp_state *state, dcp_state **copy,
                            dcp_state **info)
{
    if (!state)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to save is NULL");
    chain_describe_staging(saving->options.chain, saving);
    if (saving->options.info) {
        RETURN_IF_ERROR(state_copy_root(saving->options.info, info));
        saving->options.info = *info;
    }
    if (saving->staging.tree)
        saving->copied = copy;
    return saving->staging.tree ? DCP_OK : state_copy_root(state, copy);
}

dcp_status dcp_save_estimate_sized(dcp_state *state, const char *path,
                                   const dcp_save_options *options, size_t options_size,
                                   dcp_estimate *estimate)
{
    struct dcp_saving saving = {.path = path};
    dcp_save_options ours;
    const dcp_save_options *given = &ours;
    struct save_needs mine = {0}, all;
    dcp_state *copy = NULL, *info = NULL;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_save_options"));

    dcp_status status = saving_begin(&saving, given);
    group_enter(saving.options.group, "dcp_save_estimate");
    if (!estimate || estimate->size_of < sizeof estimate->size_of)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the estimate has no size_of");
    if (status == DCP_OK)
        status = saving_start_over_dry(&saving);
    if (status == DCP_OK && given->chain)
        status = copy_tree(&saving, state, &copy, &info);
    bool later = saving.copied != NULL;
    status = save_limit_measure(&saving, copy && !later ? copy : state, status, &mine, &all);
    if (status == DCP_OK && estimate)
        fill_in(&saving, &mine, &all, estimate);
    saving_free(&saving);
    save_extra_files_free(&saving.extra_files);
    dcp_state_free(info);
    dcp_state_free(copy);
    operation_finish(&saving.operation, NULL);
    return status;
}
