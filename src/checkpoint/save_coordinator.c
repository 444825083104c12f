/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save_coordinator.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/metadata_json.h"
#include "format/metadata_codec.h"
#include "format/relative_path.h"
#include "format/stream.h"
#include "plan/save_plan.h"

/* A rank's message: the path and the compression that it was given, then its plan. */
static dcp_status decode_plans(const char *path, dcp_compression compression,
                               const struct group_messages *messages, struct save_plan *plans)
{
    for (int rank = 0; rank < messages->count; rank++) {
        struct reader reader;
        size_t length = 0;
        reader_init(&reader, messages->bytes + messages->offsets[rank],
                    messages->offsets[rank + 1] - messages->offsets[rank]);
        const char *given = reader_text(&reader, &length);
        uint8_t given_compression = reader_u8(&reader);
        if (reader.failed)
            return dcp_error_set(DCP_ERR_GROUP, "rank %d: its plan is cut short", rank);
        if (length > 0 && (length != strlen(path) || memcmp(given, path, length) != 0))
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "rank %d: saves to \"%.*s\", the coordinator to \"%s\"", rank,
                                 (int)(length < 512 ? length : 512), given, path);
        if (given_compression != compression)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "rank %d: compression is %d, the coordinator's is %d: all ranks "
                                 "must pass the same",
                                 rank, given_compression, (int)compression);
        dcp_status status =
            save_plan_decode(messages->bytes + messages->offsets[rank] + reader.position,
                             reader_left(&reader), &plans[rank]);
        if (status != DCP_OK)
            return error_prefix(status, "rank %d", rank);
    }
    return DCP_OK;
}

static dcp_status stream_layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                                uint64_t *data_offset, uint64_t *length)
{
    struct stream_layout layout;
    RETURN_IF_ERROR(stream_tensor_layout(dtype, ndim, sizes, &layout));
    *data_offset = layout.data_offset;
    *length = layout.length;
    return DCP_OK;
}

static dcp_status encode_assignments(struct save_coordinator *coordinator,
                                     const struct save_session *session,
                                     const struct write_orders *orders)
{
    for (int rank = 0; rank < coordinator->rank_count; rank++) {
        struct buffer *out = &coordinator->assignments[rank];
        buffer_append_text(out, session->path, strlen(session->path));
        buffer_append_text(out, session->save_id, strlen(session->save_id));
        buffer_append_u32(out, session->generation);
        buffer_append_u8(out, session->sync);
        RETURN_IF_ERROR(write_orders_encode(&orders[rank], out));
        RETURN_IF_ERROR(buffer_status(out));
    }
    return DCP_OK;
}

/* What all ranks together will write, if that is known, but for footers and metadata, which are
 * small. */
static dcp_status check_space(const struct save_session *session, const struct write_orders *orders,
                              int rank_count)
{
    uint64_t bytes = 0;
    for (int rank = 0; rank < rank_count; rank++)
        bytes += shard_files_content(&orders[rank], false);
    return save_session_check_space(session, bytes);
}

static dcp_status merge_plans(struct save_coordinator *coordinator,
                              const struct save_session *session, const dcp_save_options *options,
                              const struct save_plan *plans)
{
    struct save_plan_options plan_options = {
        .replicas = options->replicas,
        .files = options->files,
        .thread_count = (uint32_t)options->thread_count,
        .generation = session->generation,
        .layout = stream_layout,
    };
    struct write_orders *orders =
        memory_allocate_zeroed((size_t)coordinator->rank_count, sizeof *orders);
    if (!orders)
        return error_no_memory((size_t)coordinator->rank_count * sizeof *orders, "orders");
    dcp_status status = save_plan_merge(plans, coordinator->rank_count, &plan_options, orders,
                                        &coordinator->metadata);
    coordinator->metadata.save_id = session->save_id;
    if (status == DCP_OK)
        status = options->compression == DCP_COMPRESSION_NONE
                     ? check_space(session, orders, coordinator->rank_count)
                     : DCP_OK;
    if (status == DCP_OK)
        status = encode_assignments(coordinator, session, orders);
    for (int rank = 0; rank < coordinator->rank_count; rank++)
        write_orders_free(&orders[rank]);
    memory_release(orders);
    return status;
}

dcp_status save_coordinator_plan(const struct file_ops *ops, const char *path,
                                 const dcp_save_options *options,
                                 const struct group_messages *messages,
                                 struct save_session *session, struct save_coordinator *coordinator)
{
    size_t rank_count = (size_t)messages->count;
    struct save_plan *plans = NULL;
    dcp_status status;

    if (!path || !*path)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the coordinator was given no path to save to");
    coordinator->assignments = memory_allocate_zeroed(rank_count, sizeof(struct buffer));
    plans = memory_allocate_zeroed(rank_count, sizeof *plans);
    if (!plans || !coordinator->assignments) {
        status = error_no_memory(rank_count * sizeof *plans, "plans of all ranks");
        goto done;
    }
    coordinator->rank_count = messages->count;
    for (size_t rank = 0; rank < rank_count; rank++)
        buffer_init(&coordinator->assignments[rank], 0);
    status = decode_plans(path, options->compression, messages, plans);
    if (status == DCP_OK)
        status = save_session_begin(session, ops, path, options->overwrite, !options->skip_sync);
    if (status == DCP_OK)
        status = merge_plans(coordinator, session, options, plans);
done:
    for (size_t rank = 0; plans && rank < rank_count; rank++)
        save_plan_free(&plans[rank]);
    memory_release(plans);
    return status;
}

/* Paths become names of the checkpoint, which readers do not take if they lead out of it. */
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

dcp_status save_coordinator_commit(struct save_coordinator *coordinator,
                                   const struct save_session *session,
                                   const dcp_save_options *options, bool *visible)
{
    struct buffer encoded;
    char *json = NULL;

    *visible = false;
    buffer_init(&encoded, 0);
    dcp_status status = metadata_encode(&coordinator->metadata, &encoded);
    if (status == DCP_OK)
        status =
            metadata_json_print(&coordinator->metadata, options, coordinator->rank_count, &json);
    if (status == DCP_OK)
        status = save_session_commit(session, encoded.data, encoded.size, json, visible);
    if (status == DCP_OK)
        save_session_sweep(session, &coordinator->metadata);
    dcp_text_free(json);
    buffer_free(&encoded);
    return status;
}

void save_coordinator_free(struct save_coordinator *coordinator)
{
    for (int rank = 0; rank < coordinator->rank_count; rank++)
        buffer_free(&coordinator->assignments[rank]);
    memory_release(coordinator->assignments);
    metadata_free(&coordinator->metadata);
}

dcp_status save_assignment_decode(const struct file_ops *ops, const struct buffer *assignment,
                                  const struct save_plan *plan, struct save_session *session,
                                  struct write_orders *orders)
{
    struct reader reader;
    size_t path_length = 0, id_length = 0;

    reader_init(&reader, assignment->data, assignment->size);
    const char *path = reader_text(&reader, &path_length);
    const char *save_id = reader_text(&reader, &id_length);
    uint32_t generation = reader_u32(&reader);
    bool sync = reader_u8(&reader) != 0;
    if (reader.failed || id_length >= sizeof session->save_id)
        return dcp_error_set(DCP_ERR_GROUP, "the coordinator's assignment is cut short");
    if (!session->path) {
        session->path = memory_allocate(path_length + 1);
        if (!session->path)
            return error_no_memory(path_length + 1, "path of a save");
        memcpy(session->path, path, path_length);
        session->path[path_length] = '\0';
        memcpy(session->save_id, save_id, id_length);
        session->save_id[id_length] = '\0';
        session->ops = ops;
        session->generation = generation;
        session->sync = sync;
    }
    return write_orders_decode(assignment->data + reader.position, reader_left(&reader), plan,
                               orders);
}
