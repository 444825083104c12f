/* SPDX-License-Identifier: BSD-3-Clause */
/* A directory of safetensors files as a checkpoint. Tensors of the same name in several files are
 * chunks of one tensor, whose shape is the end of the farthest chunk in each dimension. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"
#include "format/safetensors/safetensors_header.h"
#include "state/box.h"

/* Makes room in an array of the arena. It is full when its count is zero or a power of two, so that
 * no capacity is stored. */
static dcp_status make_room(struct arena *arena, size_t count, size_t size, void **items)
{
    if ((count & (count - 1)) != 0)
        return DCP_OK;
    size_t capacity = count == 0 ? 1 : count * 2;
    void *grown = arena_allocate_array(arena, capacity, size);
    if (grown == NULL)
        return error_no_memory(capacity * size, "a checkpoint's contents");
    if (count != 0)
        memcpy(grown, *items, count * size);
    *items = grown;
    return DCP_OK;
}

static dcp_status add_file(struct metadata *metadata, const char *file_name)
{
    void *files = metadata->files;
    RETURN_IF_ERROR(
        make_room(&metadata->arena, metadata->file_count, sizeof *metadata->files, &files));
    metadata->files = files;
    const char *name = arena_copy_text(&metadata->arena, file_name, strlen(file_name));
    if (name == NULL)
        return error_no_memory(strlen(file_name), "a file name");
    metadata->files[metadata->file_count++] = name;
    return DCP_OK;
}

static dcp_status add_entry(struct metadata *metadata, const struct safetensors_tensor *tensor)
{
    struct arena *arena = &metadata->arena;
    void *entries = metadata->entries;
    RETURN_IF_ERROR(make_room(arena, metadata->count, sizeof *metadata->entries, &entries));
    metadata->entries = entries;
    size_t length = strlen(tensor->name);
    dcp_path_part *path = arena_allocate(arena, sizeof *path);
    const char *name = arena_copy_text(arena, tensor->name, length);
    if (path == NULL || name == NULL)
        return error_no_memory(length, "a name");
    *path = (dcp_path_part){.key = name};
    uint64_t index = metadata->count;
    bool existing;
    RETURN_IF_ERROR(name_table_add(&metadata->by_name, name, length, &index, &existing));
    metadata->entries[metadata->count++] = (struct metadata_entry){.name = name,
                                                                   .path = path,
                                                                   .path_length = 1,
                                                                   .is_tensor = true,
                                                                   .dtype = tensor->dtype,
                                                                   .ndim = tensor->ndim};
    return DCP_OK;
}

/* Finds the entry of the tensor's name, or makes it. */
static dcp_status find_entry(struct metadata *metadata, const struct safetensors_tensor *tensor,
                             const char *file_name, struct metadata_entry **entry)
{
    uint64_t index;
    if (!name_table_find(&metadata->by_name, tensor->name, strlen(tensor->name), &index)) {
        index = metadata->count;
        RETURN_IF_ERROR(add_entry(metadata, tensor));
    }
    *entry = &metadata->entries[index];
    if ((*entry)->dtype != tensor->dtype)
        return dcp_error_set(DCP_ERR_DTYPE, "'%s' is %s in %s, %s in %s", tensor->name,
                             dcp_dtype_name((*entry)->dtype),
                             metadata->files[(*entry)->pieces->file], dcp_dtype_name(tensor->dtype),
                             file_name);
    if ((*entry)->ndim != tensor->ndim)
        return dcp_error_set(DCP_ERR_SHAPE, "'%s' has %d dimensions in %s, %d in %s", tensor->name,
                             (int)(*entry)->ndim, metadata->files[(*entry)->pieces->file],
                             (int)tensor->ndim, file_name);
    return DCP_OK;
}

static dcp_status make_piece(struct arena *arena, const struct safetensors_tensor *tensor,
                             uint32_t file, struct metadata_piece *piece)
{
    size_t bytes = (size_t)tensor->ndim * sizeof(int64_t);
    int64_t *offsets = arena_copy(arena, tensor->offsets, bytes);
    int64_t *sizes = arena_copy(arena, tensor->shape, bytes);
    int64_t *strides = arena_allocate(arena, bytes);
    struct tensor_view *view = arena_allocate(arena, sizeof *view);
    if (offsets == NULL || sizes == NULL || strides == NULL || view == NULL)
        return error_no_memory(3 * bytes + sizeof *view, "a tensor's description");
    shape_strides(tensor->ndim, sizes, strides);
    uint64_t length = tensor->end - tensor->begin;
    *view = (struct tensor_view){.dtype = tensor->dtype,
                                 .ndim = tensor->ndim,
                                 .sizes = sizes,
                                 .strides = strides,
                                 .data_offset = tensor->begin,
                                 .data_length = length,
                                 .storage_bytes = length};
    *piece = (struct metadata_piece){.offsets = offsets,
                                     .sizes = sizes,
                                     .file = file,
                                     .encoding = PIECE_RAW,
                                     .offset = tensor->begin,
                                     .length = length,
                                     .view = view};
    return DCP_OK;
}

static dcp_status add_tensor(struct metadata *metadata, const struct safetensors_tensor *tensor,
                             const char *file_name)
{
    struct metadata_entry *entry;
    RETURN_IF_ERROR(find_entry(metadata, tensor, file_name, &entry));
    void *pieces = entry->pieces;
    RETURN_IF_ERROR(
        make_room(&metadata->arena, entry->piece_count, sizeof *entry->pieces, &pieces));
    entry->pieces = pieces;
    RETURN_IF_ERROR(make_piece(&metadata->arena, tensor, (uint32_t)(metadata->file_count - 1),
                               &entry->pieces[entry->piece_count]));
    entry->piece_count++;
    return DCP_OK;
}

dcp_status safetensors_add(struct byte_source source, const char *file_name,
                           struct metadata *metadata)
{
    struct safetensors_header header;
    dcp_status status = safetensors_header_read(source, file_name, &header);
    if (status == DCP_OK)
        status = add_file(metadata, file_name);
    for (size_t i = 0; i < header.count && status == DCP_OK; i++)
        status = add_tensor(metadata, &header.tensors[i], file_name);
    safetensors_header_free(&header);
    return status;
}

/* Sets the error for a name in two files whose chunks overlap. */
static dcp_status overlap_error(const struct metadata *metadata, const struct metadata_entry *entry)
{
    struct box *boxes = memory_allocate_array(entry->piece_count, sizeof *boxes);
    size_t first = 0, second = 0;
    bool found = false;
    char one[256], other[256];
    if (boxes == NULL)
        return error_no_memory(entry->piece_count * sizeof *boxes, "boxes");
    for (size_t i = 0; i < entry->piece_count; i++)
        boxes[i] = (struct box){entry->ndim, entry->pieces[i].offsets, entry->pieces[i].sizes};
    dcp_status status = box_find_overlap(boxes, entry->piece_count, &found, &first, &second);
    if (status == DCP_OK) /* tensors without elements or dimensions always overlap */
        status = dcp_error_set(DCP_ERR_OVERLAP,
                               "'%s' is in two files, as %s in %s and as %s in %s, which overlap",
                               entry->name, box_format(boxes[first], one, sizeof one),
                               metadata->files[entry->pieces[first].file],
                               box_format(boxes[found ? second : 1], other, sizeof other),
                               metadata->files[entry->pieces[found ? second : 1].file]);
    memory_release(boxes);
    return status;
}

static dcp_status finish_entry(struct metadata *metadata, struct metadata_entry *entry)
{
    int64_t shape[DCP_MAX_DIMS] = {0};
    for (size_t i = 0; i < entry->piece_count; i++) {
        const struct metadata_piece *piece = &entry->pieces[i];
        for (int32_t d = 0; d < entry->ndim; d++) {
            int64_t end;
            if (!checked_add_i64(piece->offsets[d], piece->sizes[d], &end))
                return dcp_error_set(DCP_ERR_FORMAT,
                                     "chunk %zu of '%s' ends beyond 2^63 - 1: offset %" PRId64
                                     ", size %" PRId64,
                                     i, entry->name, piece->offsets[d], piece->sizes[d]);
            if (end > shape[d])
                shape[d] = end;
        }
    }
    uint64_t bytes;
    char text[256];
    if (!shape_bytes(entry->ndim, shape, entry->dtype, &bytes))
        return dcp_error_set(DCP_ERR_FORMAT, "'%s' has the shape %s, which exceeds 2^63 bytes",
                             entry->name, shape_format(entry->ndim, shape, text, sizeof text));
    entry->global_shape = arena_copy(&metadata->arena, shape, (size_t)entry->ndim * sizeof *shape);
    if (entry->global_shape == NULL)
        return error_no_memory((size_t)entry->ndim * sizeof *shape, "a shape");
    dcp_status status = metadata_check_entry(entry);
    return status == DCP_ERR_OVERLAP ? overlap_error(metadata, entry) : status;
}

dcp_status safetensors_finish(struct metadata *metadata)
{
    for (size_t i = 0; i < metadata->count; i++)
        RETURN_IF_ERROR(finish_entry(metadata, &metadata->entries[i]));
    return DCP_OK;
}
