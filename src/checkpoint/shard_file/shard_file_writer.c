/* SPDX-License-Identifier: BSD-3-Clause */
/* A shard writer: keeps what is added as the entries of a flat state. */
#include "checkpoint/shard_file/shard_file_writer.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/shard_file/shard_file_name.h"
#include "format/metadata/relative_path.h"
#include "format/streams/item.h"
#include "state/dtype.h"
#include "storage/commit/save_id.h"

_Static_assert(DCP_SAVE_ID_SIZE == SAVE_ID_SIZE, "the public size is that of a save id");

dcp_status dcp_save_id_make(char id[DCP_SAVE_ID_SIZE])
{
    if (!id)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the result for a save id is NULL");
    return save_id_make(id);
}

static dcp_status check_names(const char *directory, const char *file, const char *save_id)
{
    if (!directory || !*directory || !file)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a shard file needs a directory and a name");
    if (!shard_file_has_suffix(file) || strchr(file, '/') ||
        relative_path_check(file, strlen(file)) != DCP_OK)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "\"%.200s\" is not a name for a shard file: expected no slashes and "
                             "the ending \"" SHARD_FILE_SUFFIX "\"",
                             file);
    if (save_id && (strlen(save_id) >= SAVE_ID_SIZE || !utf8_is_valid(save_id, strlen(save_id))))
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save id is not UTF-8 of at most %d bytes",
                             SAVE_ID_SIZE - 1);
    return DCP_OK;
}

/* Converts the options to those of a save, so that they are checked alike. */
static dcp_status take_options(struct dcp_shard_writer *writer,
                               const dcp_shard_writer_options *given)
{
    const dcp_save_options options = {
        .skip_sync = given->skip_sync,
        .io = given->io,
        .compression = given->compression,
        .compression_level = given->compression_level,
        .compression_threads = given->compression_threads,
        .write_rate = given->write_rate,
        .io_threads = given->io_threads,
        .io_priority = given->io_priority,
        .timeout_seconds = given->timeout_seconds,
        .page_cache = given->page_cache,
    };
    RETURN_IF_ERROR(options_check_save(&options, &writer->options));
    return storage_take(&writer->storage, given->storage);
}

static dcp_status begin(struct dcp_shard_writer *writer, const char *directory, const char *file,
                        const dcp_shard_writer_options *given)
{
    const dcp_storage *chosen;
    RETURN_IF_ERROR(check_names(directory, file, given->save_id));
    RETURN_IF_ERROR(take_options(writer, given));
    RETURN_IF_ERROR(storage_choose(&writer->storage, directory, &chosen));
    writer->file = memory_copy_text(file);
    writer->object = dcp_state_new();
    if (!writer->file || !writer->object)
        return error_no_memory(strlen(file) + 1, "a shard writer");
    return save_session_single(&writer->session, chosen, directory, !writer->options.skip_sync,
                               given->save_id);
}

dcp_status dcp_shard_writer_open_sized(const char *directory, const char *file,
                                       const dcp_shard_writer_options *options, size_t options_size,
                                       dcp_shard_writer **writer)
{
    dcp_shard_writer_options given;
    if (!writer)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the result for a shard writer is NULL");
    *writer = NULL;
    RETURN_IF_ERROR(
        sized_read(&given, sizeof given, options, options_size, "dcp_shard_writer_options"));
    struct dcp_shard_writer *made = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "a shard writer");
    buffer_init(&made->local.streams, 0);
    arena_init(&made->local.flat.arena, 0);
    dcp_status status = begin(made, directory, file, &given);
    if (status == DCP_OK)
        *writer = made;
    else
        dcp_shard_writer_free(made);
    return status;
}

/* ---- adding ---- */

static dcp_status check_add(const dcp_shard_writer *writer, const dcp_shard_name *name,
                            const void *what)
{
    if (!writer || !name || !name->name || !what)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the writer, the name or the item to add is NULL");
    if (writer->stage != SHARD_WRITER_OPEN)
        return dcp_error_set(DCP_ERR_STATE, "\"%.200s\": %s was already sealed or abandoned",
                             name->name, writer->file);
    if (!utf8_is_valid(name->name, strlen(name->name)))
        return dcp_error_set(DCP_ERR_ARGUMENT, "the name of an item is not UTF-8");
    if ((name->path == NULL) != (name->path_length == 0))
        return dcp_error_set(DCP_ERR_ARGUMENT, "\"%.200s\": its path has no parts", name->name);
    for (size_t i = 0; i < name->path_length; i++) {
        const dcp_path_part *part = &name->path[i];
        if (part->key ? !utf8_is_valid(part->key, strlen(part->key)) : part->position < 0)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "\"%.200s\": part %zu of its path is neither UTF-8 nor a position",
                                 name->name, i);
    }
    return DCP_OK;
}

/* Room for one more entry. */
static dcp_status reserve_entry(dcp_shard_writer *writer)
{
    struct save_local *local = &writer->local;
    if (local->flat.count < writer->capacity)
        return DCP_OK;
    size_t capacity = writer->capacity ? writer->capacity * 2 : 16;
    struct flat_entry *entries =
        memory_reallocate_array(local->flat.entries, capacity, sizeof *entries);
    local->flat.entries = entries ? entries : local->flat.entries;
    uint64_t *offsets = memory_reallocate_array(local->stream_offsets, capacity, sizeof *offsets);
    local->stream_offsets = offsets ? offsets : local->stream_offsets;
    uint64_t *lengths = memory_reallocate_array(local->stream_lengths, capacity, sizeof *lengths);
    local->stream_lengths = lengths ? lengths : local->stream_lengths;
    if (!entries || !offsets || !lengths)
        return error_no_memory(capacity * sizeof *entries, "the items of a shard file");
    writer->capacity = capacity;
    return DCP_OK;
}

/* Copies name and path into the next entry, which is not counted yet. */
static dcp_status describe_entry(dcp_shard_writer *writer, const dcp_shard_name *name)
{
    struct flat_state *flat = &writer->local.flat;
    RETURN_IF_ERROR(reserve_entry(writer));
    struct flat_entry *entry = &flat->entries[flat->count];
    size_t length = name->path ? name->path_length : 1;
    dcp_path_part *path = arena_allocate_array(&flat->arena, length, sizeof *path);
    entry->name = arena_copy_text(&flat->arena, name->name, strlen(name->name));
    if (!path || !entry->name)
        return error_no_memory(length * sizeof *path, "the name of an item");
    path[0] = (dcp_path_part){.key = entry->name};
    for (size_t i = 0; name->path && i < length; i++) {
        const char *key = name->path[i].key;
        path[i] = (dcp_path_part){.position = name->path[i].position};
        if (key)
            path[i].key = arena_copy_text(&flat->arena, key, strlen(key));
        if (key && !path[i].key)
            return error_no_memory(strlen(key) + 1, "the path of an item");
    }
    entry->path = path;
    entry->path_length = length;
    entry->left_out = false;
    writer->local.stream_offsets[flat->count] = writer->local.stream_lengths[flat->count] = 0;
    return DCP_OK;
}

dcp_status shard_writer_own(struct dcp_shard_writer *writer, dcp_state *tree)
{
    if (writer->tree_count == writer->tree_capacity) {
        size_t capacity = writer->tree_capacity ? writer->tree_capacity * 2 : 16;
        dcp_state **trees = memory_reallocate_array(writer->trees, capacity, sizeof *trees);
        if (!trees) {
            dcp_state_free(tree);
            return error_no_memory(capacity * sizeof *trees, "the items of a shard file");
        }
        writer->trees = trees;
        writer->tree_capacity = capacity;
    }
    writer->trees[writer->tree_count++] = tree;
    return DCP_OK;
}

static dcp_status add_tensor_node(dcp_shard_writer *writer, const dcp_shard_name *name,
                                  dcp_state *node)
{
    RETURN_IF_ERROR(check_add(writer, name, node));
    RETURN_IF_ERROR(describe_entry(writer, name));
    struct flat_state *flat = &writer->local.flat;
    struct flat_state added = {.entries = &flat->entries[flat->count], .count = 1};
    if (!dtype_is_savable(node->as.tensor->dtype))
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "\"%s\": dtype %s cannot be saved", name->name,
                             dcp_dtype_name(node->as.tensor->dtype));
    if (node->as.tensor->chunk_count != 1)
        return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\": expected one chunk, found %zu", name->name,
                             node->as.tensor->chunk_count);
    added.entries->node = node;
    RETURN_IF_ERROR(save_local_check_tensors(&added));
    flat->count++;
    return DCP_OK;
}

dcp_status dcp_shard_writer_add_tensor_sized(dcp_shard_writer *writer, const dcp_shard_name *name,
                                             const dcp_tensor *tensor, size_t tensor_size)
{
    RETURN_IF_ERROR(check_add(writer, name, tensor));
    dcp_state *root = dcp_state_new();
    if (!root)
        return error_no_memory(sizeof *root, "the description of a tensor");
    RETURN_IF_ERROR(shard_writer_own(writer, root));
    dcp_state *node = dcp_state_tensor_sized(root, name->name, tensor, tensor_size);
    dcp_status status = node ? add_tensor_node(writer, name, node) : dcp_state_status(root);
    if (status != DCP_OK)
        dcp_state_free(writer->trees[--writer->tree_count]);
    return status;
}

/* Makes an entry of the new bytes of the streams; drops them after a failure. */
static dcp_status end_object(dcp_shard_writer *writer, size_t offset, dcp_status status)
{
    struct save_local *local = &writer->local;
    if (status == DCP_OK)
        status = buffer_status(&local->streams);
    if (status != DCP_OK) {
        local->streams.size = offset;
        local->streams.status = DCP_OK;
        return error_prefix(status, "%s", local->flat.entries[local->flat.count].name);
    }
    local->flat.entries[local->flat.count].node = writer->object;
    local->stream_offsets[local->flat.count] = offset;
    local->stream_lengths[local->flat.count] = local->streams.size - offset;
    local->flat.count++;
    return DCP_OK;
}

dcp_status dcp_shard_writer_add_object(dcp_shard_writer *writer, const dcp_shard_name *name,
                                       const dcp_state *object)
{
    RETURN_IF_ERROR(check_add(writer, name, object));
    RETURN_IF_ERROR(dcp_state_status(object));
    RETURN_IF_ERROR(describe_entry(writer, name));
    size_t offset = writer->local.streams.size;
    return end_object(writer, offset, item_encode_stream(object, &writer->local.streams));
}

dcp_status dcp_shard_writer_add_stream(dcp_shard_writer *writer, const dcp_shard_name *name,
                                       const void *bytes, size_t size)
{
    RETURN_IF_ERROR(check_add(writer, name, bytes));
    if (size == 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\": its stream has no bytes", name->name);
    RETURN_IF_ERROR(describe_entry(writer, name));
    size_t offset = writer->local.streams.size;
    buffer_append(&writer->local.streams, bytes, size);
    return end_object(writer, offset, DCP_OK);
}

dcp_status shard_writer_add_node(struct dcp_shard_writer *writer, const dcp_shard_name *name,
                                 dcp_state *node)
{
    const void *bytes;
    size_t size;
    if (node->kind == DCP_KIND_TENSOR)
        return add_tensor_node(writer, name, node);
    RETURN_IF_ERROR(dcp_state_as_bytes(node, &bytes, &size));
    return dcp_shard_writer_add_stream(writer, name, bytes, size);
}

/* ---- looking, and the end ---- */

size_t dcp_shard_writer_count(const dcp_shard_writer *writer)
{
    return writer ? writer->local.flat.count : 0;
}

const char *dcp_shard_writer_save_id(const dcp_shard_writer *writer)
{
    return writer ? writer->session.save_id : "";
}

uint64_t dcp_shard_writer_file_size(const dcp_shard_writer *writer)
{
    return writer ? writer->file_size : 0;
}

dcp_status dcp_shard_writer_location_sized(const dcp_shard_writer *writer, size_t index,
                                           dcp_storage_location *location, size_t location_size)
{
    if (!writer || !location)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the writer or the result is NULL");
    if (writer->stage != SHARD_WRITER_SEALED)
        return dcp_error_set(DCP_ERR_STATE,
                             "%s: the places of items are known only after the file is sealed",
                             writer->file);
    if (index >= writer->local.flat.count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s: there is no item %zu: the file has %zu items",
                             writer->file, index, writer->local.flat.count);
    sized_write(location, location_size, &writer->locations[index], sizeof *writer->locations);
    return DCP_OK;
}

void dcp_shard_writer_abandon(dcp_shard_writer *writer)
{
    struct saved_error error;
    if (!writer || writer->stage == SHARD_WRITER_ENDED)
        return;
    error_save(&error);
    if (writer->stage == SHARD_WRITER_SEALED)
        storage_directory_remove(&writer->session.directory, writer->file);
    save_session_abandon(&writer->session);
    writer->stage = SHARD_WRITER_ENDED;
    error_restore(&error);
}

void dcp_shard_writer_free(dcp_shard_writer *writer)
{
    if (!writer)
        return;
    for (size_t i = 0; i < writer->tree_count; i++)
        dcp_state_free(writer->trees[i]);
    memory_release(writer->trees);
    dcp_state_free(writer->object);
    save_local_free(&writer->local);
    save_session_free(&writer->session);
    memory_release(writer->locations);
    memory_release(writer->file);
    memory_release(writer);
}
