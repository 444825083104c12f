/* SPDX-License-Identifier: BSD-3-Clause */
/* Planning a load with hooks. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/hooks/load_hooks.h"
#include "checkpoint/hooks/load_hooks_limit.h"
#include "checkpoint/hooks/plan_data_wire.h"
#include "checkpoint/load/loading.h"
#include "group/group.h"

static dcp_status set_up(struct dcp_loading *loading, dcp_state *state)
{
    const dcp_load_planner *planner = &loading->hooks->planner;
    const dcp_storage_reader *storage = &loading->hooks->storage;
    bool coordinates = loading->coordinates;

    /* A planner could otherwise replace an incomplete state unnoticed. */
    if (state)
        RETURN_IF_ERROR(dcp_state_status(state));
    error_clear();
    if (planner->set_up_planner)
        RETURN_IF_ERROR(hook_status(planner->set_up_planner(planner->context, loading, state,
                                                            &loading->hooks->view, coordinates),
                                    "set_up_planner"));
    else
        RETURN_IF_ERROR(dcp_load_default_set_up_planner(loading, state));
    if (!loading->hooks->is_set_up)
        return dcp_error_set(
            DCP_ERR_CALLBACK,
            "hook set_up_planner must call dcp_load_default_set_up_planner(), but did not");
    if (!storage->set_up_storage_reader)
        return DCP_OK;
    return hook_status(storage->set_up_storage_reader(storage->context, loading,
                                                      &loading->hooks->view, coordinates),
                       "set_up_storage_reader");
}

dcp_status dcp_load_default_create_local_plan(dcp_loading *loading, dcp_load_plan *plan)
{
    if (!loading || !plan)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the load or its plan is NULL");
    if (!loading->hooks->is_set_up || loading->hooks->is_planned)
        return dcp_error_set(DCP_ERR_STATE, "dcp_load_default_create_local_plan() was called "
                                            "twice, or before the planner was set up");
    loading->hooks->is_planned = true;
    RETURN_IF_ERROR(load_plan_make(&loading->planning.flat, &loading->planning.stored.metadata,
                                   &loading->planning.names, loading->options.convert,
                                   &loading->planning.plan, &loading->planning.mine));
    return load_plan_view_append(plan, &loading->planning.flat, &loading->planning.stored.metadata,
                                 &loading->planning.plan);
}

static dcp_status create_local(struct dcp_loading *loading)
{
    const dcp_load_planner *planner = &loading->hooks->planner;

    if (!planner->create_local_plan)
        return dcp_load_default_create_local_plan(loading, &loading->hooks->plan);
    error_clear();
    dcp_status status =
        planner->create_local_plan(planner->context, loading, &loading->hooks->plan);
    RETURN_IF_ERROR(hook_status(status, "create_local_plan"));
    if (loading->hooks->is_planned)
        return DCP_OK;
    loading->hooks->is_planned = true;
    return load_plan_skip(&loading->planning.flat, &loading->planning.stored.metadata,
                          &loading->planning.names, &loading->planning.plan,
                          &loading->planning.mine);
}

dcp_status load_hooks_plan_local(dcp_loading *loading, dcp_state *state)
{
    const dcp_storage_reader *storage = &loading->hooks->storage;

    loading->hooks->view.metadata = &loading->planning.stored.metadata;
    RETURN_IF_ERROR(set_up(loading, state));
    RETURN_IF_ERROR(create_local(loading));
    if (storage->prepare_local_plan)
        RETURN_IF_ERROR(hook_status(
            storage->prepare_local_plan(storage->context, loading, &loading->hooks->plan),
            "prepare_local_plan"));
    for (size_t i = 0; i < loading->hooks->plan.count; i++)
        load_differences_want(&loading->planning.mine, &loading->planning.stored.metadata,
                              loading->hooks->plan.items[i].stored.name);
    return flatten_check_destinations(&loading->planning.flat);
}

static dcp_status plan_append(const struct dcp_load_plan *plan, struct buffer *out)
{
    load_plan_view_encode(plan, out);
    RETURN_IF_ERROR(plan_data_append(&plan->planner_data, "planner data of a load plan", out));
    return plan_data_append(&plan->storage_data, "storage data of a load plan", out);
}

static dcp_status plan_read(const void *bytes, size_t size, struct dcp_load_plan *plan)
{
    struct reader reader;
    reader_init(&reader, bytes, size);
    RETURN_IF_ERROR(load_plan_view_decode(&reader, plan));
    RETURN_IF_ERROR(plan_data_read(&plan->planner_data, &reader));
    return plan_data_read(&plan->storage_data, &reader);
}

/* Calls both hooks for all ranks' plans. */
static dcp_status call_global(struct dcp_loading *loading, struct dcp_load_plan *const *plans,
                              int count)
{
    const dcp_load_planner *planner = &loading->hooks->planner;
    const dcp_storage_reader *storage = &loading->hooks->storage;
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

/* At the coordinator: has hooks change all ranks' plans, and makes a message for each rank. */
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
        load_plan_view_init(&plans[r]);
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
        load_plan_view_free(&plans[r]);
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

/* Sends this rank's plan to the coordinator, and receives the changed plan. */
static dcp_status exchange(struct dcp_loading *loading, dcp_status status)
{
    const dcp_load_options *options = &loading->options;
    struct dcp_collective gathering = {"gathering read plans", options->timeout_seconds};
    struct dcp_collective dealing = {"dealing out read plans", options->timeout_seconds};
    int size = dcp_group_size(options->group);
    struct group_messages messages = {0};
    struct buffer mine, received, *payloads = NULL;

    buffer_init(&mine, 0);
    buffer_init(&received, 0);
    if (status == DCP_OK)
        status = plan_append(&loading->hooks->plan, &mine);
    if (status == DCP_OK && loading->coordinates) {
        payloads = payloads_new(size);
        if (!payloads)
            status = error_no_memory((size_t)size * sizeof *payloads, "read plans of all ranks");
    }
    status = group_gather(options->group, &gathering, options->coordinator, status, mine.data,
                          mine.size, &messages);
    if (status == DCP_OK && loading->coordinates)
        status = make_global(loading, &messages, payloads);
    group_messages_free(&messages);
    status =
        group_scatter(options->group, &dealing, options->coordinator, status, payloads, &received);
    if (status == DCP_OK) {
        dcp_load_plan_clear(&loading->hooks->plan);
        status = plan_read(received.data, received.size, &loading->hooks->plan);
    }
    payloads_free(payloads, size);
    buffer_free(&received);
    buffer_free(&mine);
    return status;
}

/* Names that need not be read: those known to be missing or mismatched, or all if missing names are
 * not an error. */
static dcp_status account(const struct dcp_loading *loading, bool **accounted)
{
    const struct load_differences *differences = &loading->planning.mine;
    size_t count = loading->planning.flat.count;
    bool lenient = !strictness_wants_all(loading->options.strictness);

    *accounted = memory_allocate_array(count, sizeof **accounted);
    if (!*accounted)
        return error_no_memory(count, "names that are missing");
    memset(*accounted, lenient, count);
    for (size_t i = 0; i < differences->count; i++) {
        const struct load_difference *line = &differences->lines[i];
        uint64_t place;
        bool unread = line->difference == DCP_DIFFERENCE_MISSING ||
                      line->difference == DCP_DIFFERENCE_MISMATCHED;
        if (unread &&
            name_table_find(&loading->hooks->flat_names, line->name, strlen(line->name), &place))
            (*accounted)[place] = true;
    }
    return DCP_OK;
}

static dcp_status resolve(struct dcp_loading *loading)
{
    bool *accounted = NULL;
    dcp_status status = account(loading, &accounted);
    if (status == DCP_OK)
        status = load_plan_view_resolve(&loading->hooks->plan, &loading->hooks->flat_names,
                                        &loading->planning.flat, &loading->planning.stored.metadata,
                                        accounted, &loading->hooks->targets);
    memory_release(accounted);
    return status;
}

static dcp_status finish(struct dcp_loading *loading)
{
    const dcp_load_planner *planner = &loading->hooks->planner;
    error_clear();
    if (planner->finish_plan)
        RETURN_IF_ERROR(hook_status(
            planner->finish_plan(planner->context, loading, &loading->hooks->plan), "finish_plan"));
    RETURN_IF_ERROR(resolve(loading));
    size_t count = loading->hooks->plan.count;
    loading->hooks->item_steps = memory_allocate_zeroed(count, sizeof *loading->hooks->item_steps);
    loading->hooks->bytes = memory_allocate_zeroed(count, sizeof *loading->hooks->bytes);
    loading->objects.items = memory_allocate_zeroed(count, sizeof *loading->objects.items);
    if (!loading->hooks->item_steps || !loading->hooks->bytes || !loading->objects.items)
        return error_no_memory(count * sizeof *loading->objects.items, "items to read");
    return DCP_OK;
}

/* Everything up to the final plan. */
static dcp_status plan_global(dcp_loading *loading, dcp_status status)
{
    const struct load_hooks *hooks = loading->hooks;
    if (hooks->planner.create_global_plan || hooks->storage.prepare_global_plan)
        status = exchange(loading, status);
    if (status == DCP_OK)
        status = finish(loading);
    loading->items = hooks->targets.count;
    loading->bytes_wanted = hooks->targets.bytes;
    return loading_agree(loading, "finishing read plans", status);
}

dcp_status load_hooks_prepare(dcp_loading *loading, dcp_status status)
{
    status = plan_global(loading, status);
    status = operation_enter_moving(&loading->operation, DCP_PHASE_READING, loading->bytes_wanted,
                                    status);
    if (status == DCP_OK && loading->options.memory_limit != 0)
        status = load_hooks_find_limit(loading);
    if (status == DCP_OK && loading->options.memory_limit != 0)
        status = load_limit_check(&loading->limit, &loading->options);
    return loading_agree(loading, "beginning to read", status);
}

dcp_status load_hooks_measure(dcp_loading *loading, dcp_status status)
{
    status = plan_global(loading, status);
    if (status == DCP_OK)
        status = load_hooks_find_limit(loading);
    return loading_agree(loading, "beginning to read", status);
}
