/* SPDX-License-Identifier: BSD-3-Clause */
/* Planning with hooks: all ranks' plans pass through the coordinator's hooks, or an earlier result
 * is reused. */
#include "base/error.h"
#include "checkpoint/hooks/save_hooks.h"
#include "checkpoint/save/saving.h"
#include "group/group.h"
#include "plan/save/save_plan.h"

/* After the orders were received, or could not be decoded: succeeds on all ranks or on none. */
static dcp_status finish_plan(dcp_saving *saving, dcp_status status)
{
    if (status == DCP_OK)
        status = save_hooks_finish_plan(saving);
    return saving_agree(saving, "waiting for all ranks to plan", status);
}

/* ---- planned anew ---- */

static dcp_status encode_plan(const struct dcp_saving *saving, struct buffer *message)
{
    RETURN_IF_ERROR(save_plan_view_append_data(&saving->hooks->plan, message));
    RETURN_IF_ERROR(save_plan_encode(&saving->local.plan, message));
    return buffer_status(message);
}

static dcp_status decode_assignment(struct dcp_saving *saving, const struct buffer *assignment)
{
    struct buffer *own = &saving->planning.own;
    struct reader reader;
    reader_init(&reader, assignment->data, assignment->size);
    RETURN_IF_ERROR(save_plan_view_read_data(&saving->hooks->finished, &reader));
    buffer_append(&saving->extras.dealt, assignment->data, reader.position);
    RETURN_IF_ERROR(buffer_status(&saving->extras.dealt));
    RETURN_IF_ERROR(save_session_read(saving, &reader));
    buffer_append(own, assignment->data + reader.position, reader_left(&reader));
    RETURN_IF_ERROR(buffer_status(own));
    return write_orders_decode(own->data, own->size, &saving->local.plan, &saving->orders);
}

dcp_status save_hooks_plan_global(dcp_saving *saving)
{
    const dcp_save_options *options = &saving->options;
    struct dcp_collective gathering = {"gathering save plans", options->timeout_seconds};
    struct dcp_collective dealing = {"dealing out save plans", options->timeout_seconds};
    struct group_messages plans = {0};
    struct buffer message, assignment;

    buffer_init(&message, 0);
    buffer_init(&assignment, 0);
    dcp_status status = encode_plan(saving, &message);
    status = group_gather(options->group, &gathering, options->coordinator, status, message.data,
                          message.size, &plans);
    buffer_free(&message);
    if (saving->coordinates && status == DCP_OK)
        status = save_hooks_assign(saving, &plans);
    group_messages_free(&plans);
    status = group_scatter(options->group, &dealing, options->coordinator, status,
                           saving->coordinator.assignments, &assignment);
    if (status == DCP_OK) {
        saving->assigned = true;
        status = finish_plan(saving, decode_assignment(saving, &assignment));
    }
    buffer_free(&assignment);
    return status;
}

/* ---- reused ---- */

/* Returns a plan's data as the global hooks have changed it, or unchanged. */
static dcp_status return_data(dcp_saving *saving)
{
    struct buffer message;
    struct reader reader;
    dcp_status status = DCP_OK;
    buffer_init(&message, 0);
    if (save_hooks_plan_for_all(saving->hooks)) {
        reader_init(&reader, saving->extras.dealt.data, saving->extras.dealt.size);
    } else {
        status = save_plan_view_append_data(&saving->hooks->plan, &message);
        reader_init(&reader, message.data, message.size);
    }
    if (status == DCP_OK)
        status = save_plan_view_read_data(&saving->hooks->finished, &reader);
    buffer_free(&message);
    return status;
}

dcp_status save_hooks_reuse_plan(dcp_saving *saving, dcp_status status)
{
    return finish_plan(saving, status == DCP_OK ? return_data(saving) : status);
}
