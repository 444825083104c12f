/* SPDX-License-Identifier: BSD-3-Clause */
/* Planning with hooks: all ranks' plans pass through the coordinator's, or the outcome of that is
 * used again. */
#include "base/error.h"
#include "checkpoint/save/saving.h"
#include "group/group.h"
#include "plan/save/save_plan.h"

bool save_hooks_plan_keeps(const struct save_hooks *hooks)
{
    const dcp_storage_writer *writer = &hooks->writer;
    return !hooks->planner.create_global_plan && !writer->prepare_global_plan &&
           !writer->write_data && !writer->finish && hooks->session_wanted;
}

static dcp_status encode_plan(const struct dcp_saving *saving, struct buffer *message)
{
    save_hooks_append(&saving->hooks, message);
    RETURN_IF_ERROR(plan_view_append_data(&saving->hooks.plan, message));
    RETURN_IF_ERROR(save_plan_encode(&saving->local.plan, message));
    return buffer_status(message);
}

static dcp_status decode_assignment(struct dcp_saving *saving, const struct buffer *assignment)
{
    struct buffer *own = &saving->planning.own;
    struct reader reader;
    reader_init(&reader, assignment->data, assignment->size);
    RETURN_IF_ERROR(plan_view_read_data(&saving->hooks.finished, &reader));
    RETURN_IF_ERROR(save_session_read(saving, &reader));
    buffer_append(own, assignment->data + reader.position, reader_left(&reader));
    RETURN_IF_ERROR(buffer_status(own));
    return write_orders_decode(own->data, own->size, &saving->local.plan, &saving->orders);
}

dcp_status save_hooks_plan(dcp_saving *saving)
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
        status = save_hooks_plan_global(saving, &plans);
    group_messages_free(&plans);
    status = group_scatter(options->group, &dealing, options->coordinator, status,
                           saving->coordinator.assignments, &assignment);
    if (status == DCP_OK) {
        saving->assigned = true;
        status = save_hooks_finish_plan(saving, decode_assignment(saving, &assignment));
    }
    buffer_free(&assignment);
    return status;
}

/* What travels with a plan comes back as it went. */
static dcp_status return_data(dcp_saving *saving)
{
    struct buffer message;
    struct reader reader;
    buffer_init(&message, 0);
    dcp_status status = plan_view_append_data(&saving->hooks.plan, &message);
    reader_init(&reader, message.data, message.size);
    if (status == DCP_OK)
        status = plan_view_read_data(&saving->hooks.finished, &reader);
    buffer_free(&message);
    return status;
}

dcp_status save_hooks_plan_again(dcp_saving *saving, dcp_status status)
{
    return save_hooks_finish_plan(saving, status == DCP_OK ? return_data(saving) : status);
}
