/* SPDX-License-Identifier: BSD-3-Clause */
/* The coordinator's message:
 *
 *   how the metadata is told, the load's number, its options, the storage, the path, and
 *
 *   the whole metadata, or
 *   the load since which the changes are, the load that the metadata is from, the changes */
#include "checkpoint/load/load_open.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/operation/options.h"
#include "group/group.h"
#include "storage/shard/shard_read_needs.h"

enum telling {
    TELL_NOTHING = 0, /* every rank reads it by itself */
    TELL_WHOLE = 1,
    TELL_CHANGES = 2
};

/* ---- the coordinator's side ---- */

/* The bytes of .metadata, where the checkpoint has them. */
static dcp_status read_raw(const struct load_origin *origin, const struct dcp_loading *loading,
                           const char *path, struct buffer *raw, enum telling *telling)
{
    *telling = TELL_WHOLE;
    if (loading->storage.read_metadata)
        return loading_read_metadata(loading, raw);
    struct storage_location location = {path, origin->options->members,
                                        origin->options->member_count};
    dcp_status status = storage_read_raw(loading->files, location, raw);
    if (status != DCP_ERR_NOT_FOUND)
        return status;
    *telling = TELL_NOTHING;
    return DCP_OK;
}

static dcp_status read_stored(const struct load_origin *origin, const struct dcp_loading *loading,
                              const char *path, struct load_stored *stored, enum telling *telling,
                              struct buffer *changes)
{
    bool found = false;
    RETURN_IF_ERROR(read_raw(origin, loading, path, &stored->raw, telling));
    if (*telling != TELL_WHOLE || !stored->cache || loading_has_hooks(loading) ||
        !load_plan_cache_serves(stored->cache, origin->options))
        return DCP_OK;
    RETURN_IF_ERROR(load_stored_find_changes(stored, loading->files, path, &found, changes));
    if (found)
        *telling = TELL_CHANGES;
    return DCP_OK;
}

static void append_stored(const struct load_stored *stored, enum telling telling,
                          const struct buffer *changes, struct buffer *message)
{
    if (telling != TELL_CHANGES) {
        buffer_append(message, stored->raw.data, stored->raw.size);
        return;
    }
    uint64_t base = stored->cache->stored;
    buffer_append_u64(message, base);
    buffer_append_u64(message, changes->size != 0 ? stored->number : base);
    buffer_append(message, changes->data, changes->size);
}

static dcp_status read_for_all(const struct load_origin *origin, struct dcp_loading *loading,
                               struct load_stored *stored, struct buffer *message)
{
    const char *path = origin->path ? origin->path : "";
    enum telling telling;
    struct buffer changes;

    RETURN_IF_ERROR(load_plan_cache_number(&stored->number));
    RETURN_IF_ERROR(loading_choose_storage(loading, path));
    buffer_init(&changes, 0);
    dcp_status status = read_stored(origin, loading, path, stored, &telling, &changes);
    if (status == DCP_OK) {
        buffer_append_u8(message, (uint8_t)telling);
        buffer_append_u64(message, stored->number);
        status = options_append_load(origin->options, message);
    }
    if (status == DCP_OK) {
        buffer_append_u64(message, loading->storage_number);
        buffer_append_u64(message, loading->storage_mask);
        buffer_append_text(message, path, strlen(path));
        append_stored(stored, telling, &changes, message);
        status = buffer_status(message);
    }
    buffer_free(&changes);
    if (!stored->cache)
        buffer_free(&stored->raw);
    return status;
}

/* ---- every rank's side ---- */

static dcp_status cut_short(void)
{
    return dcp_error_set(DCP_ERR_GROUP, "the coordinator's metadata is cut short");
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

static dcp_status decode_raw(const dcp_storage *storage, const char *path, struct reader *message,
                             struct load_stored *stored)
{
    /* The coordinator may have looked already. */
    return stored->reader
               ? DCP_OK
               : storage_decode_raw(storage, path, message->data + message->position,
                                    reader_left(message), &stored->metadata, &stored->reader);
}

static dcp_status decode_changes(const struct load_origin *origin, const dcp_storage *storage,
                                 const char *path, struct reader *message,
                                 struct load_stored *stored)
{
    uint64_t base = reader_u64(message);
    stored->since = reader_u64(message);
    if (message->failed)
        return cut_short();
    stored->known = origin->coordinates || (stored->cache && stored->cache->stored == base);
    if (!stored->known)
        return DCP_OK;
    if (!origin->coordinates)
        RETURN_IF_ERROR(
            load_stored_apply(stored, message->data + message->position, reader_left(message)));
    return load_stored_open(stored, storage, path);
}

static void set_manners(const struct load_origin *origin, struct shard_reader *reader)
{
    shard_reader_set_io(reader, origin->options->io, origin->options->io_priority,
                        origin->progress);
}

/* How the load's options have it read. */
static dcp_status prepare_reader(const struct load_origin *origin,
                                 const struct dcp_loading *loading, struct shard_reader *reader)
{
    const dcp_load_options *options = origin->options;
    set_manners(origin, reader);
    if (options->memory_limit != 0) {
        const struct shard_read_how least = shard_read_how_least();
        shard_reader_set_how(reader, &least);
    }
    /* One rank's look is enough, and its failure becomes everyone's. */
    if (origin->coordinates && !loading->storage.read_data &&
        options->verification != DCP_VERIFY_NONE)
        return storage_check_replicas(reader);
    return DCP_OK;
}

static dcp_status decode_at(const struct load_origin *origin, const struct dcp_loading *loading,
                            const char *path, enum telling telling, struct reader *message,
                            struct load_stored *stored)
{
    enum storage_form form;
    dcp_status status;
    if (telling == TELL_NOTHING || loading_has_hooks(loading))
        stored->cache = NULL;
    if (telling == TELL_CHANGES) {
        status = decode_changes(origin, loading->files, path, message, stored);
    } else {
        stored->since = stored->number;
        status = telling == TELL_WHOLE
                     ? decode_raw(loading->files, path, message, stored)
                     : storage_read_metadata(loading->files, storage_at(path), &form,
                                             &stored->metadata, &stored->reader);
    }
    return status == DCP_OK && stored->reader ? prepare_reader(origin, loading, stored->reader)
                                              : status;
}

static dcp_status copy_path(const char *text, size_t length, char **path)
{
    *path = memory_allocate(length + 1);
    if (!*path)
        return error_no_memory(length + 1, "path of a load");
    memcpy(*path, text, length);
    (*path)[length] = '\0';
    return DCP_OK;
}

static dcp_status decode_for_me(const struct load_origin *origin, const struct buffer *received,
                                struct dcp_loading *loading, struct load_stored *stored)
{
    struct reader message;
    size_t length = 0;
    char *path;

    reader_init(&message, received->data, received->size);
    uint8_t telling = reader_u8(&message);
    stored->number = reader_u64(&message);
    stored->by_changes = telling == TELL_CHANGES;
    if (message.failed || telling > TELL_CHANGES)
        return cut_short();
    RETURN_IF_ERROR(options_compare_load(origin->options, &message));
    uint64_t number = reader_u64(&message), mask = reader_u64(&message);
    const char *text = reader_text(&message, &length);
    if (message.failed)
        return cut_short();
    RETURN_IF_ERROR(compare_path(origin, text, length));
    RETURN_IF_ERROR(copy_path(text, length, &path));
    dcp_status status = choose_alike(origin, loading, path, number, mask);
    if (status == DCP_OK)
        status = decode_at(origin, loading, path, (enum telling)telling, &message, stored);
    memory_release(path);
    return status;
}

dcp_status load_open(const struct load_origin *origin, dcp_status status,
                     struct dcp_loading *loading, struct load_stored *stored)
{
    const dcp_load_options *options = origin->options;
    struct dcp_collective call = {"sharing the metadata", options->timeout_seconds};
    struct buffer message, received;

    buffer_init(&message, 0);
    buffer_init(&received, 0);
    if (origin->coordinates && status == DCP_OK)
        status = read_for_all(origin, loading, stored, &message);
    status = group_broadcast(options->group, &call, options->coordinator, status, message.data,
                             message.size, &received);
    buffer_free(&message);
    if (status == DCP_OK)
        status = decode_for_me(origin, &received, loading, stored);
    buffer_free(&received);
    return status;
}

static dcp_status decode_whole(const struct load_origin *origin, const struct dcp_loading *loading,
                               const struct buffer *received, struct load_stored *stored)
{
    struct reader message;
    size_t length = 0;
    char *path;
    reader_init(&message, received->data, received->size);
    const char *text = reader_text(&message, &length);
    if (message.failed)
        return cut_short();
    RETURN_IF_ERROR(copy_path(text, length, &path));
    dcp_status status = decode_raw(loading->files, path, &message, stored);
    memory_release(path);
    if (status == DCP_OK)
        set_manners(origin, stored->reader);
    return status;
}

dcp_status load_open_whole(const struct load_origin *origin, const struct dcp_loading *loading,
                           struct load_stored *stored)
{
    const dcp_load_options *options = origin->options;
    struct dcp_collective call = {"sharing the whole metadata", options->timeout_seconds};
    struct buffer message, received;
    dcp_status status = DCP_OK;

    buffer_init(&message, 0);
    buffer_init(&received, 0);
    if (origin->coordinates) {
        const char *path = origin->path ? origin->path : "";
        buffer_append_text(&message, path, strlen(path));
        buffer_append(&message, stored->raw.data, stored->raw.size);
        status = buffer_status(&message);
    }
    status = group_broadcast(options->group, &call, options->coordinator, status, message.data,
                             message.size, &received);
    buffer_free(&message);
    if (status == DCP_OK)
        status = decode_whole(origin, loading, &received, stored);
    buffer_free(&received);
    return status;
}
