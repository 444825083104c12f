/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_coordinator.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/operation/metadata_json.h"
#include "checkpoint/save/save_alone.h"
#include "checkpoint/save/saving.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/relative_path.h"
#include "format/streams/stream.h"

static dcp_status stream_layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                                uint64_t *data_offset, uint64_t *length)
{
    struct stream_layout layout;
    RETURN_IF_ERROR(stream_tensor_layout(dtype, ndim, sizes, &layout));
    *data_offset = layout.data_offset;
    *length = layout.length;
    return DCP_OK;
}

struct save_plan_options save_coordinator_options(const dcp_saving *saving)
{
    return (struct save_plan_options){
        .replicas = saving->options.replicas,
        .files = saving->options.files,
        .thread_count = (uint32_t)saving->options.thread_count,
        .first_rank = (uint32_t)(saving->file_rank - saving->rank),
        .allow_partial = saving->options.allow_partial,
        .objects_may_grow = saving->planning.cache != NULL,
        .of_wholes = saving->ranks != NULL,
        .layout = stream_layout,
    };
}

void save_session_append(const struct save_session *session, struct buffer *out)
{
    const char *path = session->path ? session->path : "";
    buffer_append_text(out, path, strlen(path));
    buffer_append_u8(out, save_session_is_open(session));
    buffer_append_text(out, session->save_id, strlen(session->save_id));
    buffer_append_u32(out, session->generation);
    buffer_append_u8(out, session->sync);
}

dcp_status save_assignment_encode(const struct save_session *session,
                                  const struct write_orders *orders, struct buffer *assignment)
{
    save_session_append(session, assignment);
    RETURN_IF_ERROR(write_orders_encode(orders, assignment));
    return buffer_status(assignment);
}

void save_coordinator_count(struct save_coordinator *coordinator, const struct write_orders *orders)
{
    uint64_t content = shard_files_content(orders, false);
    if (!checked_add_u64(coordinator->content, content, &coordinator->content))
        coordinator->content = UINT64_MAX;
}

dcp_status save_coordinator_check_space(const dcp_saving *saving)
{
    if (!saving->as_planned)
        return DCP_OK;
    return save_session_check_space(&saving->session, saving->coordinator.content);
}

dcp_status save_coordinator_init(struct save_coordinator *coordinator, int rank_count)
{
    coordinator->assignments = memory_allocate_zeroed((size_t)rank_count, sizeof(struct buffer));
    if (!coordinator->assignments)
        return error_no_memory((size_t)rank_count * sizeof(struct buffer), "assignments");
    coordinator->rank_count = rank_count;
    for (int rank = 0; rank < rank_count; rank++)
        buffer_init(&coordinator->assignments[rank], 0);
    return DCP_OK;
}

static dcp_status choose_storage(const dcp_saving *saving, const dcp_storage **storage)
{
    if (!saving->path || !*saving->path)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the coordinator was given no path to save to");
    return storage_choose(&saving->storage, saving->path, storage);
}

dcp_status save_coordinator_begin(dcp_saving *saving)
{
    const dcp_storage *storage;
    char *id;
    RETURN_IF_ERROR(choose_storage(saving, &storage));
    RETURN_IF_ERROR(storage_keep_id(storage, saving->id ? saving->id : saving->path, &id));
    dcp_overwrite overwrite =
        saving->was_visible ? DCP_OVERWRITE_REPLACE : saving->options.overwrite;
    dcp_status status =
        saving->options.without_collectives
            ? save_session_begin_rank(&saving->session, storage, id, saving->file_rank, overwrite,
                                      !saving->options.skip_sync, saving->options.takeover_seconds)
            : save_session_begin(&saving->session, storage, id, overwrite,
                                 !saving->options.skip_sync, saving->options.takeover_seconds);
    memory_release(id);
    return status == DCP_OK ? DCP_OK
                            : save_alone_explain(status, dcp_group_size(saving->options.group));
}

static dcp_status stay(struct save_session *session, const char *path)
{
    *session = (struct save_session){.path = memory_copy_text(path)};
    return session->path ? DCP_OK : error_no_memory(strlen(path) + 1, "path of a save");
}

dcp_status save_coordinator_stay(dcp_saving *saving)
{
    const dcp_storage *storage;
    RETURN_IF_ERROR(choose_storage(saving, &storage));
    return stay(&saving->session, saving->path);
}

dcp_status save_coordinator_imagine(dcp_saving *saving)
{
    const dcp_storage *storage;
    char *id; /* as a save has it, whose length counts */
    RETURN_IF_ERROR(choose_storage(saving, &storage));
    RETURN_IF_ERROR(storage_keep_id(storage, saving->path, &id));
    dcp_status status =
        save_session_imagine(&saving->session, storage, id, !saving->options.skip_sync);
    memory_release(id);
    return status;
}

/* Files are named after the session, which until here may have been beginning. */
dcp_status save_coordinator_await(dcp_saving *saving)
{
    return saving->beginning.runs ? save_beside_join(&saving->beginning)
                                  : saving->steps.begin(saving);
}

static dcp_status deal_orders(void *context, uint32_t rank, const struct write_orders *orders)
{
    dcp_saving *saving = context;
    if (!saving->coordinator.kept || !saving->coordinator.kept[rank])
        save_coordinator_count(&saving->coordinator, orders);
    return save_assignment_encode(&saving->session, orders, &saving->coordinator.assignments[rank]);
}

static dcp_status deal(dcp_saving *saving, const struct merge *merge, uint32_t rank_count)
{
    struct save_coordinator *coordinator = &saving->coordinator;
    struct order_sink sink = {.take = deal_orders, .context = saving};
    RETURN_IF_ERROR(save_coordinator_await(saving));
    RETURN_IF_ERROR(save_coordinator_init(coordinator, (int)rank_count));
    RETURN_IF_ERROR(merge_order_all(merge, saving->session.generation, &sink));
    saving->steps.describe(saving, &coordinator->metadata);
    return save_coordinator_check_space(saving);
}

dcp_status save_coordinator_plan(dcp_saving *saving, const struct joint_plan *joint)
{
    struct save_coordinator *coordinator = &saving->coordinator;
    struct save_plan_options options = save_coordinator_options(saving);
    struct merge *merge;
    dcp_status status = joint_plan_merge(joint, &options, &coordinator->metadata, &merge);
    status = save_plan_name_mesh(&saving->local.plan, joint->rank_count, status);
    if (status == DCP_OK)
        status = deal(saving, merge, joint->rank_count);
    merge_free(merge);
    return status;
}

/* Paths become file names of the checkpoint, and readers refuse those that leave its directory. */
static dcp_status decode_results(const struct group_messages *messages, int rank,
                                 struct write_results *results)
{
    const unsigned char *bytes = messages->bytes + messages->offsets[rank];
    dcp_status status =
        write_results_decode(bytes, messages->offsets[rank + 1] - messages->offsets[rank], results);
    for (size_t i = 0; i < results->count && status == DCP_OK; i++) {
        const char *path = results->results[i].path;
        if (i == 0 || path != results->results[i - 1].path)
            status = relative_path_check(path, strlen(path));
    }
    return status == DCP_OK ? DCP_OK : error_prefix(status, "rank %d", rank);
}

dcp_status save_coordinator_place(struct save_coordinator *coordinator,
                                  const struct group_messages *messages)
{
    size_t rank_count = (size_t)messages->count;
    struct write_results *results = memory_allocate_zeroed(rank_count, sizeof *results);
    dcp_status status = DCP_OK;
    if (!results)
        return error_no_memory(rank_count * sizeof *results, "write results");
    for (int rank = 0; rank < messages->count && status == DCP_OK; rank++)
        status = decode_results(messages, rank, &results[rank]);
    if (status == DCP_OK)
        status = save_plan_place(results, messages->count, &coordinator->metadata);
    for (size_t rank = 0; rank < rank_count; rank++)
        write_results_free(&results[rank]);
    memory_release(results);
    return status;
}

static dcp_status encode(const struct save_coordinator *coordinator,
                         const dcp_save_options *options, struct buffer *encoded, char **json)
{
    RETURN_IF_ERROR(metadata_encode(&coordinator->metadata, encoded));
    if (options->without_collectives)
        return DCP_OK; /* a single rank cannot describe the checkpoint */
    return metadata_json_print(&coordinator->metadata, options, coordinator->rank_count, json);
}

dcp_status save_coordinator_measure(const struct save_coordinator *coordinator,
                                    const dcp_save_options *options, uint64_t *bytes)
{
    struct buffer encoded;
    char *json = NULL;

    buffer_init(&encoded, 0);
    dcp_status status = encode(coordinator, options, &encoded, &json);
    if (status == DCP_OK)
        *bytes = encoded.size + (json ? strlen(json) : 0);
    dcp_text_free(json);
    buffer_free(&encoded);
    return status;
}

dcp_status save_coordinator_prepare(struct save_coordinator *coordinator,
                                    const struct save_session *session,
                                    const dcp_save_options *options)
{
    struct buffer encoded;
    char *json = NULL;

    buffer_init(&encoded, 0);
    dcp_status status = encode(coordinator, options, &encoded, &json);
    if (status == DCP_OK)
        status =
            save_commit_prepare(&coordinator->commit, session, encoded.data, encoded.size, json);
    dcp_text_free(json);
    buffer_free(&encoded);
    return status;
}

dcp_status save_coordinator_commit(dcp_saving *saving)
{
    struct save_coordinator *coordinator = &saving->coordinator;
    saving->visible = false;
    if (!save_commit_is_prepared(&coordinator->commit))
        RETURN_IF_ERROR(save_coordinator_prepare(coordinator, &saving->session, &saving->options));
    RETURN_IF_ERROR(save_commit_publish(&coordinator->commit, &saving->visible));
    save_session_sweep(&saving->session, &coordinator->metadata);
    return DCP_OK;
}

void save_coordinator_free(struct save_coordinator *coordinator)
{
    for (int rank = 0; coordinator->assignments && rank < coordinator->rank_count; rank++)
        buffer_free(&coordinator->assignments[rank]);
    memory_release(coordinator->assignments);
    metadata_free(&coordinator->metadata);
    arena_free(&coordinator->extra_names);
}

/* If the coordinator has no directory, no rank writes files. */
static dcp_status join(dcp_saving *saving, const char *path, bool is_open)
{
    const dcp_storage *storage;
    if (!is_open)
        return stay(&saving->session, path);
    RETURN_IF_ERROR(storage_choose(&saving->storage, path, &storage));
    return save_session_join(&saving->session, storage, path);
}

dcp_status save_session_read(dcp_saving *saving, struct reader *reader)
{
    struct save_session *session = &saving->session;
    size_t path_length = 0, id_length = 0;

    const char *path = reader_text(reader, &path_length);
    bool is_open = reader_u8(reader) != 0;
    const char *save_id = reader_text(reader, &id_length);
    uint32_t generation = reader_u32(reader);
    bool sync = reader_u8(reader) != 0;
    if (reader->failed || id_length >= sizeof session->save_id)
        return dcp_error_set(DCP_ERR_GROUP,
                             "the coordinator's message with the assignment ends too early");
    if (session->path)
        return DCP_OK;
    char *id = memory_allocate(path_length + 1);
    if (!id)
        return error_no_memory(path_length + 1, "path of a save");
    memcpy(id, path, path_length);
    id[path_length] = '\0';
    dcp_status status = join(saving, id, is_open);
    memory_release(id);
    RETURN_IF_ERROR(status);
    memcpy(session->save_id, save_id, id_length);
    session->save_id[id_length] = '\0';
    session->generation = generation;
    session->sync = sync;
    return DCP_OK;
}
