/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/source_parts.h"

#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/metadata.h"

void source_parts_init(struct source_parts *parts, struct arena *arena)
{
    *parts = (struct source_parts){.arena = arena};
    name_table_init(&parts->names);
    name_table_init(&parts->boxes);
    source_files_init(&parts->files, arena);
}

void source_parts_free(struct source_parts *parts)
{
    source_files_free(&parts->files);
    name_table_free(&parts->names);
    name_table_free(&parts->boxes);
    memory_release(parts->tensors);
    memory_release(parts->parts);
    *parts = (struct source_parts){0};
}

static dcp_status make_name(struct source_parts *parts, const dcp_path_part *path, size_t length,
                            struct source_tensor *tensor)
{
    dcp_path_part *copy = arena_allocate_array(parts->arena, length, sizeof *copy);
    struct buffer name;
    dcp_status status = copy ? DCP_OK : error_no_memory(length * sizeof *copy, "a name");
    buffer_init(&name, 0);
    for (size_t i = 0; i < length && status == DCP_OK; i++) {
        if (i > 0)
            buffer_append(&name, ".", 1);
        copy[i] = path[i];
        if (!path[i].key) {
            buffer_append_format(&name, "%" PRId64, path[i].position);
            continue;
        }
        copy[i].key = arena_copy_text(parts->arena, path[i].key, strlen(path[i].key));
        if (!copy[i].key)
            status = error_no_memory(strlen(path[i].key), "a name");
        buffer_append(&name, path[i].key, strlen(path[i].key));
    }
    if (status == DCP_OK)
        status = buffer_status(&name);
    tensor->path = copy;
    tensor->path_length = length;
    if (status == DCP_OK) {
        tensor->name = arena_copy_text(parts->arena, (const char *)name.data, name.size);
        if (!tensor->name)
            status = error_no_memory(name.size, "a name");
    }
    buffer_free(&name);
    return status;
}

static dcp_status add_named(struct source_parts *parts, const dcp_path_part *path,
                            size_t path_length, struct source_tensor **added)
{
    struct source_tensor made = {0};
    uint64_t index = parts->count;
    bool existing;
    RETURN_IF_ERROR(make_name(parts, path, path_length, &made));
    RETURN_IF_ERROR(name_table_add(&parts->names, made.name, strlen(made.name), &index, &existing));
    if (existing)
        return dcp_error_set(DCP_ERR_DUPLICATE, "\"%s\" is in the source twice", made.name);
    if (parts->count == parts->capacity) {
        size_t capacity = parts->capacity == 0 ? 256 : parts->capacity * 2;
        struct source_tensor *grown =
            memory_reallocate_array(parts->tensors, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "tensors of a source");
        parts->tensors = grown;
        parts->capacity = capacity;
    }
    parts->tensors[parts->count] = made;
    *added = &parts->tensors[parts->count++];
    return DCP_OK;
}

dcp_status source_parts_tensor(struct source_parts *parts, const dcp_path_part *path,
                               size_t path_length, dcp_dtype dtype, int32_t ndim,
                               const int64_t *shape)
{
    struct source_tensor *tensor;
    uint64_t bytes;
    RETURN_IF_ERROR(add_named(parts, path, path_length, &tensor));
    if (ndim < 0 || ndim > DCP_MAX_DIMS || !shape_bytes(ndim, shape, dtype, &bytes))
        return dcp_error_set(DCP_ERR_SHAPE, "%s: its shape exceeds 2^63 bytes or %d dimensions",
                             tensor->name, DCP_MAX_DIMS);
    int64_t *copy = arena_copy(parts->arena, shape, (size_t)ndim * sizeof *shape);
    if (!copy)
        return error_no_memory((size_t)ndim * sizeof *shape, tensor->name);
    name_table_free(&parts->boxes);
    name_table_init(&parts->boxes);
    tensor->is_tensor = true;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    tensor->shape = copy;
    parts->part_count = 0;
    return DCP_OK;
}

/* Whether a part is the same range as the last one, in the next file. */
static bool repeats(const struct source_part *last, const struct source_part *part)
{
    return !last->offsets && !part->offsets && part->file == last->file + last->times &&
           part->entry == last->entry && part->first == last->first && part->count == last->count;
}

static dcp_status append_part(struct source_parts *parts, struct source_part part)
{
    if (parts->part_count > 0 && repeats(&parts->parts[parts->part_count - 1], &part)) {
        parts->parts[parts->part_count - 1].times++;
        return DCP_OK;
    }
    if (parts->part_count == parts->part_capacity) {
        size_t capacity = parts->part_capacity == 0 ? 16 : parts->part_capacity * 2;
        struct source_part *grown = memory_reallocate_array(parts->parts, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "parts of a tensor");
        parts->parts = grown;
        parts->part_capacity = capacity;
    }
    parts->parts[parts->part_count++] = part;
    return DCP_OK;
}

dcp_status source_parts_add(struct source_parts *parts, size_t file, size_t entry, int64_t first,
                            int64_t count)
{
    return count == 0
               ? DCP_OK
               : append_part(
                     parts,
                     (struct source_part){
                         .file = file, .entry = entry, .times = 1, .count = count, .first = first});
}

dcp_status source_parts_add_box(struct source_parts *parts, size_t file, size_t entry,
                                struct box box, const int64_t *entry_offsets, int64_t first)
{
    size_t size = (size_t)box.ndim * sizeof *box.offsets;
    const int64_t *offsets = arena_copy(parts->arena, box.offsets, size);
    const int64_t *sizes = arena_copy(parts->arena, box.sizes, size);
    const int64_t *inside = entry_offsets ? arena_copy(parts->arena, entry_offsets, size) : NULL;
    if (!offsets || !sizes || (entry_offsets && !inside))
        return error_no_memory(3 * size, "a part of a tensor");
    return append_part(parts, (struct source_part){.file = file,
                                                   .entry = entry,
                                                   .times = 1,
                                                   .offsets = offsets,
                                                   .sizes = sizes,
                                                   .count = box_volume(box),
                                                   .first = first,
                                                   .entry_offsets = inside});
}

/* Boxes inside of the tensor, disjoint, and all of it. */
static dcp_status check_boxes(const struct source_parts *parts, const struct source_tensor *tensor)
{
    struct metadata_piece *pieces = memory_allocate_zeroed(parts->part_count, sizeof *pieces);
    if (!pieces)
        return error_no_memory(parts->part_count * sizeof *pieces, tensor->name);
    for (size_t i = 0; i < parts->part_count; i++) {
        pieces[i].offsets = parts->parts[i].offsets;
        pieces[i].sizes = parts->parts[i].sizes;
    }
    const struct metadata_entry entry = {.name = tensor->name,
                                         .is_tensor = true,
                                         .dtype = tensor->dtype,
                                         .ndim = tensor->ndim,
                                         .global_shape = tensor->shape,
                                         .pieces = pieces,
                                         .piece_count = parts->part_count};
    dcp_status status = metadata_check_entry(&entry);
    memory_release(pieces);
    return status;
}

static dcp_status check_sum(const struct source_parts *parts, const struct source_tensor *tensor)
{
    int64_t elements, found = 0;
    char text[128];
    shape_volume(tensor->ndim, tensor->shape, &elements);
    bool fits = true;
    for (size_t i = 0; i < parts->part_count && fits; i++) {
        int64_t more = 0;
        fits = checked_multiply_i64(parts->parts[i].count, (int64_t)parts->parts[i].times, &more) &&
               checked_add_i64(found, more, &found);
    }
    return fits && found == elements
               ? DCP_OK
               : dcp_error_set(DCP_ERR_FORMAT,
                               "%s: its parts have %" PRId64 " elements, its shape %s has %" PRId64,
                               tensor->name, found,
                               shape_format(tensor->ndim, tensor->shape, text, sizeof text),
                               elements);
}

dcp_status source_parts_end(struct source_parts *parts)
{
    struct source_tensor *tensor = &parts->tensors[parts->count - 1];
    bool boxes = parts->part_count > 0 && parts->parts[0].offsets;
    RETURN_IF_ERROR(boxes ? check_boxes(parts, tensor) : check_sum(parts, tensor));
    tensor->parts =
        arena_copy(parts->arena, parts->parts, parts->part_count * sizeof *parts->parts);
    tensor->part_count = parts->part_count;
    return tensor->parts ? DCP_OK
                         : error_no_memory(parts->part_count * sizeof *parts->parts, tensor->name);
}

dcp_status source_parts_text(struct source_parts *parts, const dcp_path_part *path,
                             size_t path_length, const char *text, size_t size, bool is_json)
{
    struct source_tensor *object;
    RETURN_IF_ERROR(add_named(parts, path, path_length, &object));
    object->text = text;
    object->text_size = size;
    object->is_json = is_json;
    return DCP_OK;
}

dcp_status source_parts_copy(struct source_parts *parts, const dcp_path_part *path,
                             size_t path_length, size_t file, size_t entry, dcp_dtype dtype)
{
    dcp_checkpoint *checkpoint;
    struct source_tensor *object;
    dcp_entry about;
    int64_t elements = 0;
    RETURN_IF_ERROR(source_files_take(&parts->files, file, &checkpoint));
    dcp_status status = dcp_checkpoint_entry(checkpoint, entry, &about);
    if (status == DCP_OK && about.is_tensor) {
        status = source_parts_tensor(parts, path, path_length,
                                     dtype != DCP_DTYPE_NONE ? dtype : about.dtype, about.ndim,
                                     about.global_shape);
        if (status == DCP_OK) {
            shape_volume(about.ndim, about.global_shape, &elements);
            status = source_parts_add(parts, file, entry, 0, elements);
        }
        if (status == DCP_OK)
            status = source_parts_end(parts);
    } else if (status == DCP_OK) {
        status = add_named(parts, path, path_length, &object);
        if (status == DCP_OK) {
            object->file = file;
            object->entry = entry;
        }
    }
    source_files_give(&parts->files, file);
    return status;
}
