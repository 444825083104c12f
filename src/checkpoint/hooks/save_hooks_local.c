/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's side of planning with hooks: takes the state, makes the plan, receives the orders. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/save_hooks.h"
#include "checkpoint/save/saving.h"
#include "plan/save/save_plan.h"

/* ---- setting up ---- */

static dcp_status index_names(dcp_saving *saving)
{
    const struct flat_state *flat = &saving->local.flat;
    for (size_t i = 0; i < flat->count; i++) {
        uint64_t value = i;
        bool existing;
        RETURN_IF_ERROR(name_table_add(&saving->hooks->names, flat->entries[i].name,
                                       strlen(flat->entries[i].name), &value, &existing));
    }
    return DCP_OK;
}

dcp_status dcp_save_default_set_up_planner(dcp_saving *saving, dcp_state *state)
{
    if (!saving)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save is NULL");
    if (saving->hooks->state_taken)
        return dcp_error_set(DCP_ERR_STATE, "dcp_save_default_set_up_planner() was called twice");
    if (saving->copied) {
        RETURN_IF_ERROR(saving_copy_state(state, saving->copied));
        state = *saving->copied;
    }
    RETURN_IF_ERROR(save_local_flatten(state, saving->options.unflattened, &saving->local));
    if (!saving->options.allow_partial)
        RETURN_IF_ERROR(
            flatten_check_meshes(&saving->local.flat, dcp_group_size(saving->options.group)));
    saving->hooks->state_taken = true;
    return index_names(saving);
}

/* Without the library's directory, hooks must do everything that is otherwise done there. */
static dcp_status set_up_writer(dcp_saving *saving)
{
    struct save_hooks *hooks = saving->hooks;
    const dcp_storage_writer *writer = &hooks->writer;
    hooks->writer_began = true;
    if (!writer->set_up_storage_writer)
        return dcp_save_default_set_up_storage_writer(saving);
    error_clear();
    RETURN_IF_ERROR(
        hook_status(writer->set_up_storage_writer(writer->context, saving, saving->coordinates),
                    "set_up_storage_writer"));
    if (hooks->session_wanted || (writer->write_data && writer->finish))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_STATE,
                         "hook set_up_storage_writer has not called "
                         "dcp_save_default_set_up_storage_writer(), so a hook %s is needed",
                         writer->write_data ? "finish" : "write_data");
}

/* Text that is not UTF-8 would make unreadable metadata. */
static dcp_status check_text(const char *text, const char *field)
{
    if (!text || utf8_is_valid(text, strlen(text)))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_ARGUMENT, "hook storage_meta gave a %s that is not valid UTF-8",
                         field);
}

static dcp_status check_storage_meta(const dcp_storage_meta *meta)
{
    RETURN_IF_ERROR(check_text(meta->checkpoint_id, "checkpoint_id"));
    RETURN_IF_ERROR(check_text(meta->save_id, "save_id"));
    RETURN_IF_ERROR(check_text(meta->load_id, "load_id"));
    for (size_t i = 0; i < meta->module_count; i++) {
        if (!meta->modules || !meta->modules[i])
            return dcp_error_set(DCP_ERR_ARGUMENT, "hook storage_meta gave no module %zu of %zu", i,
                                 meta->module_count);
        RETURN_IF_ERROR(check_text(meta->modules[i], "module"));
    }
    return DCP_OK;
}

static dcp_status reset_writer(dcp_saving *saving)
{
    const dcp_storage_writer *writer = &saving->hooks->writer;
    const char *id = saving->path ? saving->path : "";
    dcp_status status = DCP_OK;
    if (writer->validate_checkpoint_id && !writer->validate_checkpoint_id(writer->context, id))
        return dcp_error_set(DCP_ERR_ARGUMENT, "the storage writer does not accept the id \"%s\"",
                             id);
    error_clear();
    if (writer->reset)
        status = hook_status(writer->reset(writer->context, id), "reset");
    if (status != DCP_OK || !writer->storage_meta)
        return status;
    error_clear();
    RETURN_IF_ERROR(hook_status(writer->storage_meta(writer->context, &saving->hooks->storage_meta),
                                "storage_meta"));
    return check_storage_meta(&saving->hooks->storage_meta);
}

static dcp_status set_up_planner(dcp_saving *saving, dcp_state *state)
{
    const dcp_save_planner *planner = &saving->hooks->planner;
    const dcp_storage_meta *meta = &saving->hooks->storage_meta;
    /* A planner could otherwise replace an incomplete state unnoticed. */
    if (state)
        RETURN_IF_ERROR(dcp_state_status(state));
    error_clear();
    return planner->set_up_planner
               ? hook_status(planner->set_up_planner(planner->context, saving, state, meta,
                                                     saving->coordinates),
                             "set_up_planner")
               : dcp_save_default_set_up_planner(saving, state);
}

dcp_status save_hooks_set_up(dcp_saving *saving, dcp_state *state)
{
    RETURN_IF_ERROR(reset_writer(saving));
    RETURN_IF_ERROR(set_up_planner(saving, state));
    return set_up_writer(saving);
}

static dcp_status prepare_nothing(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                  int plan_count)
{
    (void)context;
    (void)saving;
    (void)plans;
    (void)plan_count;
    return DCP_OK;
}

/* Calls no hook of the writer, but takes as much memory as if they were called. */
dcp_status save_hooks_set_up_dry(dcp_saving *saving, dcp_state *state)
{
    dcp_storage_writer *writer = &saving->hooks->writer;
    *writer = (dcp_storage_writer){
        .prepare_global_plan = writer->prepare_global_plan ? prepare_nothing : NULL,
        .write_data = writer->write_data, /* a dry run ends before these two */
        .finish = writer->finish};
    saving->hooks->session_wanted = true;
    return set_up_planner(saving, state);
}

/* The planner keeps the state that it was set up with. */
dcp_status save_hooks_set_up_again(dcp_saving *saving)
{
    struct save_hooks *hooks = saving->hooks;
    RETURN_IF_ERROR(save_hooks_choose_again(saving));
    hooks->writer_began = hooks->session_wanted = false;
    hooks->storage_meta = (dcp_storage_meta){0};
    save_plan_view_free(&hooks->plan);
    save_plan_view_free(&hooks->finished);
    save_plan_view_init(&hooks->plan);
    save_plan_view_init(&hooks->finished);
    memory_release(hooks->order_of);
    hooks->order_of = NULL;
    memory_release(hooks->stream_offsets);
    hooks->stream_offsets = NULL;
    save_hooks_forget_results(hooks);
    save_local_unplan(&saving->local);
    RETURN_IF_ERROR(reset_writer(saving));
    RETURN_IF_ERROR(set_up_writer(saving));
    return save_hooks_plan_local(saving);
}

/* ---- the local plan ---- */

dcp_status dcp_save_default_create_local_plan(dcp_saving *saving, dcp_save_plan *plan)
{
    if (!saving || !plan)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "dcp_save_default_create_local_plan: the save or the plan is NULL");
    struct save_local *local = &saving->local;
    if (!saving->hooks->state_taken)
        return dcp_error_set(DCP_ERR_STATE, "there is no state to save: hook set_up_planner has "
                                            "not called dcp_save_default_set_up_planner()");
    struct save_plan made;
    dcp_status status = save_plan_local(&local->flat, local->stream_lengths, &made);
    for (size_t i = 0; i < made.count && status == DCP_OK; i++)
        status = save_plan_view_append(plan, &made.items[i]);
    save_plan_free(&made);
    return status;
}

static dcp_status create_plan(dcp_saving *saving)
{
    struct save_hooks *hooks = saving->hooks;
    hooks->plan.has_sources = true;
    error_clear();
    dcp_status status = hooks->planner.create_local_plan
                            ? hook_status(hooks->planner.create_local_plan(hooks->planner.context,
                                                                           saving, &hooks->plan),
                                          "create_local_plan")
                            : dcp_save_default_create_local_plan(saving, &hooks->plan);
    if (status != DCP_OK || !hooks->writer.prepare_local_plan)
        return status;
    error_clear();
    return hook_status(
        hooks->writer.prepare_local_plan(hooks->writer.context, saving, &hooks->plan),
        "prepare_local_plan");
}

/* Objects are resolved now, as the plan contains their lengths. */
static dcp_status take_object(dcp_saving *saving, size_t index)
{
    struct buffer *streams = &saving->local.streams;
    struct write_item *item = &saving->hooks->plan.items[index];
    dcp_write_item view = save_plan_view_item(&saving->hooks->plan, item);
    dcp_write_data data;
    RETURN_IF_ERROR(save_resolve_item(saving, &view, &data));
    saving->hooks->stream_offsets[index] = streams->size;
    buffer_append(streams, data.bytes, data.size);
    item->object_length = data.size;
    if (data.release)
        data.release(data.owner);
    return buffer_status(streams);
}

static dcp_status take_items(dcp_saving *saving)
{
    struct save_hooks *hooks = saving->hooks;
    bool resolves = save_hooks_resolve(hooks);
    hooks->stream_offsets = memory_allocate_array(hooks->plan.count, sizeof *hooks->stream_offsets);
    if (!hooks->stream_offsets)
        return error_no_memory(hooks->plan.count * sizeof(uint64_t), "objects of a save");
    for (size_t i = 0; i < hooks->plan.count; i++) {
        const struct write_item *item = &hooks->plan.items[i];
        dcp_write_item view = save_plan_view_item(&hooks->plan, item);
        if (!item->is_tensor)
            RETURN_IF_ERROR(take_object(saving, i));
        else if (!resolves)
            RETURN_IF_ERROR(save_resolve_check(saving, &view));
    }
    return DCP_OK;
}

static dcp_status find_sources(dcp_saving *saving)
{
    struct save_hooks *hooks = saving->hooks;
    struct save_local *local = &saving->local;
    hooks->resolver = (struct shard_resolver){save_resolve_box, saving};
    local->sources = memory_allocate_zeroed(hooks->plan.count, sizeof *local->sources);
    if (!local->sources)
        return error_no_memory(hooks->plan.count * sizeof *local->sources, "sources of a save");
    for (size_t i = 0; i < hooks->plan.count; i++) {
        const struct write_item *item = &hooks->plan.items[i];
        local->sources[i].item = item;
        if (item->is_tensor)
            local->sources[i].resolver = &hooks->resolver;
        else
            local->sources[i].stream = local->streams.data + hooks->stream_offsets[i];
    }
    return DCP_OK;
}

dcp_status save_hooks_plan_local(dcp_saving *saving)
{
    struct save_hooks *hooks = saving->hooks;
    RETURN_IF_ERROR(create_plan(saving));
    if (hooks->plan.count > UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "one rank has %zu items, more than are supported",
                             hooks->plan.count);
    RETURN_IF_ERROR(take_items(saving));
    RETURN_IF_ERROR(find_sources(saving));
    saving->local.plan.items = hooks->plan.items;
    saving->local.plan.count = hooks->plan.count;
    return save_hooks_plan_for_all(hooks)
               ? save_plan_view_append_data(&hooks->plan, &saving->extras.offered)
               : DCP_OK;
}
