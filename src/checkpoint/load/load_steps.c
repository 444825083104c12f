/* SPDX-License-Identifier: BSD-3-Clause */
/* The default steps of a load, and its dry run. */
#include "checkpoint/load/load_steps.h"

#include "base/error.h"
#include "base/io_priority.h"
#include "checkpoint/load/loading.h"
#include "checkpoint/share/load_records.h"
#include "group/group.h"
#include "storage/open/storage_open.h"

static dcp_status read_metadata(dcp_loading *loading, const char *path, struct buffer *raw)
{
    const dcp_load_options *options = &loading->options;
    const struct storage_location location = {.path = path,
                                              .members = options->members,
                                              .member_count = options->member_count,
                                              .take = options->take};
    return storage_read_raw(loading->files, location, raw, &loading->planning.stored.directory);
}

/* ---- the plan ---- */

static bool is_stored_object(const void *context, const char *name, size_t length)
{
    const struct metadata *metadata = context;
    uint64_t index;
    return name_table_find(&metadata->by_name, name, length, &index) &&
           !metadata->entries[index].is_tensor;
}

dcp_status load_flatten(dcp_loading *loading, dcp_state *state)
{
    struct load_planning *planning = &loading->planning;
    struct flatten_rules rules = {loading->options.unflattened, is_stored_object,
                                  &planning->stored.metadata};
    if (!state)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to load into is NULL");
    RETURN_IF_ERROR(flatten_by_rules(state, &rules, &planning->flat));
    return flatten_own_objects(state, &planning->flat);
}

static dcp_status plan_local(dcp_loading *loading, dcp_state *state)
{
    struct load_planning *planning = &loading->planning;
    /* A rank that had the metadata has planned already. */
    if (!planning->stored.known)
        RETURN_IF_ERROR(load_flatten(loading, state));
    RETURN_IF_ERROR(load_plan_make(&planning->flat, &planning->stored.metadata, &planning->names,
                                   loading->options.convert, &planning->plan, &planning->mine));
    /* A rank alone may load any parts of tensors. */
    if (loading->options.group)
        RETURN_IF_ERROR(
            flatten_check_meshes(&planning->flat, dcp_group_size(loading->options.group)));
    return flatten_check_destinations(&planning->flat);
}

/* ---- reading ---- */

/* First reads tensors that ranks read for each other, then the rest. */
static dcp_status fill_tensors(dcp_loading *loading, const struct load_sharing *sharing,
                               const struct load_plan *own, struct load_records *records)
{
    const struct load_planning *planning = &loading->planning;
    dcp_figures *figures = &loading->operation.figures;
    int32_t threads = loading->options.thread_count;
    uint64_t moved = 0;
    if (loading->options.memory_limit != 0)
        threads = (int32_t)loading->limit.how.thread_count;
    RETURN_IF_ERROR(
        load_share_tensors(sharing, &planning->share, records, &moved, &figures->bytes_exchanged));
    dcp_status status =
        load_read_tensors(sharing->flat, sharing->metadata, own, records->sums, sharing->reader,
                          loading->options.verification, threads, &figures->bytes_moved);
    figures->bytes_moved += moved;
    status = load_records_compare(records, status);
    return loading_agree(loading, "reading tensors", status);
}

/* Ranks read for each other only if all of them have memory for it. */
static dcp_status share_within_limit(dcp_loading *loading, const struct load_sharing *sharing)
{
    struct load_share *share = &loading->planning.share;
    struct load_plan *rest = &loading->planning.rest;
    dcp_status status = load_share_agree(sharing, DCP_OK, NULL, share, rest);
    if (status == DCP_OK && share->run_count != 0)
        status = load_limit_fit_sharing(&loading->limit, &loading->operation, sharing, share);
    status = loading_agree(loading, "reading for each other within the memory limit", status);
    if (status != DCP_ERR_NO_MEMORY)
        return status;
    load_share_free(share);
    load_plan_free(rest);
    load_limit_fit(&loading->limit, &loading->operation, sharing);
    return DCP_OK;
}

/* Reads objects, each once. First assigns readers, unless an earlier assignment is still valid. */
static dcp_status read_objects(dcp_loading *loading, const struct load_sharing *sharing,
                               dcp_status status)
{
    struct load_planning *planning = &loading->planning;
    struct load_share *share = &planning->share_of_objects;
    uint32_t rank = (uint32_t)dcp_group_rank(loading->options.group);
    if (status == DCP_OK)
        status = loaded_objects_init(&loading->objects, sharing->metadata, sharing->plan);
    if (loading->options.memory_limit == 0 && !planning->dealt)
        RETURN_IF_ERROR(
            load_share_agree(sharing, status, share, &planning->share, &planning->rest));
    if (status == DCP_OK && loading->options.memory_limit != 0)
        status = load_limit_look(&loading->limit, sharing);
    status = load_share_objects(sharing, share, status, &loading->objects,
                                &loading->operation.figures.bytes_exchanged);
    if (status == DCP_OK)
        status =
            load_read_objects(sharing->flat, sharing->metadata, sharing->plan, share, rank,
                              sharing->reader, loading->options.verification, &loading->objects);
    return status;
}

/* After this, objects have been read and all chunks have memory. */
static dcp_status prepare_objects(dcp_loading *loading, const struct load_sharing *sharing,
                                  dcp_status status)
{
    int priority = io_priority_enter(loading->options.io_priority);
    loading->items = sharing->plan->count;
    loading->bytes_wanted = sharing->plan->bytes_wanted;
    status = read_objects(loading, sharing, status);
    io_priority_leave(priority);
    return status == DCP_OK ? load_allocate(sharing->flat, sharing->plan) : status;
}

/* Assigns readers of tensors, and chooses how to read within the limit, if any. */
static dcp_status arrange_reading(dcp_loading *loading, const struct load_sharing *sharing,
                                  dcp_status status)
{
    if (loading->options.memory_limit == 0)
        return status;
    if (status == DCP_OK)
        load_limit_find(&loading->limit, &loading->operation, sharing);
    if (status == DCP_OK)
        status = load_limit_check(&loading->limit, &loading->options);
    RETURN_IF_ERROR(loading_agree(loading, "keeping within the memory limit", status));
    load_limit_fit(&loading->limit, &loading->operation, sharing);
    return share_within_limit(loading, sharing);
}

static dcp_status prepare(dcp_loading *loading, dcp_status status)
{
    const struct load_sharing sharing = loading_sharing(loading);
    status = operation_enter_moving(&loading->operation, DCP_PHASE_READING,
                                    sharing.plan->bytes_wanted, status);
    status = prepare_objects(loading, &sharing, status);
    if (status == DCP_OK)
        status = flatten_await_devices(sharing.flat, loading->options.timeout_seconds);
    status = arrange_reading(loading, &sharing, status);
    RETURN_IF_ERROR(loading_agree(loading, "reading objects", status));
    loading->planning.dealt = true;
    return DCP_OK;
}

void load_begin_reading(dcp_loading *loading)
{
    const struct load_planning *planning = &loading->planning;
    loading->begun = true;
    if (loading->coordinates)
        load_differences_log(&planning->all, loading->options.strictness,
                             &planning->stored.metadata, loading->path ? loading->path : "");
}

static dcp_status read_tensors(dcp_loading *loading)
{
    const struct load_sharing sharing = loading_sharing(loading);
    const struct load_planning *planning = &loading->planning;
    const struct load_plan *own = planning->share.run_count != 0 ? &planning->rest : sharing.plan;
    struct load_records records;
    dcp_status status = load_records_agree(&sharing, &planning->share, own, &records);
    if (status != DCP_OK) {
        load_records_free(&records);
        return status;
    }
    load_begin_reading(loading);
    int priority = io_priority_enter(loading->options.io_priority);
    status = fill_tensors(loading, &sharing, own, &records);
    io_priority_leave(priority);
    load_records_free(&records);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "tensors may be partly filled");
}

dcp_status load_finish(dcp_loading *loading)
{
    dcp_status status = operation_enter(&loading->operation, DCP_PHASE_COMMIT, DCP_OK);
    if (status == DCP_OK)
        status = load_place_objects(&loading->objects);
    if (status == DCP_OK)
        status = flatten_notify(&loading->planning.flat);
    status = loading_agree(loading, "finishing the load", status);
    if (status != DCP_OK)
        return error_prefix(status, "tensors are filled, objects may not be");
    return DCP_OK;
}

/* ---- the dry run ---- */

static dcp_status measure(dcp_loading *loading, dcp_status status)
{
    const struct load_sharing sharing = loading_sharing(loading);
    status = prepare_objects(loading, &sharing, status);
    if (status == DCP_OK)
        load_limit_find(&loading->limit, &loading->operation, &sharing);
    return loading_agree(loading, "reading objects", status);
}

const struct load_steps load_steps_default = {
    .plan_holds = true,
    .reads_shards = true,
    .read_metadata = read_metadata,
    .plan_local = plan_local,
    .prepare = prepare,
    .read = read_tensors,
    .finish = load_finish,
    .measure = measure,
};
