/* SPDX-License-Identifier: BSD-3-Clause */
/* Training checkpoints as metadata: finding one, its names, files and objects. */
#include "convert/source_description.h"

#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "state/training_form.h"

/* ---- files ---- */

/* The name of a chunk's file below the path of the whole: the file that was opened (name NULL, or
 * its last part), or one in the directory that was. */
static dcp_status name_file(const struct description *made, size_t number, const char *name,
                            struct buffer *out)
{
    const char *opened = made->parts->files.files[number].path + strlen(made->source.path);
    const char *slash = strrchr(opened, '/');
    bool itself = !name || (slash && strcmp(slash + 1, name) == 0);
    while (*opened == '/')
        opened++;
    buffer_append(out, opened, strlen(opened));
    if (!itself)
        buffer_append_format(out, "%s%s", *opened ? "/" : "", name);
    return buffer_status(out);
}

static dcp_status add_file(struct description *made, const struct buffer *name, uint32_t *file)
{
    struct metadata *metadata = made->metadata;
    uint64_t index;
    bool existing;
    if (name_table_find(&made->file_names, (const char *)name->data, name->size, &index)) {
        *file = (uint32_t)index;
        return DCP_OK;
    }
    if (metadata->file_count == made->file_capacity) {
        size_t capacity = made->file_capacity == 0 ? 16 : made->file_capacity * 2;
        const char **grown = arena_allocate_array(&metadata->arena, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "names of files");
        if (metadata->file_count > 0)
            memcpy(grown, metadata->files, metadata->file_count * sizeof *grown);
        metadata->files = grown;
        made->file_capacity = capacity;
    }
    const char *kept = arena_copy_text(&metadata->arena, (const char *)name->data, name->size);
    if (!kept)
        return error_no_memory(name->size, "the name of a file");
    index = metadata->file_count;
    RETURN_IF_ERROR(name_table_add(&made->file_names, kept, name->size, &index, &existing));
    metadata->files[metadata->file_count++] = kept;
    *file = (uint32_t)index;
    return DCP_OK;
}

dcp_status description_file(struct description *made, size_t number, const char *name,
                            uint32_t *file)
{
    struct buffer path;
    buffer_init(&path, 0);
    dcp_status status = name_file(made, number, name, &path);
    if (status == DCP_OK)
        status = add_file(made, &path, file);
    buffer_free(&path);
    return status;
}

/* ---- objects ---- */

static dcp_status append_bytes(void *context, const void *bytes, size_t size)
{
    buffer_append(context, bytes, size);
    return buffer_status(context);
}

/* The file that an object is in, for messages; a text may be of none. */
static dcp_status find_object_file(struct description *made, const struct source_tensor *object,
                                   uint32_t *file)
{
    dcp_checkpoint *checkpoint;
    dcp_stored_chunk chunk;
    if (object->text)
        return description_file(made, object->file, NULL, file);
    RETURN_IF_ERROR(source_files_take(&made->parts->files, object->file, &checkpoint));
    dcp_status status = dcp_checkpoint_chunk(checkpoint, object->entry, 0, &chunk);
    if (status == DCP_OK)
        status = description_file(made, object->file, chunk.file, file);
    source_files_give(&made->parts->files, object->file);
    return status;
}

static dcp_status describe_object(struct description *made, size_t index,
                                  struct metadata_entry *entry)
{
    const struct source_tensor *object = &made->parts->tensors[index];
    const struct convert_item item = {.name = object->name, .entry = index};
    struct arena *arena = &made->metadata->arena;
    struct buffer stream;
    struct metadata_piece *piece = arena_allocate(arena, sizeof *piece);
    if (!piece)
        return error_no_memory(sizeof *piece, object->name);
    *piece = (struct metadata_piece){.encoding = PIECE_HELD};
    RETURN_IF_ERROR(find_object_file(made, object, &piece->file));
    buffer_init(&stream, 0);
    dcp_status status = convert_read_stream(&made->source, &item, append_bytes, &stream);
    if (status == DCP_OK) {
        piece->length = stream.size;
        piece->object = arena_copy(arena, stream.data, stream.size);
        if (!piece->object)
            status = error_no_memory(stream.size, object->name);
    }
    buffer_free(&stream);
    entry->pieces = piece;
    entry->piece_count = 1;
    return status;
}

/* ---- the whole ---- */

static dcp_status name_entry(struct arena *arena, const struct source_tensor *tensor,
                             struct metadata_entry *entry)
{
    size_t length = tensor->path_length;
    dcp_path_part *path = arena_copy(arena, tensor->path, length * sizeof *path);
    entry->name = arena_copy_text(arena, tensor->name, strlen(tensor->name));
    if (!path || !entry->name)
        return error_no_memory(strlen(tensor->name), "a name");
    for (size_t i = 0; i < length; i++)
        if (path[i].key) {
            path[i].key = arena_copy_text(arena, path[i].key, strlen(path[i].key));
            if (!path[i].key)
                return error_no_memory(strlen(tensor->name), "a name");
        }
    entry->path = path;
    entry->path_length = length;
    return DCP_OK;
}

static dcp_status describe_all(struct description *made)
{
    struct metadata *metadata = made->metadata;
    struct source_parts *parts = made->parts;
    metadata->entries =
        arena_allocate_array(&metadata->arena, parts->count, sizeof *metadata->entries);
    if (!metadata->entries)
        return error_no_memory(parts->count * sizeof *metadata->entries, "entries");
    for (size_t i = 0; i < parts->count; i++) {
        struct metadata_entry *entry = &metadata->entries[i];
        *entry = (struct metadata_entry){0};
        RETURN_IF_ERROR(name_entry(&metadata->arena, &parts->tensors[i], entry));
        RETURN_IF_ERROR(parts->tensors[i].is_tensor
                            ? description_tensor(made, &parts->tensors[i], entry)
                            : describe_object(made, i, entry));
        metadata->count++;
    }
    metadata->has_paths = true;
    return metadata_index(metadata);
}

/* Set while this thread looks at a training checkpoint, whose parts are of other forms: without it,
 * a directory that leads to itself would be looked at without end. */
static _Thread_local bool looking;

static void begin(struct convert_source *source, const char *path,
                  const dcp_convert_options *options)
{
    looking = true;
    *source = (struct convert_source){.path = path, .options = options};
    arena_init(&source->arena, 0);
}

static void end(struct convert_source *source)
{
    convert_source_close(source);
    looking = false;
}

dcp_status training_form_find(const char *path, bool is_dcp, bool *found)
{
    const dcp_convert_options options = {0};
    struct convert_source source;
    *found = false;
    if (looking)
        return DCP_OK;
    begin(&source, path, &options);
    dcp_status status = training_recognize(&source, found);
    if (is_dcp)
        *found = *found && source.form == DCP_FORM_MEGATRON;
    end(&source);
    return status;
}

dcp_status training_form_describe(const char *path, dcp_take take, struct metadata *metadata)
{
    const dcp_convert_options options = {.take = take};
    struct description made = {.metadata = metadata};
    bool found = false;
    metadata_init(metadata);
    RETURN_IF_ERROR(training_check_take(take));
    name_table_init(&made.file_names);
    name_table_init(&made.stream_lists);
    begin(&made.source, path, &options);
    dcp_status status = training_recognize(&made.source, &found);
    if (status == DCP_OK && !found)
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no training checkpoint is there", path);
    if (status == DCP_OK)
        status = training_open(&made.source);
    made.parts = made.source.parts;
    if (status == DCP_OK)
        status = describe_all(&made);
    if (status == DCP_OK)
        log_line(DCP_LOG_INFO, "%s: %s", path, made.source.text);
    else
        metadata_free(metadata);
    memory_release(made.pieces);
    name_table_free(&made.file_names);
    name_table_free(&made.stream_lists);
    end(&made.source);
    return status;
}
