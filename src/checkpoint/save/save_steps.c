/* SPDX-License-Identifier: BSD-3-Clause */
/* The default steps of a save, and its dry run. */
#include "checkpoint/save/save_steps.h"

#include "base/error.h"
#include "checkpoint/save/save_agreement.h"
#include "checkpoint/save/saving.h"

static dcp_status set_up(dcp_saving *saving, dcp_state *state)
{
    RETURN_IF_ERROR(save_local_flatten(state, saving->options.unflattened, &saving->local));
    if (!saving->options.allow_partial)
        RETURN_IF_ERROR(
            flatten_check_meshes(&saving->local.flat, dcp_group_size(saving->options.group)));
    return save_local_encode(&saving->local);
}

static dcp_status plan_local(dcp_saving *saving)
{
    return save_local_plan(&saving->local);
}

static dcp_status set_up_again(dcp_saving *saving)
{
    (void)saving;
    return DCP_OK;
}

static dcp_status plan_global(dcp_saving *saving)
{
    bool alone, lengths_differ;
    /* A dry run takes no memory for a thread, which the needs of a save count by themselves. */
    if (save_begins_beside(saving) && saving->steps.begin == save_coordinator_begin)
        save_beside_start(&saving->beginning, saving, saving->steps.begin);
    dcp_status status =
        save_agree_alone(&saving->options, &saving->local.plan, &alone, &lengths_differ);
    if (status == DCP_OK)
        status =
            alone ? save_planning_alone(saving, lengths_differ) : save_planning_gathered(saving);
    return save_beside_end(&saving->beginning, status);
}

static dcp_status reuse_plan(dcp_saving *saving, dcp_status status)
{
    (void)saving;
    return status;
}

static dcp_status write_files(dcp_saving *saving)
{
    return saving_write_files(saving, &saving->results);
}

static void abandon(dcp_saving *saving)
{
    (void)saving;
}

static void free_nothing(dcp_saving *saving)
{
    (void)saving;
}

static void describe(const dcp_saving *saving, struct metadata *metadata)
{
    metadata->has_paths = !saving->options.unflattened;
    metadata->save_id = saving->session.save_id;
    metadata->checkpoint_id = saving->options.checkpoint_id;
}

static dcp_status take_results(dcp_saving *saving, const struct group_messages *results)
{
    return save_coordinator_place(&saving->coordinator, results);
}

void save_steps_make_dry(struct save_steps *steps)
{
    steps->set_up = steps->set_up_dry;
    steps->begin = save_coordinator_imagine;
}

const struct save_steps save_steps_default = {
    .set_up = set_up,
    .plan_local = plan_local,
    .set_up_again = set_up_again,
    .plan_global = plan_global,
    .reuse_plan = reuse_plan,
    .write = write_files,
    .abandon = abandon,
    .free = free_nothing,
    .begin = save_coordinator_begin,
    .describe = describe,
    .take_results = take_results,
    .commit = save_coordinator_commit,
    .set_up_dry = set_up,
};
