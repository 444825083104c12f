/* SPDX-License-Identifier: BSD-3-Clause */
/* The coordinator's side of planning with hooks. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/save_hooks.h"
#include "checkpoint/save/saving.h"
#include "format/streams/item.h"
#include "plan/save/save_plan.h"
#include "storage/commit/save_id.h"

/* All ranks' plans: as received, and as hooks see and change them. */
struct central {
    struct save_plan *held;
    struct dcp_save_plan *views;
    dcp_save_plan **plans; /* the views' addresses */
    size_t count;
};

static void central_free(struct central *central)
{
    for (size_t rank = 0; rank < central->count; rank++) {
        save_plan_view_free(&central->views[rank]);
        save_plan_free(&central->held[rank]);
    }
    memory_release(central->plans);
    memory_release(central->views);
    memory_release(central->held);
}

static dcp_status central_init(struct central *central, size_t count)
{
    *central = (struct central){0};
    central->held = memory_allocate_zeroed(count, sizeof *central->held);
    central->views = memory_allocate_zeroed(count, sizeof *central->views);
    central->plans = memory_allocate_zeroed(count, sizeof *central->plans);
    if (!central->held || !central->views || !central->plans)
        return error_no_memory(count * sizeof *central->views, "plans of all ranks");
    central->count = count;
    for (size_t rank = 0; rank < count; rank++) {
        save_plan_view_init(&central->views[rank]);
        central->plans[rank] = &central->views[rank];
    }
    return DCP_OK;
}

/* Reads a rank's message: the data of the plan, and the plan. */
static dcp_status read_rank(struct central *central, struct reader *reader, size_t rank)
{
    struct dcp_save_plan *view = &central->views[rank];
    const struct save_plan *held = &central->held[rank];
    RETURN_IF_ERROR(save_plan_view_read_data(view, reader));
    RETURN_IF_ERROR(save_plan_decode(reader->data + reader->position, reader_left(reader),
                                     &central->held[rank]));
    for (size_t i = 0; i < held->count; i++)
        RETURN_IF_ERROR(save_plan_view_append(view, &held->items[i]));
    return DCP_OK;
}

static dcp_status read_plans(struct central *central, const struct group_messages *messages)
{
    for (int rank = 0; rank < messages->count; rank++) {
        struct reader reader;
        reader_init(&reader, messages->bytes + messages->offsets[rank],
                    messages->offsets[rank + 1] - messages->offsets[rank]);
        dcp_status status = read_rank(central, &reader, (size_t)rank);
        if (status != DCP_OK)
            return error_prefix(status, "rank %d", rank);
    }
    return DCP_OK;
}

/* Converts views to plans of plan/, which borrow everything. */
static struct save_plan *plans_of(dcp_save_plan *const *views, size_t count)
{
    struct save_plan *plans = memory_allocate_zeroed(count, sizeof *plans);
    for (size_t rank = 0; plans && rank < count; rank++) {
        plans[rank].items = views[rank]->items;
        plans[rank].count = views[rank]->count;
    }
    return plans;
}

/* Replaces a view's items. Names and shapes are borrowed from other plans, boxes are copied. */
static dcp_status take_dealt(struct dcp_save_plan *view, const struct save_plan *dealt)
{
    view->count = 0;
    for (size_t i = 0; i < dealt->count; i++) {
        struct write_item item = dealt->items[i];
        size_t bytes = (size_t)item.box.ndim * sizeof(int64_t);
        if (item.is_tensor) {
            item.box.offsets = arena_copy(&view->arena, item.box.offsets, bytes);
            item.box.sizes = arena_copy(&view->arena, item.box.sizes, bytes);
            if (!item.box.offsets || !item.box.sizes)
                return error_no_memory(2 * bytes, "a save plan");
        }
        RETURN_IF_ERROR(save_plan_view_append(view, &item));
    }
    return DCP_OK;
}

dcp_status dcp_save_default_create_global_plan(dcp_saving *saving, dcp_save_plan *const *plans,
                                               int plan_count)
{
    if (!saving || !plans || plan_count != dcp_group_size(saving->options.group))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "dcp_save_default_create_global_plan: the save or the plans are NULL");
    size_t count = (size_t)plan_count;
    struct save_plan_options options = save_coordinator_options(saving);
    struct save_plan *offered = plans_of(plans, count);
    struct save_plan *dealt = memory_allocate_zeroed(count, sizeof *dealt);
    dcp_status status = offered && dealt
                            ? save_plan_deal(offered, plan_count, &options, dealt)
                            : error_no_memory(count * sizeof *dealt, "plans of all ranks");
    for (size_t rank = 0; rank < count && status == DCP_OK; rank++)
        status = take_dealt(plans[rank], &dealt[rank]);
    for (size_t rank = 0; dealt && rank < count; rank++)
        save_plan_free(&dealt[rank]);
    memory_release(dealt);
    memory_release(offered);
    return status;
}

dcp_status dcp_saving_set_planner_data(dcp_saving *saving, const dcp_state *planner_data)
{
    struct buffer trial;
    if (!saving || !planner_data)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save or its planner data is NULL");
    if (!saving->coordinates)
        return dcp_error_set(DCP_ERR_STATE, "planner data can be set only at the coordinator");
    RETURN_IF_ERROR(dcp_state_status(planner_data));
    /* Report now what cannot be stored, and not when everything has been written. */
    buffer_init(&trial, 0);
    dcp_status status = item_encode_object(planner_data, &trial);
    buffer_free(&trial);
    if (status != DCP_OK)
        return error_prefix(status, "planner data of the metadata");
    dcp_state *root = dcp_state_new();
    if (!root)
        return DCP_ERR_NO_MEMORY;
    dcp_state *copy = dcp_state_copy(root, "planner_data", planner_data);
    if (!copy) {
        dcp_state_free(root);
        return DCP_ERR_NO_MEMORY;
    }
    dcp_state_free(saving->extras.planner_root);
    saving->extras.planner_root = root;
    saving->extras.planner_data = copy;
    return DCP_OK;
}

static dcp_status call_hooks(dcp_saving *saving, const struct central *central)
{
    const dcp_save_planner *planner = &saving->hooks->planner;
    const dcp_storage_writer *writer = &saving->hooks->writer;
    int count = (int)central->count;
    error_clear();
    dcp_status status = planner->create_global_plan
                            ? hook_status(planner->create_global_plan(planner->context, saving,
                                                                      central->plans, count),
                                          "create_global_plan")
                            : dcp_save_default_create_global_plan(saving, central->plans, count);
    if (status != DCP_OK || !writer->prepare_global_plan)
        return status;
    error_clear();
    return hook_status(writer->prepare_global_plan(writer->context, saving, central->plans, count),
                       "prepare_global_plan");
}

dcp_status save_hooks_begin(dcp_saving *saving)
{
    const struct save_hooks *hooks = saving->hooks;
    /* The id also distinguishes plannings. */
    if (!hooks->session_wanted)
        return save_id_make(saving->session.save_id);
    RETURN_IF_ERROR(save_coordinator_begin(saving));
    if (hooks->writer.write_data)
        save_session_promise_nothing(&saving->session);
    return DCP_OK;
}

void save_hooks_describe(const dcp_saving *saving, struct metadata *metadata)
{
    const struct save_hooks *hooks = saving->hooks;
    metadata->has_paths = !saving->options.unflattened;
    metadata->planner_data = saving->extras.planner_data;
    metadata->checkpoint_id = hooks->storage_meta.checkpoint_id;
    metadata->load_id = hooks->storage_meta.load_id;
    metadata->modules = hooks->storage_meta.modules;
    metadata->module_count = hooks->storage_meta.module_count;
    /* Our own files have our own id. */
    metadata->save_id = saving->session.save_id;
    if (!hooks->session_wanted)
        metadata->save_id = hooks->storage_meta.save_id ? hooks->storage_meta.save_id : "";
}

static dcp_status assign(dcp_saving *saving, const struct central *central, int rank,
                         const struct write_orders *orders)
{
    struct buffer *out = &saving->coordinator.assignments[rank];
    if (saving->hooks->writer.finish)
        RETURN_IF_ERROR(save_hooks_expect_results(saving, rank, orders, &central->held[rank]));
    RETURN_IF_ERROR(save_plan_view_append_data(&central->views[rank], out));
    return save_assignment_encode(&saving->session, orders, out);
}

static dcp_status settle(dcp_saving *saving, const struct central *central)
{
    struct metadata *metadata = &saving->coordinator.metadata;
    struct save_plan_options options = save_coordinator_options(saving);
    int rank_count = (int)central->count;
    struct save_plan *dealt = plans_of(central->plans, central->count);
    struct write_orders *orders = memory_allocate_zeroed(central->count, sizeof *orders);
    dcp_status status = dealt && orders
                            ? save_plan_settle(central->held, dealt, rank_count, &options,
                                               saving->session.generation, orders, metadata)
                            : error_no_memory(central->count * sizeof *orders, "orders");
    save_hooks_describe(saving, metadata);
    for (int rank = 0; rank < rank_count && status == DCP_OK; rank++)
        save_coordinator_count(&saving->coordinator, &orders[rank]);
    if (status == DCP_OK)
        status = save_coordinator_check_space(saving);
    for (int rank = 0; rank < rank_count && status == DCP_OK; rank++)
        status = assign(saving, central, rank, &orders[rank]);
    for (int rank = 0; orders && rank < rank_count; rank++)
        write_orders_free(&orders[rank]);
    memory_release(orders);
    memory_release(dealt);
    return status;
}

dcp_status save_hooks_assign(dcp_saving *saving, const struct group_messages *messages)
{
    struct central central;
    RETURN_IF_ERROR(save_coordinator_init(&saving->coordinator, messages->count));
    dcp_status status = central_init(&central, (size_t)messages->count);
    if (status == DCP_OK)
        status = read_plans(&central, messages);
    if (status == DCP_OK)
        status = call_hooks(saving, &central);
    if (status == DCP_OK)
        status = saving->steps.begin(saving);
    if (status == DCP_OK)
        status = settle(saving, &central);
    central_free(&central);
    return status;
}
