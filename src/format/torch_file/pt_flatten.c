/* SPDX-License-Identifier: BSD-3-Clause */
/* The value in a .pt file as named entries, as flattening a state tree would name them. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/streams/tensor_pickle.h"
#include "format/torch_file/pt_file.h"

/* Containers nested deeper, and those that contain themselves, stay one object. */
enum { NESTING_MAX = 1000 };

/* Shared containers are visited once for each path to them; this limits the bytes of names and
 * visits. */
#define ALLOWANCE_BASE  (UINT64_C(64) << 20)
#define ALLOWANCE_TIMES 64

struct frame {
    const struct pickle_value *container;
    struct pickle_sequence parts;
    bool is_dict;
    uint32_t next;
    size_t name_length; /* of the container's own name */
};

struct flattening {
    const struct pt_file *file;
    struct metadata *metadata;
    size_t capacity; /* of entries, while they are not yet the metadata's */
    struct metadata_entry *entries;
    size_t count;
    struct pt_containers containers;
    struct frame *frames;
    dcp_path_part *path; /* path[n] leads to the current child of frame n */
    size_t depth;
    struct buffer name;
    uint64_t allowance;
};

static dcp_status charge(struct flattening *flattening, uint64_t bytes)
{
    if (bytes > flattening->allowance)
        return dcp_error_set(DCP_ERR_FORMAT, "dicts and lists are shared so often that their names "
                                             "would take far more memory than the file has bytes");
    flattening->allowance -= bytes;
    return DCP_OK;
}

static dcp_status add_entry(struct flattening *flattening, struct metadata_entry **entry)
{
    struct arena *arena = &flattening->metadata->arena;
    size_t name_length = flattening->name.size;
    /* A value that is not a container gives one entry, without a name. */
    size_t path_length = flattening->depth > 0 ? flattening->depth : 1;
    RETURN_IF_ERROR(charge(flattening, sizeof **entry + sizeof *(*entry)->pieces + name_length +
                                           path_length * sizeof(dcp_path_part)));
    if (flattening->count == flattening->capacity) {
        size_t capacity = flattening->capacity == 0 ? 64 : flattening->capacity * 2;
        struct metadata_entry *grown =
            memory_reallocate_array(flattening->entries, capacity, sizeof *grown);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *grown, "entries");
        flattening->entries = grown;
        flattening->capacity = capacity;
    }
    RETURN_IF_ERROR(buffer_status(&flattening->name));
    const char *name = arena_copy_text(arena, (const char *)flattening->name.data, name_length);
    dcp_path_part *path = arena_copy(arena, flattening->path, path_length * sizeof *path);
    struct metadata_piece *piece = arena_allocate(arena, sizeof *piece);
    if (name == NULL || path == NULL || piece == NULL)
        return error_no_memory(name_length + sizeof *piece, "an entry");
    *piece = (struct metadata_piece){.encoding = PIECE_VIEW};
    *entry = &flattening->entries[flattening->count++];
    **entry = (struct metadata_entry){
        .name = name, .path = path, .path_length = path_length, .pieces = piece, .piece_count = 1};
    return DCP_OK;
}

static dcp_status add_object(struct flattening *flattening, const struct pickle_value *value)
{
    struct metadata_entry *entry;
    RETURN_IF_ERROR(add_entry(flattening, &entry));
    entry->pieces->object = value;
    entry->pieces->offset = flattening->file->record_offset;
    entry->pieces->length = flattening->file->record->stored_size;
    return DCP_OK;
}

static dcp_status add_tensor(struct flattening *flattening, const struct pickle_value *value,
                             const struct pickle_value *placement)
{
    static const int64_t zeros[DCP_MAX_DIMS];
    struct arena *arena = &flattening->metadata->arena;
    struct tensor_pickle tensor;
    struct metadata_entry *entry;
    RETURN_IF_ERROR(add_entry(flattening, &entry));
    struct tensor_view *view = arena_allocate(arena, sizeof *view);
    if (view == NULL)
        return error_no_memory(sizeof *view, "a tensor's description");
    dcp_status status = tensor_pickle_parse(value, arena, &tensor);
    if (status == DCP_OK)
        status = tensor_pickle_view(&tensor, &flattening->file->archive, view);
    if (status == DCP_OK)
        status = tensor_pickle_check_expansion(view);
    if (status == DCP_OK)
        status = charge(flattening, sizeof *view + 16 * (uint64_t)view->ndim);
    if (status != DCP_OK)
        return error_prefix(status, "%s", entry->name);
    entry->is_tensor = true;
    entry->requires_grad = tensor.requires_grad;
    entry->dtype = view->dtype;
    entry->ndim = view->ndim;
    entry->global_shape = view->sizes;
    entry->pieces->offsets = zeros;
    entry->pieces->sizes = view->sizes;
    entry->pieces->offset = view->data_offset;
    entry->pieces->length = view->data_length;
    entry->pieces->view = view;
    entry->pieces->object = placement;
    return DCP_OK;
}

static bool is_open(const struct flattening *flattening, const struct pickle_value *container)
{
    for (size_t i = 0; i < flattening->depth; i++)
        if (flattening->frames[i].container == container)
            return true;
    return false;
}

static dcp_status visit(struct flattening *flattening, const struct pickle_value *value)
{
    const struct pickle_value *placement = NULL;
    bool entered;
    if (flattening->file->local_parts)
        value = pt_local_part(value, &placement);
    if (tensor_pickle_is_tensor(value))
        return add_tensor(flattening, value, placement);
    RETURN_IF_ERROR(pt_container_is_entered(&flattening->containers, value, &entered));
    if (!entered || flattening->depth == NESTING_MAX || is_open(flattening, value))
        return add_object(flattening, value);
    struct frame frame = {.container = value, .name_length = flattening->name.size};
    frame.parts = pt_container_parts(value, &frame.is_dict);
    flattening->frames[flattening->depth++] = frame;
    return charge(flattening, sizeof frame);
}

/* Takes the next part of the innermost container; its name and path become the current ones. */
static dcp_status next_part(struct flattening *flattening, const struct pickle_value **value)
{
    struct frame *frame = &flattening->frames[flattening->depth - 1];
    dcp_path_part *part = &flattening->path[flattening->depth - 1];
    flattening->name.size = frame->name_length;
    if (flattening->depth > 1)
        buffer_append(&flattening->name, ".", 1);
    if (!frame->is_dict) {
        *part = (dcp_path_part){.position = (int64_t)frame->next};
        buffer_append_format(&flattening->name, "%" PRId64, part->position);
        *value = frame->parts.items[frame->next++];
        return DCP_OK;
    }
    size_t begin = flattening->name.size;
    const struct pickle_value *key = frame->parts.items[frame->next];
    RETURN_IF_ERROR(pt_key_append(&flattening->name, key));
    size_t length = flattening->name.size - begin;
    RETURN_IF_ERROR(charge(flattening, length));
    const char *text = length > 0 ? (const char *)flattening->name.data + begin : "";
    *part = (dcp_path_part){.key = arena_copy_text(&flattening->metadata->arena, text, length)};
    frame->next += 2;
    *value = frame->parts.items[frame->next - 1];
    return part->key != NULL ? DCP_OK : error_no_memory(length, "a key");
}

static dcp_status run(struct flattening *flattening)
{
    while (flattening->depth > 0) {
        struct frame *frame = &flattening->frames[flattening->depth - 1];
        if (frame->next >= frame->parts.count) {
            flattening->depth--;
            continue;
        }
        const struct pickle_value *value;
        RETURN_IF_ERROR(next_part(flattening, &value));
        RETURN_IF_ERROR(charge(flattening, flattening->name.size - frame->name_length));
        RETURN_IF_ERROR(visit(flattening, value));
    }
    return DCP_OK;
}

/* Gives the metadata its entries and the one file. */
static dcp_status finish(struct flattening *flattening, const char *file_name)
{
    struct metadata *metadata = flattening->metadata;
    metadata->entries = arena_copy(&metadata->arena, flattening->entries,
                                   flattening->count * sizeof *flattening->entries);
    metadata->files = arena_allocate(&metadata->arena, sizeof *metadata->files);
    const char *name = arena_copy_text(&metadata->arena, file_name, strlen(file_name));
    if (metadata->entries == NULL || metadata->files == NULL || name == NULL)
        return error_no_memory(flattening->count * sizeof *flattening->entries, "entries");
    metadata->files[0] = name;
    metadata->file_count = 1;
    metadata->count = flattening->count;
    metadata->has_paths = true;
    return metadata_index(metadata);
}

dcp_status pt_flatten(const struct pt_file *file, const char *file_name, struct metadata *metadata)
{
    struct flattening flattening = {
        .file = file,
        .metadata = metadata,
        .allowance = ALLOWANCE_BASE + ALLOWANCE_TIMES * file->record->size,
    };
    dcp_status status = DCP_OK;
    flattening.containers.local_parts = file->local_parts;
    buffer_init(&flattening.name, 0);
    flattening.containers.marks = memory_allocate_zeroed(file->document.value_count, 1);
    flattening.frames = memory_allocate_array(NESTING_MAX, sizeof *flattening.frames);
    flattening.path = memory_allocate_array(NESTING_MAX, sizeof *flattening.path);
    if (flattening.containers.marks == NULL || flattening.frames == NULL ||
        flattening.path == NULL) {
        status = error_no_memory(file->document.value_count, "nested containers");
    } else {
        flattening.path[0] = (dcp_path_part){.key = ""};
        status = visit(&flattening, file->document.root);
    }
    if (status == DCP_OK)
        status = run(&flattening);
    if (status == DCP_OK)
        status = finish(&flattening, file_name);
    memory_release(flattening.containers.marks);
    memory_release(flattening.frames);
    memory_release(flattening.path);
    memory_release(flattening.entries);
    buffer_free(&flattening.name);
    return status;
}
