/* SPDX-License-Identifier: BSD-3-Clause */
/* Planning a load with hooks. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/hooks/loading.h"
#include "checkpoint/hooks/plan_data_wire.h"
#include "group/group.h"

static dcp_status set_up(struct dcp_loading *loading, dcp_state *state)
{
    const dcp_load_planner *planner = &loading->planner;
    const dcp_storage_reader *storage = &loading->storage;
    bool coordinates = loading->parts.coordinates;

    /* A planner may make another state of one that was not built as a whole. */
    if (state)
        RETURN_IF_ERROR(dcp_state_status(state));
    error_clear();
    if (planner->set_up_planner)
        RETURN_IF_ERROR(hook_status(
            planner->set_up_planner(planner->context, loading, state, &loading->view, coordinates),
            "set_up_planner"));
    else
        RETURN_IF_ERROR(dcp_default_set_up_load_planner(loading, state));
    if (!loading->is_set_up)
        return dcp_error_set(DCP_ERR_CALLBACK, "the planner's set_up_planner has not called "
                                               "dcp_default_set_up_load_planner()");
    if (!storage->set_up_storage_reader)
        return DCP_OK;
    return hook_status(
        storage->set_up_storage_reader(storage->context, loading, &loading->view, coordinates),
        "set_up_storage_reader");
}

dcp_status dcp_default_create_local_load_plan(dcp_loading *loading, dcp_load_plan *plan)
{
    if (!loading || !plan)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the load or its plan is NULL");
    if (!loading->is_set_up || loading->is_planned)
        return dcp_error_set(DCP_ERR_STATE,
                             "a load plan is made once, after the planner has been set up");
    const struct loading_parts *parts = &loading->parts;
    loading->is_planned = true;
    RETURN_IF_ERROR(load_plan_make(parts->flat, parts->metadata, parts->names,
                                   parts->options->convert, parts->made, parts->differences));
    return read_plan_append(plan, parts->flat, parts->metadata, parts->made);
}

static dcp_status create_local(struct dcp_loading *loading)
{
    const struct loading_parts *parts = &loading->parts;
    const dcp_load_planner *planner = &loading->planner;

    if (!planner->create_local_plan)
        return dcp_default_create_local_load_plan(loading, &loading->plan);
    error_clear();
    dcp_status status = planner->create_local_plan(planner->context, loading, &loading->plan);
    RETURN_IF_ERROR(hook_status(status, "create_local_plan"));
    if (loading->is_planned)
        return DCP_OK;
    loading->is_planned = true;
    return load_plan_skip(parts->flat, parts->metadata, parts->names, parts->made,
                          parts->differences);
}

dcp_status loading_plan_local(struct dcp_loading *loading, dcp_state *state,
                              struct shard_reader *reader)
{
    const dcp_storage_reader *storage = &loading->storage;

    loading->reader = reader;
    loading->view.metadata = loading->parts.metadata;
    RETURN_IF_ERROR(set_up(loading, state));
    RETURN_IF_ERROR(create_local(loading));
    if (storage->prepare_local_plan)
        RETURN_IF_ERROR(
            hook_status(storage->prepare_local_plan(storage->context, loading, &loading->plan),
                        "prepare_local_plan"));
    for (size_t i = 0; i < loading->plan.count; i++)
        load_differences_want(loading->parts.differences, loading->parts.metadata,
                              loading->plan.items[i].stored.name);
    return flatten_check_destinations(loading->parts.flat);
}

static dcp_status plan_append(const struct dcp_load_plan *plan, struct buffer *out)
{
    read_plan_encode(plan, out);
    RETURN_IF_ERROR(plan_data_append(&plan->planner_data, "planner data of a load plan", out));
    return plan_data_append(&plan->storage_data, "storage data of a load plan", out);
}

static dcp_status plan_read(const void *bytes, size_t size, struct dcp_load_plan *plan)
{
    struct reader reader;
    reader_init(&reader, bytes, size);
    RETURN_IF_ERROR(read_plan_decode(&reader, plan));
    RETURN_IF_ERROR(plan_data_read(&plan->planner_data, &reader));
    return plan_data_read(&plan->storage_data, &reader);
}

/* Both hooks, over all ranks' plans. */
static dcp_status call_global(struct dcp_loading *loading, struct dcp_load_plan *const *plans,
                              int count)
{
    const dcp_load_planner *planner = &loading->planner;
    const dcp_storage_reader *storage = &loading->storage;
    error_clear();
    if (planner->create_global_plan)
        RETURN_IF_ERROR(
            hook_status(planner->create_global_plan(planner->context, loading, plans, count),
                        "create_global_plan"));
    if (!storage->prepare_global_plan)
        return DCP_OK;
    return hook_status(storage->prepare_global_plan(storage->context, loading, plans, count),
                       "prepare_global_plan");
}

/* At the coordinator: what all ranks have sent, changed, for each of them. */
static dcp_status make_global(struct dcp_loading *loading, const struct group_messages *messages,
                              struct buffer *payloads)
{
    size_t count = (size_t)messages->count;
    struct dcp_load_plan *plans = memory_allocate_zeroed(count, sizeof *plans);
    struct dcp_load_plan **each = memory_allocate_array(count, sizeof *each);
    dcp_status status = DCP_OK;

    if (!plans || !each)
        status = error_no_memory(count * sizeof *plans, "load plans of all ranks");
    for (size_t r = 0; plans && r < count; r++)
        read_plan_init(&plans[r]);
    for (size_t r = 0; status == DCP_OK && r < count; r++) {
        each[r] = &plans[r];
        status = plan_read(messages->bytes + messages->offsets[r],
                           messages->offsets[r + 1] - messages->offsets[r], &plans[r]);
        if (status != DCP_OK)
            error_prefix(status, "the plan of rank %zu", r);
    }
    if (status == DCP_OK)
        status = call_global(loading, each, messages->count);
    for (size_t r = 0; status == DCP_OK && r < count; r++)
        status = plan_append(&plans[r], &payloads[r]);
    for (size_t r = 0; plans && r < count; r++)
        read_plan_free(&plans[r]);
    memory_release(each);
    memory_release(plans);
    return status;
}

static struct buffer *payloads_new(int count)
{
    struct buffer *payloads = memory_allocate_array((size_t)count, sizeof *payloads);
    for (int r = 0; payloads && r < count; r++)
        buffer_init(&payloads[r], 0);
    return payloads;
}

static void payloads_free(struct buffer *payloads, int count)
{
    for (int r = 0; payloads && r < count; r++)
        buffer_free(&payloads[r]);
    memory_release(payloads);
}

/* This rank's plan to the coordinator, and what has become of it back. */
static dcp_status exchange(struct dcp_loading *loading, dcp_status status)
{
    const dcp_load_options *options = loading->parts.options;
    struct dcp_collective gathering = {"gathering read plans", options->timeout_seconds};
    struct dcp_collective dealing = {"dealing out read plans", options->timeout_seconds};
    int size = dcp_group_size(options->group);
    struct group_messages messages = {0};
    struct buffer mine, received, *payloads = NULL;

    buffer_init(&mine, 0);
    buffer_init(&received, 0);
    if (status == DCP_OK)
        status = plan_append(&loading->plan, &mine);
    if (status == DCP_OK && loading->parts.coordinates) {
        payloads = payloads_new(size);
        if (!payloads)
            status = error_no_memory((size_t)size * sizeof *payloads, "read plans of all ranks");
    }
    status = group_gather(options->group, &gathering, options->coordinator, status, mine.data,
                          mine.size, &messages);
    if (status == DCP_OK && loading->parts.coordinates)
        status = make_global(loading, &messages, payloads);
    group_messages_free(&messages);
    status =
        group_scatter(options->group, &dealing, options->coordinator, status, payloads, &received);
    if (status == DCP_OK) {
        dcp_load_plan_clear(&loading->plan);
        status = plan_read(received.data, received.size, &loading->plan);
    }
    payloads_free(payloads, size);
    buffer_free(&received);
    buffer_free(&mine);
    return status;
}

/* Names of which nothing need be read: those that are known to be missing or not to fit, or all if
 * missing names are no error. */
static dcp_status account(const struct dcp_loading *loading, bool **accounted)
{
    const struct load_differences *differences = loading->parts.differences;
    size_t count = loading->parts.flat->count;
    bool lenient = !strictness_wants_all(loading->parts.options->strictness);

    *accounted = memory_allocate_array(count, sizeof **accounted);
    if (!*accounted)
        return error_no_memory(count, "names that are missing");
    memset(*accounted, lenient, count);
    for (size_t i = 0; i < differences->count; i++) {
        const struct load_difference *line = &differences->lines[i];
        uint64_t place;
        bool unread = line->difference == DCP_DIFFERENCE_MISSING ||
                      line->difference == DCP_DIFFERENCE_MISMATCHED;
        if (unread && name_table_find(&loading->flat_names, line->name, strlen(line->name), &place))
            (*accounted)[place] = true;
    }
    return DCP_OK;
}

static dcp_status resolve(struct dcp_loading *loading)
{
    const struct loading_parts *parts = &loading->parts;
    bool *accounted = NULL;
    dcp_status status = account(loading, &accounted);
    if (status == DCP_OK)
        status = read_plan_resolve(&loading->plan, &loading->flat_names, parts->flat,
                                   parts->metadata, accounted, &loading->targets);
    memory_release(accounted);
    return status;
}

static dcp_status finish(struct dcp_loading *loading)
{
    const dcp_load_planner *planner = &loading->planner;
    error_clear();
    if (planner->finish_plan)
        RETURN_IF_ERROR(hook_status(planner->finish_plan(planner->context, loading, &loading->plan),
                                    "finish_plan"));
    RETURN_IF_ERROR(resolve(loading));
    size_t count = loading->plan.count;
    loading->steps = memory_allocate_zeroed(count, sizeof *loading->steps);
    loading->bytes = memory_allocate_zeroed(count, sizeof *loading->bytes);
    loading->parts.objects->items =
        memory_allocate_zeroed(count, sizeof *loading->parts.objects->items);
    if (!loading->steps || !loading->bytes || !loading->parts.objects->items)
        return error_no_memory(count * sizeof *loading->parts.objects->items, "items to read");
    return DCP_OK;
}

dcp_status loading_plan_global(struct dcp_loading *loading, dcp_status status)
{
    const dcp_load_options *options = loading->parts.options;
    struct dcp_collective call = {"finishing read plans", options->timeout_seconds};

    if (loading->planner.create_global_plan || loading->storage.prepare_global_plan)
        status = exchange(loading, status);
    if (status == DCP_OK)
        status = finish(loading);
    return group_agree(options->group, &call, status);
}
