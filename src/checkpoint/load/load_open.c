/* SPDX-License-Identifier: BSD-3-Clause */
/* The coordinator's message:
 *
 *   how the metadata is sent, the load's number, its options, the storage, the path, and
 *
 *   the whole metadata in compact form, as it is stored, or as this rank has decoded it (in front
 * of it the form, if there is no .metadata) or, if it has no compact form, its pickle, or the load
 * since which the changes are, the load that the metadata is from, the changes
 */
#include "checkpoint/load/load_open.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/load_hooks.h"
#include "checkpoint/load/loading.h"
#include "checkpoint/operation/options.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/metadata_compact.h"
#include "group/group.h"
#include "storage/open/storage_open.h"
#include "storage/shard/shard_read_needs.h"

enum sending {
    SEND_NOTHING = 0, /* every rank reads it by itself */
    SEND_WHOLE = 1,
    SEND_CHANGES = 2,
    SEND_COMPACT = 3,
    SEND_DESCRIBED = 4, /* of .pt files, safetensors and training checkpoints */
    SEND_STORED = 5     /* the compact form that is stored, which all decode at a time */
};

/* ---- the coordinator's side ---- */

/* If only the pickle is stored, decodes it here: the compact form is sent and read in less time
 * than each rank takes to decode that. */
static dcp_status choose_form(dcp_loading *loading, const char *path, enum sending *sending)
{
    struct load_stored *stored = &loading->planning.stored;
    if (!stored->reader)
        RETURN_IF_ERROR(
            storage_find_compact(path, &stored->raw, &stored->compact, &stored->compact_size));
    if (stored->compact) {
        *sending = SEND_STORED;
        return DCP_OK;
    }
    if (!stored->reader)
        RETURN_IF_ERROR(storage_decode_raw(loading->files, path, stored->raw.data, stored->raw.size,
                                           &stored->metadata, &stored->reader));
    if (metadata_fits_compact(&stored->metadata))
        *sending = SEND_COMPACT;
    return DCP_OK;
}

/* What has no .metadata, as one rank reads it for all. What cannot be passed on each rank reads: a
 * part of each rank's own (__R.metadata), and objects that cannot be written. */
static dcp_status describe(dcp_loading *loading, const char *path, enum sending *sending)
{
    struct load_stored *stored = &loading->planning.stored;
    const struct storage_location location = {.path = path, .take = loading->options.take};
    *sending = SEND_NOTHING;
    if (dcp_group_size(loading->options.group) == 1 || !loading->steps.reads_shards)
        return DCP_OK;
    RETURN_IF_ERROR(storage_read_metadata(loading->files, location, &stored->form,
                                          &stored->metadata, &stored->reader));
    if (stored->form != STORAGE_PT && stored->form != STORAGE_SAFETENSORS &&
        stored->form != STORAGE_TRAINING)
        return DCP_OK;
    dcp_status status = storage_make_portable(stored->reader, &stored->metadata);
    if (status == DCP_OK)
        *sending = SEND_DESCRIBED;
    if (status != DCP_ERR_UNSUPPORTED)
        return status;
    error_clear();
    return DCP_OK;
}

static dcp_status read_stored(dcp_loading *loading, const char *path, enum sending *sending,
                              struct buffer *changes)
{
    struct load_stored *stored = &loading->planning.stored;
    bool found = false;
    dcp_status status = loading->steps.read_metadata(loading, path, &stored->raw);
    *sending = status == DCP_ERR_NOT_FOUND ? SEND_NOTHING : SEND_WHOLE;
    if (status == DCP_ERR_NOT_FOUND)
        return describe(loading, path, sending);
    RETURN_IF_ERROR(status);
    if (stored->cache && load_plan_cache_serves(stored->cache, &loading->options))
        RETURN_IF_ERROR(load_stored_find_changes(stored, loading->files, path, &found, changes));
    if (found)
        *sending = SEND_CHANGES;
    return found ? DCP_OK : choose_form(loading, path, sending);
}

static dcp_status append_stored(const dcp_loading *loading, enum sending sending,
                                const struct buffer *changes, struct buffer *message)
{
    const struct load_stored *stored = &loading->planning.stored;
    if (sending == SEND_CHANGES) {
        uint64_t base = stored->cache->stored;
        buffer_append_u64(message, base);
        buffer_append_u64(message, changes->size != 0 ? stored->number : base);
        buffer_append(message, changes->data, changes->size);
    } else if (sending == SEND_STORED) {
        buffer_append(message, stored->compact, stored->compact_size);
    } else if (dcp_group_size(loading->options.group) > 1) {
        if (sending == SEND_DESCRIBED)
            buffer_append_u8(message, (uint8_t)stored->form);
        if (sending == SEND_COMPACT || sending == SEND_DESCRIBED)
            return metadata_compact_append(&stored->metadata, message);
        buffer_append(message, stored->raw.data, stored->raw.size);
    }
    return buffer_status(message);
}

static dcp_status read_for_all(dcp_loading *loading, struct buffer *message)
{
    struct load_stored *stored = &loading->planning.stored;
    const char *path = loading->path ? loading->path : "";
    enum sending sending;
    struct buffer changes;

    RETURN_IF_ERROR(load_plan_cache_number(&stored->number));
    RETURN_IF_ERROR(load_hooks_choose_storage(loading, path));
    buffer_init(&changes, 0);
    dcp_status status = read_stored(loading, path, &sending, &changes);
    if (status == DCP_OK) {
        buffer_append_u8(message, (uint8_t)sending);
        buffer_append_u64(message, stored->number);
        status = options_append_load(&loading->options, message);
    }
    if (status == DCP_OK) {
        buffer_append_u64(message, loading->kind.storage);
        buffer_append_u64(message, loading->kind.present);
        buffer_append_text(message, path, strlen(path));
        status = append_stored(loading, sending, &changes, message);
    }
    buffer_free(&changes);
    if (!stored->cache)
        buffer_free(&stored->raw);
    return status;
}

/* ---- every rank's side ---- */

static dcp_status cut_short(void)
{
    return dcp_error_set(DCP_ERR_GROUP,
                         "the coordinator's message with the metadata ends too early");
}

static dcp_status compare_path(const dcp_loading *loading, const char *text, size_t length)
{
    const char *path = loading->path;
    if (!path || !*path || (strlen(path) == length && memcmp(path, text, length) == 0))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_ARGUMENT, "loads from \"%s\", but the coordinator from \"%.*s\"",
                         path, (int)length, text);
}

/* Chooses the coordinator's storage on this rank. */
static dcp_status choose_alike(dcp_loading *loading, const char *path, uint64_t number,
                               uint64_t mask)
{
    if (!loading->coordinates)
        RETURN_IF_ERROR(load_hooks_choose_storage(loading, path));
    if (loading->kind.storage != number || loading->kind.present != mask)
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

static dcp_status read_compact(const struct reader *message, struct metadata *metadata)
{
    dcp_status status =
        metadata_compact_read(message->data + message->position, reader_left(message), metadata);
    return status == DCP_OK ? status : error_prefix(status, "the coordinator's message");
}

static dcp_status decode_compact(const dcp_storage *storage, const char *path,
                                 struct reader *message, struct load_stored *stored)
{
    if (stored->reader)
        return DCP_OK;
    RETURN_IF_ERROR(read_compact(message, &stored->metadata));
    return load_stored_open(stored, storage, path);
}

static dcp_status decode_stored(const dcp_storage *storage, const char *path,
                                struct reader *message, struct load_stored *stored)
{
    dcp_status status = metadata_decode_compact(message->data + message->position,
                                                reader_left(message), &stored->metadata);
    if (status != DCP_OK)
        return error_prefix(status, "%s/" METADATA_NAME, path);
    return load_stored_open(stored, storage, path);
}

static dcp_status decode_described(const dcp_storage *storage, const char *path,
                                   struct reader *message, struct load_stored *stored)
{
    if (stored->reader)
        return DCP_OK;
    uint8_t form = reader_u8(message);
    if (message->failed || form > STORAGE_UNION)
        return cut_short();
    stored->form = (enum storage_form)form;
    RETURN_IF_ERROR(read_compact(message, &stored->metadata));
    return storage_read_described(storage, path, stored->form, &stored->metadata, &stored->reader);
}

static dcp_status decode_changes(dcp_loading *loading, const char *path, struct reader *message)
{
    struct load_stored *stored = &loading->planning.stored;
    uint64_t base = reader_u64(message);
    stored->since = reader_u64(message);
    if (message->failed)
        return cut_short();
    stored->known = loading->coordinates || (stored->cache && stored->cache->stored == base);
    if (!stored->known)
        return DCP_OK;
    if (!loading->coordinates)
        RETURN_IF_ERROR(
            load_stored_apply(stored, message->data + message->position, reader_left(message)));
    return load_stored_open(stored, loading->files, path);
}

static void set_manners(dcp_loading *loading, struct shard_reader *reader)
{
    shard_reader_set_io(reader, loading->options.io, loading->options.io_priority,
                        &loading->operation.progress);
    shard_reader_set_rank_count(reader, (size_t)dcp_group_size(loading->options.group));
}

/* Keeps the current directory open, so that all is read from it. */
static void hold_directory(dcp_loading *loading)
{
    struct load_stored *stored = &loading->planning.stored;
    if (!stored->reader || !loading->steps.reads_shards)
        return;
    shard_reader_take_directory(stored->reader, &stored->directory);
    shard_reader_open_directory(stored->reader);
}

/* Configures the reader by the load's options. */
static dcp_status prepare_reader(dcp_loading *loading, struct shard_reader *reader)
{
    const dcp_load_options *options = &loading->options;
    set_manners(loading, reader);
    if (options->memory_limit != 0) {
        const struct shard_read_how least = shard_read_how_least();
        shard_reader_set_how(reader, &least);
    }
    /* One rank reads, and its failure becomes that of all. */
    if (loading->coordinates && loading->steps.reads_shards &&
        options->verification != DCP_VERIFY_NONE)
        return storage_check_replicas(reader);
    return DCP_OK;
}

static dcp_status decode_at(dcp_loading *loading, const char *path, enum sending sending,
                            struct reader *message)
{
    struct load_stored *stored = &loading->planning.stored;
    dcp_status status = DCP_OK;
    if (sending == SEND_NOTHING || sending == SEND_DESCRIBED)
        stored->cache = NULL;
    if (sending != SEND_CHANGES)
        stored->since = stored->number;
    if (sending == SEND_CHANGES)
        status = decode_changes(loading, path, message);
    else if (sending == SEND_COMPACT)
        status = decode_compact(loading->files, path, message, stored);
    else if (sending == SEND_STORED)
        status = decode_stored(loading->files, path, message, stored);
    else if (sending == SEND_WHOLE)
        status = decode_raw(loading->files, path, message, stored);
    else if (sending == SEND_DESCRIBED)
        status = decode_described(loading->files, path, message, stored);
    else if (!stored->reader)
        status = storage_read_metadata(
            loading->files, (struct storage_location){.path = path, .take = loading->options.take},
            &stored->form, &stored->metadata, &stored->reader);
    if (status == DCP_OK)
        hold_directory(loading);
    return status == DCP_OK && stored->reader ? prepare_reader(loading, stored->reader) : status;
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

static dcp_status decode_for_me(dcp_loading *loading, const struct buffer *received)
{
    struct load_stored *stored = &loading->planning.stored;
    struct reader message;
    size_t length = 0;
    char *path;

    reader_init(&message, received->data, received->size);
    uint8_t sending = reader_u8(&message);
    stored->number = reader_u64(&message);
    stored->by_changes = sending == SEND_CHANGES;
    if (message.failed || sending > SEND_STORED)
        return cut_short();
    RETURN_IF_ERROR(options_compare_load(&loading->options, &message));
    uint64_t number = reader_u64(&message), mask = reader_u64(&message);
    const char *text = reader_text(&message, &length);
    if (message.failed)
        return cut_short();
    RETURN_IF_ERROR(compare_path(loading, text, length));
    RETURN_IF_ERROR(copy_path(text, length, &path));
    dcp_status status = choose_alike(loading, path, number, mask);
    if (status == DCP_OK)
        status = decode_at(loading, path, (enum sending)sending, &message);
    memory_release(path);
    return status;
}

dcp_status load_open(dcp_loading *loading, dcp_status status)
{
    const dcp_load_options *options = &loading->options;
    struct dcp_collective call = {"sharing the metadata", options->timeout_seconds};
    struct buffer message, received;

    buffer_init(&message, 0);
    buffer_init(&received, 0);
    if (loading->coordinates && status == DCP_OK)
        status = read_for_all(loading, &message);
    status = group_broadcast(options->group, &call, options->coordinator, status, message.data,
                             message.size, &received);
    buffer_free(&message);
    if (status == DCP_OK)
        status = decode_for_me(loading, &received);
    buffer_free(&received);
    return status;
}

static dcp_status decode_whole(dcp_loading *loading, const struct buffer *received)
{
    struct load_stored *stored = &loading->planning.stored;
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
    if (status == DCP_OK) {
        hold_directory(loading);
        set_manners(loading, stored->reader);
    }
    return status;
}

dcp_status load_open_whole(dcp_loading *loading)
{
    const dcp_load_options *options = &loading->options;
    const struct load_stored *stored = &loading->planning.stored;
    struct dcp_collective call = {"sharing the whole metadata", options->timeout_seconds};
    struct buffer message, received;
    dcp_status status = DCP_OK;

    buffer_init(&message, 0);
    buffer_init(&received, 0);
    if (loading->coordinates) {
        const char *path = loading->path ? loading->path : "";
        buffer_append_text(&message, path, strlen(path));
        buffer_append(&message, stored->raw.data, stored->raw.size);
        status = buffer_status(&message);
    }
    status = group_broadcast(options->group, &call, options->coordinator, status, message.data,
                             message.size, &received);
    buffer_free(&message);
    if (status == DCP_OK)
        status = decode_whole(loading, &received);
    buffer_free(&received);
    return status;
}
