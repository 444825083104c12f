/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load_open.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/options.h"
#include "group/group.h"
#include "storage/shard_read_needs.h"

/* The bytes of .metadata, where the checkpoint has them; other forms every rank reads by itself. */
static dcp_status read_raw(const struct load_origin *origin, const struct dcp_loading *loading,
                           const char *path, struct buffer *raw, bool *has_raw)
{
    *has_raw = true;
    if (loading->storage.read_metadata)
        return loading_read_metadata(loading, raw);
    if (!*path && !loading->ranges)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the coordinator was given no path to load from");
    struct storage_location location = {path, origin->options->members,
                                        origin->options->member_count};
    const struct file_ops *ops = loading_files(loading, origin->ops);
    dcp_status status = storage_read_raw(ops, location, raw);
    *has_raw = status != DCP_ERR_NOT_FOUND;
    return *has_raw ? status : DCP_OK;
}

/* The coordinator's message: its options, the storage, the path, and the metadata. */
static dcp_status read_for_all(const struct load_origin *origin, struct dcp_loading *loading,
                               struct buffer *message)
{
    const char *path = origin->path ? origin->path : "";
    struct buffer raw;
    bool has_raw;

    RETURN_IF_ERROR(options_append_load(origin->options, message));
    RETURN_IF_ERROR(loading_choose_storage(loading, path));
    buffer_init(&raw, 0);
    dcp_status status = read_raw(origin, loading, path, &raw, &has_raw);
    buffer_append_u64(message, loading->storage_number);
    buffer_append_u64(message, loading->storage_mask);
    buffer_append_text(message, path, strlen(path));
    buffer_append_u8(message, has_raw);
    buffer_append(message, raw.data, raw.size);
    buffer_free(&raw);
    return status != DCP_OK ? status : buffer_status(message);
}

static dcp_status compare_path(const struct load_origin *origin, const char *text, size_t length)
{
    const char *path = origin->path;
    if (!path || !*path || (strlen(path) == length && memcmp(path, text, length) == 0))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_ARGUMENT, "loads from \"%s\", the coordinator from \"%.*s\"", path,
                         (int)length, text);
}

/* The same storage as at the coordinator, for this rank. */
static dcp_status choose_alike(const struct load_origin *origin, struct dcp_loading *loading,
                               const char *path, uint64_t number, uint64_t mask)
{
    if (!origin->coordinates)
        RETURN_IF_ERROR(loading_choose_storage(loading, path));
    if (loading->storage_number != number || loading->storage_mask != mask)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the storage reader for \"%s\" differs from the coordinator's: all "
                             "ranks must pass the same, with the same hooks",
                             path);
    return DCP_OK;
}

static dcp_status decode_at(const struct load_origin *origin, struct dcp_loading *loading,
                            const char *path, struct reader *message, struct metadata *metadata,
                            struct shard_reader **reader)
{
    enum storage_form form;
    const struct file_ops *ops = loading_files(loading, origin->ops);
    bool has_raw = reader_u8(message) != 0;
    if (message->failed)
        return dcp_error_set(DCP_ERR_GROUP, "the coordinator's metadata is cut short");
    dcp_status status = has_raw
                            ? storage_decode_raw(ops, path, message->data + message->position,
                                                 reader_left(message), metadata, reader)
                            : storage_read_metadata(ops, storage_at(path), &form, metadata, reader);
    if (status == DCP_OK)
        shard_reader_set_io(*reader, loading->ranges ? DCP_IO_BUFFERED : origin->options->io,
                            origin->options->io_priority, origin->progress);
    if (status == DCP_OK && origin->options->memory_limit != 0) {
        const struct shard_read_how least = shard_read_how_least();
        shard_reader_set_how(*reader, &least);
    }
    /* One rank's look is enough, and its failure becomes everyone's. */
    if (status == DCP_OK && origin->coordinates && !loading->storage.read_data &&
        origin->options->verification != DCP_VERIFY_NONE)
        status = storage_check_replicas(*reader);
    return status;
}

static dcp_status decode_for_me(const struct load_origin *origin, const struct buffer *received,
                                struct dcp_loading *loading, struct metadata *metadata,
                                struct shard_reader **reader)
{
    struct reader message;
    size_t length = 0;

    reader_init(&message, received->data, received->size);
    RETURN_IF_ERROR(options_compare_load(origin->options, &message));
    uint64_t number = reader_u64(&message), mask = reader_u64(&message);
    const char *text = reader_text(&message, &length);
    if (message.failed)
        return dcp_error_set(DCP_ERR_GROUP, "the coordinator's metadata is cut short");
    RETURN_IF_ERROR(compare_path(origin, text, length));
    char *path = memory_allocate(length + 1);
    if (!path)
        return error_no_memory(length + 1, "path of a load");
    memcpy(path, text, length);
    path[length] = '\0';
    dcp_status status = choose_alike(origin, loading, path, number, mask);
    if (status == DCP_OK)
        status = decode_at(origin, loading, path, &message, metadata, reader);
    memory_release(path);
    return status;
}

dcp_status load_open(const struct load_origin *origin, dcp_status status,
                     struct dcp_loading *loading, struct metadata *metadata,
                     struct shard_reader **reader)
{
    const dcp_load_options *options = origin->options;
    struct dcp_collective call = {"sharing the metadata", options->timeout_seconds};
    struct buffer message, received;

    buffer_init(&message, 0);
    buffer_init(&received, 0);
    if (origin->coordinates && status == DCP_OK)
        status = read_for_all(origin, loading, &message);
    status = group_broadcast(options->group, &call, options->coordinator, status, message.data,
                             message.size, &received);
    buffer_free(&message);
    if (status == DCP_OK)
        status = decode_for_me(origin, &received, loading, metadata, reader);
    buffer_free(&received);
    return status;
}
