/* SPDX-License-Identifier: BSD-3-Clause */
#include "dcp/load.h"

#include <string.h>

#include "base/error.h"
#include "base/io_priority.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/conductor.h"
#include "checkpoint/load_fill.h"
#include "checkpoint/load_report.h"
#include "checkpoint/load_sharing.h"
#include "checkpoint/operation.h"
#include "checkpoint/options.h"
#include "group/group.h"
#include "plan/load_plan.h"

/* One load, on one rank, from the first step to the last. */
struct load {
    const struct file_ops *ops;
    const char *path;
    dcp_load_options options;
    bool coordinates;
    struct operation operation;
    struct load_names names;
    struct metadata metadata;
    struct shard_reader *reader;
    struct flat_state flat;
    struct load_plan plan;
    struct load_differences mine;
    struct load_differences all;
    struct loaded_objects objects;
    struct load_share share; /* what ranks read for each other */
    struct load_plan rest;   /* what then is left of the plan */
};

static struct dcp_collective call_of(const struct load *load, const char *phase)
{
    struct dcp_collective call = {phase, load->options.timeout_seconds};
    return call;
}

static dcp_status agree(const struct load *load, const char *phase, dcp_status status)
{
    struct dcp_collective call = call_of(load, phase);
    return group_agree(load->options.group, &call, status);
}

/* The coordinator's message: its options, the path, and the bytes of .metadata if it has that form;
 * the other forms every rank reads by itself. */
static dcp_status read_for_all(const struct load *load, struct buffer *message)
{
    struct buffer raw;
    bool has_raw = true;

    if (!load->path || !*load->path)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the coordinator was given no path to load from");
    RETURN_IF_ERROR(options_append_load(&load->options, message));
    buffer_init(&raw, 0);
    struct storage_location location = {load->path, load->options.members,
                                        load->options.member_count};
    dcp_status status = storage_read_raw(load->ops, location, &raw);
    if (status == DCP_ERR_NOT_FOUND) {
        has_raw = false;
        status = DCP_OK;
    }
    buffer_append_text(message, load->path, strlen(load->path));
    buffer_append_u8(message, has_raw);
    buffer_append(message, raw.data, raw.size);
    buffer_free(&raw);
    return status != DCP_OK ? status : buffer_status(message);
}

static dcp_status decode_for_me(struct load *load, const struct buffer *message)
{
    struct reader reader;
    size_t length = 0;
    enum storage_form form;

    reader_init(&reader, message->data, message->size);
    RETURN_IF_ERROR(options_compare_load(&load->options, &reader));
    const char *text = reader_text(&reader, &length);
    bool has_raw = reader_u8(&reader) != 0;
    if (reader.failed)
        return dcp_error_set(DCP_ERR_GROUP, "the coordinator's metadata is cut short");
    if (load->path && *load->path &&
        (strlen(load->path) != length || memcmp(load->path, text, length) != 0))
        return dcp_error_set(DCP_ERR_ARGUMENT, "loads from \"%s\", the coordinator from \"%.*s\"",
                             load->path, (int)length, text);
    char *path = memory_allocate(length + 1);
    if (!path)
        return error_no_memory(length + 1, "path of a load");
    memcpy(path, text, length);
    path[length] = '\0';
    dcp_status status =
        has_raw ? storage_decode_raw(load->ops, path, message->data + reader.position,
                                     reader_left(&reader), &load->metadata, &load->reader)
                : storage_read_metadata(load->ops, storage_at(path), &form, &load->metadata,
                                        &load->reader);
    memory_release(path);
    if (status == DCP_OK)
        shard_reader_set_io(load->reader, load->options.io, load->options.io_priority,
                            &load->operation.progress);
    /* One rank's look is enough, and its failure becomes everyone's. */
    if (status == DCP_OK && load->coordinates && load->options.verification != DCP_VERIFY_NONE)
        status = storage_check_replicas(load->reader);
    return status;
}

static dcp_status share_metadata(struct load *load, dcp_status status)
{
    struct dcp_collective call = call_of(load, "sharing the metadata");
    struct buffer message, received;

    buffer_init(&message, 0);
    buffer_init(&received, 0);
    if (load->coordinates && status == DCP_OK)
        status = read_for_all(load, &message);
    status = group_broadcast(load->options.group, &call, load->options.coordinator, status,
                             message.data, message.size, &received);
    buffer_free(&message);
    if (status == DCP_OK)
        status = decode_for_me(load, &received);
    buffer_free(&received);
    return status;
}

static bool is_stored_object(const void *context, const char *name, size_t length)
{
    const struct metadata *metadata = context;
    uint64_t index;
    return name_table_find(&metadata->by_name, name, length, &index) &&
           !metadata->entries[index].is_tensor;
}

static dcp_status plan_mine(struct load *load, dcp_state *state)
{
    struct flatten_rules rules = {load->options.unflattened, is_stored_object, &load->metadata};

    if (!state)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to load into is NULL");
    RETURN_IF_ERROR(flatten_by_rules(state, &rules, &load->flat));
    RETURN_IF_ERROR(load_plan_make(&load->flat, &load->metadata, &load->names,
                                   load->options.convert, &load->plan, &load->mine));
    return flatten_check_destinations(&load->flat);
}

static dcp_status merge_differences(struct load *load, const struct group_messages *messages,
                                    struct buffer *merged)
{
    size_t count = (size_t)messages->count;
    struct load_differences *ranks = memory_allocate_zeroed(count, sizeof *ranks);
    struct load_differences all = {0};
    dcp_status status = DCP_OK;

    if (!ranks)
        return error_no_memory(count * sizeof *ranks, "differences of all ranks");
    for (size_t rank = 0; rank < count && status == DCP_OK; rank++) {
        status = load_differences_decode(messages->bytes + messages->offsets[rank],
                                         messages->offsets[rank + 1] - messages->offsets[rank],
                                         &ranks[rank]);
        if (status != DCP_OK)
            error_prefix(status, "rank %zu", rank);
    }
    if (status == DCP_OK)
        status =
            load_differences_merge(ranks, messages->count, &load->metadata, &load->names, &all);
    if (status == DCP_OK)
        status = load_differences_encode(&all, merged);
    if (status == DCP_OK)
        status = buffer_status(merged);
    load_differences_free(&all);
    for (size_t rank = 0; rank < count; rank++)
        load_differences_free(&ranks[rank]);
    memory_release(ranks);
    return status;
}

/* All ranks' differences to the coordinator, and the union of them back. */
static dcp_status share_differences(struct load *load, dcp_status status)
{
    struct dcp_collective gathering = call_of(load, "gathering load plans");
    struct dcp_collective telling = call_of(load, "sharing the load report");
    struct group_messages messages = {0};
    struct buffer mine, merged, received;

    buffer_init(&mine, 0);
    buffer_init(&merged, 0);
    buffer_init(&received, 0);
    if (status == DCP_OK)
        status = load_differences_encode(&load->mine, &mine);
    if (status == DCP_OK)
        status = buffer_status(&mine);
    status = group_gather(load->options.group, &gathering, load->options.coordinator, status,
                          mine.data, mine.size, &messages);
    if (load->coordinates && status == DCP_OK)
        status = merge_differences(load, &messages, &merged);
    status = group_broadcast(load->options.group, &telling, load->options.coordinator, status,
                             merged.data, merged.size, &received);
    if (status == DCP_OK)
        status = load_differences_decode(received.data, received.size, &load->all);
    group_messages_free(&messages);
    buffer_free(&received);
    buffer_free(&merged);
    buffer_free(&mine);
    return status;
}

/* What ranks read for each other, then what each reads for itself. */
static dcp_status fill_tensors(struct load *load, const struct load_sharing *sharing)
{
    bool shared = load->share.run_count != 0;
    dcp_figures *figures = &load->operation.figures;
    uint64_t moved = 0;
    RETURN_IF_ERROR(load_exchange(sharing, &load->share, &moved, &figures->bytes_exchanged));
    dcp_status status = load_read_tensors(
        &load->flat, &load->metadata, shared ? &load->rest : &load->plan, load->reader,
        load->options.verification, load->options.thread_count, &figures->bytes_moved);
    figures->bytes_moved += moved;
    return agree(load, "reading tensors", status);
}

/* Everything that can fail without a destination having been touched comes first, and is agreed on.
 */
static dcp_status fill(struct load *load, dcp_status status)
{
    const struct load_sharing sharing = {
        .ops = load->ops,
        .path = load->path,
        .options = &load->options,
        .metadata = &load->metadata,
        .flat = &load->flat,
        .plan = &load->plan,
        .reader = load->reader,
        .progress = &load->operation.progress,
    };
    status = operation_enter_moving(&load->operation, DCP_PHASE_READING, load->plan.bytes_wanted,
                                    status);
    int priority = io_priority_enter(load->options.io_priority);
    if (status == DCP_OK)
        status = load_read_objects(&load->flat, &load->metadata, &load->plan, load->reader,
                                   load->options.verification, &load->objects);
    io_priority_leave(priority);
    if (status == DCP_OK)
        status = load_allocate(&load->flat, &load->plan);
    status = load_share_agree(&sharing, status, &load->share, &load->rest);
    RETURN_IF_ERROR(agree(load, "reading objects", status));

    priority = io_priority_enter(load->options.io_priority);
    status = fill_tensors(load, &sharing);
    io_priority_leave(priority);
    if (status != DCP_OK)
        return error_prefix(status, "tensors may be partly filled");

    status = operation_enter(&load->operation, DCP_PHASE_COMMIT, status);
    if (status == DCP_OK)
        status = load_place_objects(&load->objects);
    if (status == DCP_OK)
        status = flatten_notify(&load->flat);
    status = agree(load, "finishing the load", status);
    if (status != DCP_OK)
        return error_prefix(status, "tensors are filled, objects may not be");
    return DCP_OK;
}

static dcp_status run(struct load *load, dcp_state *state, dcp_status status,
                      dcp_load_report **report)
{
    status = share_metadata(load, status);
    if (status == DCP_OK)
        status = plan_mine(load, state);
    status = share_differences(load, status);
    if (status == DCP_ERR_NO_MEMORY) /* perhaps on this rank alone */
        return fill(load, status);
    RETURN_IF_ERROR(status);

    dcp_status reported = report ? load_report_new(&load->all, report) : DCP_OK;
    status = load_differences_judge(&load->all, load->options.strictness, &load->metadata);
    /* A verdict is the same on every rank and needs no agreement; a lack of memory does. */
    if (status != DCP_OK && status != DCP_ERR_NO_MEMORY)
        return status;
    if (load->coordinates)
        load_differences_log(&load->all, load->options.strictness, &load->metadata, load->path);
    return fill(load, status != DCP_OK ? status : reported);
}

static void note_figures(struct load *load)
{
    struct shard_read_figures read;
    dcp_figures *figures = &load->operation.figures;

    figures->items = load->plan.count;
    figures->bytes_wanted = load->plan.bytes_wanted;
    if (!load->reader)
        return;
    shard_reader_figures(load->reader, &read);
    figures->bytes_read = read.bytes_read;
    figures->files = read.files_opened;
    figures->direct = read.direct;
    figures->ring = read.ring;
}

dcp_status checkpoint_load(const struct file_ops *ops, dcp_state *state, const char *path,
                           const dcp_load_options *given, dcp_load_report **report)
{
    struct load load = {.ops = ops, .path = path};

    dcp_status started =
        operation_start(&load.operation, given->progress, given->progress_context, 0);
    if (report)
        *report = NULL;
    metadata_init(&load.metadata);
    dcp_status status = options_check_load(given, &load.options);
    status = status == DCP_OK ? started : status;
    if (status == DCP_OK)
        status = load_names_init(&load.names, &load.options);
    load.coordinates = dcp_group_rank(load.options.group) == load.options.coordinator;
    status = operation_enter(&load.operation, DCP_PHASE_PLANNING, status);
    status = run(&load, state, status, report);
    note_figures(&load);

    loaded_objects_free(&load.objects);
    load_differences_free(&load.all);
    load_differences_free(&load.mine);
    load_share_free(&load.share);
    load_plan_free(&load.rest);
    load_plan_free(&load.plan);
    flatten_free(&load.flat);
    shard_reader_free(load.reader);
    metadata_free(&load.metadata);
    load_names_free(&load.names);
    operation_finish(&load.operation, given->figures);
    return status;
}

dcp_status dcp_load_sized(dcp_state *state, const char *path, const dcp_load_options *options,
                          size_t options_size, dcp_load_report **report)
{
    dcp_load_options ours;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_load_options"));
    return checkpoint_load(&file_ops_system, state, path, &ours, report);
}
