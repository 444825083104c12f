/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors of a training checkpoint as views of the storages in its files: what reads a checkpoint
 * then reads them, too. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/source_description.h"
#include "state/copy.h"

dcp_status description_refuse(const struct description *made, const struct source_tensor *tensor,
                              size_t file, const char *why)
{
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "%s: cannot be read in place, as %s %s; dcp convert takes it",
                         tensor->name, made->parts->files.files[file].path, why);
}

/* ---- pieces of a tensor ---- */

dcp_status description_piece(struct description *made, const struct source_tensor *tensor,
                             struct box box, struct metadata_piece piece)
{
    struct arena *arena = &made->metadata->arena;
    size_t size = (size_t)box.ndim * sizeof(int64_t);
    if (made->piece_count == made->piece_capacity) {
        size_t capacity = made->piece_capacity == 0 ? 16 : made->piece_capacity * 2;
        struct metadata_piece *grown =
            memory_reallocate_array(made->pieces, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, tensor->name);
        made->pieces = grown;
        made->piece_capacity = capacity;
    }
    piece.offsets = arena_copy(arena, box.offsets, size);
    piece.sizes = arena_copy(arena, box.sizes, size);
    if (!piece.offsets || !piece.sizes)
        return error_no_memory(2 * size, tensor->name);
    made->pieces[made->piece_count++] = piece;
    return DCP_OK;
}

/* A box whose first element is that number of the storage; strides: in it. */
static dcp_status add_view(struct description *made, const struct source_tensor *tensor,
                           const struct holder *holder, struct box box, int64_t first,
                           const int64_t *strides)
{
    struct arena *arena = &made->metadata->arena;
    const dcp_stored_chunk *chunk = &holder->chunk;
    struct tensor_view *view = arena_allocate(arena, sizeof *view);
    if (!view)
        return error_no_memory(sizeof *view, tensor->name);
    *view = (struct tensor_view){.dtype = holder->entry.dtype,
                                 .ndim = box.ndim,
                                 .storage_offset = first,
                                 .deflated = chunk->deflated,
                                 .has_crc = chunk->has_crc32,
                                 .crc = chunk->crc32,
                                 .data_offset = chunk->offset,
                                 .data_length = chunk->length,
                                 .storage_bytes =
                                     chunk->strides ? chunk->storage_bytes : chunk->length};
    view->strides = arena_copy(arena, strides, (size_t)box.ndim * sizeof *strides);
    if (!view->strides)
        return error_no_memory((size_t)box.ndim * sizeof *strides, tensor->name);
    RETURN_IF_ERROR(description_piece(made, tensor, box,
                                      (struct metadata_piece){.file = holder->file,
                                                              .encoding = PIECE_VIEW,
                                                              .offset = chunk->offset,
                                                              .length = chunk->length,
                                                              .view = view}));
    view->sizes = made->pieces[made->piece_count - 1].sizes;
    return DCP_OK;
}

/* Strides of the tensor that holds a part, in its storage. */
static void holder_strides(const struct holder *holder, int64_t *strides)
{
    if (holder->chunk.strides)
        memcpy(strides, holder->chunk.strides, (size_t)holder->entry.ndim * sizeof *strides);
    else
        shape_strides(holder->entry.ndim, holder->entry.global_shape, strides);
}

/* Consecutive elements of a storage, from element `first` of the holder on, as the box. */
static dcp_status add_consecutive(struct description *made, const struct source_tensor *tensor,
                                  const struct holder *holder, struct box box, int64_t first)
{
    int64_t strides[DCP_MAX_DIMS];
    shape_strides(box.ndim, box.sizes, strides);
    return add_view(made, tensor, holder, box, holder->chunk.storage_offset + first, strides);
}

/* A range of the tensor's elements, as the boxes that it consists of. */
static dcp_status add_range(struct description *made, const struct source_tensor *tensor,
                            const struct holder *holder, int64_t from, int64_t count, int64_t first)
{
    int64_t offsets[DCP_MAX_DIMS], sizes[DCP_MAX_DIMS];
    for (int64_t at = from; at < from + count;) {
        int64_t taken = tensor->ndim == 0 ? 1
                                          : shape_next_box(tensor->ndim, tensor->shape, at,
                                                           from + count, offsets, sizes);
        RETURN_IF_ERROR(add_consecutive(
            made, tensor, holder, (struct box){tensor->ndim, offsets, sizes}, first + at - from));
        at += taken;
    }
    return DCP_OK;
}

static bool is_whole(const struct source_tensor *tensor, const struct source_part *part,
                     const struct holder *holder)
{
    int64_t elements;
    return !part->offsets && part->times == 1 && part->first == 0 &&
           holder->entry.ndim == tensor->ndim &&
           shape_volume(tensor->ndim, tensor->shape, &elements) && part->count == elements &&
           memcmp(holder->entry.global_shape, tensor->shape,
                  (size_t)tensor->ndim * sizeof *tensor->shape) == 0;
}

/* Whether a part is inside of the tensor that holds it. */
static bool is_inside(const struct source_part *part, const struct holder *holder)
{
    const int64_t *shape = holder->entry.global_shape;
    int64_t elements;
    if (!part->entry_offsets)
        return shape_volume(holder->entry.ndim, shape, &elements) && part->first >= 0 &&
               part->first <= elements && part->count <= elements - part->first;
    for (int32_t d = 0; d < holder->entry.ndim; d++)
        if (part->entry_offsets[d] < 0 || part->entry_offsets[d] > shape[d] ||
            part->sizes[d] > shape[d] - part->entry_offsets[d])
            return false;
    return true;
}

static dcp_status check_inside(const struct description *made, const struct source_tensor *tensor,
                               const struct source_part *part, const struct holder *holder)
{
    return is_inside(part, holder)
               ? DCP_OK
               : dcp_error_set(DCP_ERR_SHAPE, "%s: its part in %s reaches beyond the tensor there",
                               tensor->name, made->parts->files.files[holder->number].path);
}

/* Elements of a tensor that lies in streams, in one or several chunks. */
static dcp_status add_streamed(struct description *made, const struct source_tensor *tensor,
                               const struct source_part *part, struct holder *holder, int64_t from)
{
    if (is_whole(tensor, part, holder))
        return description_streams(made, tensor, holder);
    if (part->entry_offsets)
        return description_refuse(made, tensor, holder->number, "has it as boxes in streams");
    RETURN_IF_ERROR(check_inside(made, tensor, part, holder));
    return description_stream_ranges(made, tensor, part, holder, from);
}

static dcp_status add_held(struct description *made, const struct source_tensor *tensor,
                           const struct source_part *part, const struct holder *holder,
                           int64_t from)
{
    int64_t strides[DCP_MAX_DIMS], first = holder->chunk.storage_offset;
    static const int64_t start[DCP_MAX_DIMS];
    const struct box whole = {tensor->ndim, start, tensor->shape};
    const struct box box = {tensor->ndim, part->offsets, part->sizes};
    holder_strides(holder, strides);
    if (is_whole(tensor, part, holder))
        return add_view(made, tensor, holder, whole, first, strides);
    if (part->entry_offsets && holder->entry.ndim != tensor->ndim)
        return description_refuse(made, tensor, holder->number, "has another number of dimensions");
    RETURN_IF_ERROR(check_inside(made, tensor, part, holder));
    if (part->entry_offsets) {
        for (int32_t d = 0; d < tensor->ndim; d++)
            first += part->entry_offsets[d] * strides[d];
        return add_view(made, tensor, holder, box, first, strides);
    }
    if (!copy_is_dense(holder->entry.ndim, holder->entry.global_shape, strides))
        return description_refuse(made, tensor, holder->number, "has it strided");
    if (part->offsets)
        return add_consecutive(made, tensor, holder, box, part->first);
    return add_range(made, tensor, holder, from, part->count, part->first);
}

/* The elements of a part in one of its files; from: the first of them in the tensor. */
static dcp_status add_part(struct description *made, const struct source_tensor *tensor,
                           const struct source_part *part, size_t number, int64_t from,
                           dcp_dtype *dtype)
{
    struct holder holder = {.number = part->file + number, .index = part->entry};
    struct source_files *files = &made->parts->files;
    RETURN_IF_ERROR(source_files_take(files, holder.number, &holder.checkpoint));
    dcp_status status = dcp_checkpoint_entry(holder.checkpoint, part->entry, &holder.entry);
    if (status == DCP_OK)
        status = dcp_checkpoint_chunk(holder.checkpoint, part->entry, 0, &holder.chunk);
    if (status == DCP_OK)
        status = description_file(made, holder.number, holder.chunk.file, &holder.file);
    if (status == DCP_OK && *dtype != DCP_DTYPE_NONE && *dtype != holder.entry.dtype)
        status = description_refuse(made, tensor, holder.number,
                                    "has it in another dtype than other files");
    *dtype = holder.entry.dtype;
    if (status == DCP_OK && holder.chunk.altered)
        status = description_refuse(made, tensor, holder.number,
                                    "has it big-endian, conjugated or negated");
    else if (status == DCP_OK && holder.chunk.is_stream)
        status = add_streamed(made, tensor, part, &holder, from);
    else if (status == DCP_OK && holder.entry.chunk_count != 1)
        status = description_refuse(made, tensor, holder.number, "is divided otherwise");
    else if (status == DCP_OK)
        status = add_held(made, tensor, part, &holder, from);
    source_files_give(files, holder.number);
    return status;
}

dcp_status description_tensor(struct description *made, const struct source_tensor *tensor,
                              struct metadata_entry *entry)
{
    int64_t from = 0;
    dcp_dtype dtype = DCP_DTYPE_NONE;
    made->piece_count = 0;
    for (size_t i = 0; i < tensor->part_count; i++)
        for (size_t k = 0; k < tensor->parts[i].times; k++) {
            RETURN_IF_ERROR(add_part(made, tensor, &tensor->parts[i], k, from, &dtype));
            from += tensor->parts[i].count;
        }
    struct metadata_piece *pieces =
        arena_copy(&made->metadata->arena, made->pieces, made->piece_count * sizeof *made->pieces);
    const int64_t *shape = arena_copy(&made->metadata->arena, tensor->shape,
                                      (size_t)tensor->ndim * sizeof *tensor->shape);
    if (!pieces || !shape)
        return error_no_memory(made->piece_count * sizeof *pieces, tensor->name);
    entry->is_tensor = true;
    entry->dtype = dtype != DCP_DTYPE_NONE ? dtype : tensor->dtype;
    entry->ndim = tensor->ndim;
    entry->global_shape = shape;
    entry->pieces = pieces;
    entry->piece_count = made->piece_count;
    return metadata_check_entry(entry);
}
