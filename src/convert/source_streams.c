/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors that are stored as streams, in chunks, and parts of them, such as flat shards of
 * optimizers: a part becomes ranges of the chunks that it lies in. No stream is opened for that. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "convert/source_description.h"

/* ---- where chunks lie ---- */

/* A chunk whose elements are consecutive in its tensor. */
struct stream_chunk {
    int64_t first, count; /* of the tensor's elements */
    int32_t ndim;
    const int64_t *sizes; /* in the metadata's arena */
    struct metadata_piece piece;
};

/* The chunks of a holder in the order of its elements, each of which is in one of them, as opening
 * the checkpoint has checked. They are looked for once for each part of
 * it, and there may be as many of these. */
struct stream_list {
    struct {
        uint64_t file, entry;
    } key;
    struct stream_chunk *chunks;
    size_t count;
};

static int compare_chunks(const void *one, const void *other)
{
    const struct stream_chunk *a = one, *b = other;
    return (a->first > b->first) - (a->first < b->first);
}

/* Whether the elements of a box, which is not empty, are consecutive in its tensor; *first: the
 * first of them. */
static bool is_consecutive(const dcp_entry *entry, struct box box, int64_t *first)
{
    bool inner = false;
    *first = 0;
    for (int32_t d = 0; d < box.ndim; d++) {
        *first = *first * entry->global_shape[d] + box.offsets[d];
        if (inner && box.sizes[d] != entry->global_shape[d])
            return false;
        inner = inner || box.sizes[d] > 1;
    }
    return true;
}

static dcp_status add_chunk(struct description *made, const struct source_tensor *tensor,
                            const struct holder *holder, size_t index, struct stream_list *list)
{
    dcp_stored_chunk stored;
    RETURN_IF_ERROR(dcp_checkpoint_chunk(holder->checkpoint, holder->index, index, &stored));
    const struct box box = {holder->entry.ndim, stored.offsets, stored.sizes};
    struct stream_chunk *chunk = &list->chunks[list->count];
    *chunk = (struct stream_chunk){.count = box_volume(box), .ndim = box.ndim};
    if (chunk->count == 0)
        return DCP_OK;
    if (!is_consecutive(&holder->entry, box, &chunk->first))
        return description_refuse(made, tensor, holder->number,
                                  "has it in chunks that are not consecutive elements");
    chunk->sizes =
        arena_copy(&made->metadata->arena, box.sizes, (size_t)box.ndim * sizeof *box.sizes);
    if (!chunk->sizes)
        return error_no_memory((size_t)box.ndim * sizeof *box.sizes, tensor->name);
    chunk->piece = (struct metadata_piece){.encoding = PIECE_RANGE,
                                           .zstd = stored.compressed,
                                           .offset = stored.offset,
                                           .length = stored.length};
    list->count++;
    return description_file(made, holder->number, stored.file, &chunk->piece.file);
}

static dcp_status make_list(struct description *made, const struct source_tensor *tensor,
                            const struct holder *holder, struct stream_list *list)
{
    size_t count = holder->entry.chunk_count;
    list->chunks = arena_allocate_array(&made->source.arena, count, sizeof *list->chunks);
    if (!list->chunks)
        return error_no_memory(count * sizeof *list->chunks, tensor->name);
    for (size_t i = 0; i < count; i++)
        RETURN_IF_ERROR(add_chunk(made, tensor, holder, i, list));
    if (list->count > 1)
        qsort(list->chunks, list->count, sizeof *list->chunks, compare_chunks);
    return DCP_OK;
}

static dcp_status find_list(struct description *made, const struct source_tensor *tensor,
                            const struct holder *holder, const struct stream_list **list)
{
    struct stream_list wanted = {.key = {holder->number, holder->index}}, *added;
    uint64_t place;
    bool existing;
    if (name_table_find(&made->stream_lists, (const char *)&wanted.key, sizeof wanted.key,
                        &place)) {
        *list = (const struct stream_list *)(uintptr_t)place;
        return DCP_OK;
    }
    *list = added = arena_copy(&made->source.arena, &wanted, sizeof wanted);
    if (!added)
        return error_no_memory(sizeof wanted, tensor->name);
    RETURN_IF_ERROR(make_list(made, tensor, holder, added));
    place = (uint64_t)(uintptr_t)added;
    return name_table_add(&made->stream_lists, (const char *)&added->key, sizeof added->key, &place,
                          &existing);
}

/* ---- pieces ---- */

/* sizes: of the stream's tensor, as long-lived as the metadata. */
static dcp_status make_range(struct description *made, const struct source_tensor *tensor,
                             int32_t ndim, const int64_t *sizes, int64_t first,
                             const struct stream_range **range)
{
    const struct stream_range filled = {.ndim = ndim, .sizes = sizes, .first = first};
    *range = arena_copy(&made->metadata->arena, &filled, sizeof filled);
    return *range ? DCP_OK : error_no_memory(sizeof filled, tensor->name);
}

/* Elements of a chunk, from its element `inside` on, as the elements `from` to `end` - 1 of a box
 * of the tensor. */
static dcp_status add_elements(struct description *made, const struct source_tensor *tensor,
                               const struct stream_chunk *chunk, struct box box, int64_t from,
                               int64_t end, int64_t inside)
{
    int64_t offsets[DCP_MAX_DIMS] = {0}, sizes[DCP_MAX_DIMS] = {0}, taken;
    for (int64_t at = from; at < end; at += taken) {
        struct metadata_piece piece = chunk->piece;
        taken = shape_next_box(box.ndim, box.sizes, at, end, offsets, sizes);
        for (int32_t d = 0; d < box.ndim; d++)
            offsets[d] += box.offsets[d];
        RETURN_IF_ERROR(
            make_range(made, tensor, chunk->ndim, chunk->sizes, inside + at - from, &piece.range));
        RETURN_IF_ERROR(
            description_piece(made, tensor, (struct box){box.ndim, offsets, sizes}, piece));
    }
    return DCP_OK;
}

/* The chunk that an element is in. */
static size_t find_chunk(const struct stream_list *list, int64_t element)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->chunks[middle].first <= element)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? low - 1 : 0;
}

dcp_status description_stream_ranges(struct description *made, const struct source_tensor *tensor,
                                     const struct source_part *part, const struct holder *holder,
                                     int64_t from)
{
    static const int64_t start[DCP_MAX_DIMS];
    const struct box box = {tensor->ndim, part->offsets ? part->offsets : start,
                            part->offsets ? part->sizes : tensor->shape};
    const struct stream_list *list;
    RETURN_IF_ERROR(find_list(made, tensor, holder, &list));
    int64_t at = part->first, end = part->first + part->count, next;
    int64_t way = (part->offsets ? 0 : from) - part->first; /* from the holder's elements */
    for (size_t i = find_chunk(list, at); i < list->count && at < end; i++, at = next) {
        const struct stream_chunk *chunk = &list->chunks[i];
        int64_t inside = at - chunk->first, left = chunk->count - inside;
        next = left < end - at ? at + left : end;
        RETURN_IF_ERROR(add_elements(made, tensor, chunk, box, at + way, next + way, inside));
    }
    return DCP_OK;
}

/* Under another name a chunk is a range of its stream: as a stream it would be held to the name
 * that the footer of its file has for it. */
static dcp_status rename_chunk(struct description *made, const struct source_tensor *tensor,
                               struct box box, struct metadata_piece *piece)
{
    size_t size = (size_t)box.ndim * sizeof *box.sizes;
    const int64_t *sizes = arena_copy(&made->metadata->arena, box.sizes, size);
    if (!sizes)
        return error_no_memory(size, tensor->name);
    piece->encoding = PIECE_RANGE;
    return make_range(made, tensor, box.ndim, sizes, 0, &piece->range);
}

dcp_status description_streams(struct description *made, const struct source_tensor *tensor,
                               const struct holder *holder)
{
    for (size_t i = 0; i < holder->entry.chunk_count; i++) {
        dcp_stored_chunk chunk;
        RETURN_IF_ERROR(dcp_checkpoint_chunk(holder->checkpoint, holder->index, i, &chunk));
        const struct box box = {tensor->ndim, chunk.offsets, chunk.sizes};
        struct metadata_piece piece = {.encoding = PIECE_STREAM,
                                       .zstd = chunk.compressed,
                                       .offset = chunk.offset,
                                       .length = chunk.length};
        RETURN_IF_ERROR(description_file(made, holder->number, chunk.file, &piece.file));
        if (strcmp(holder->entry.name, tensor->name) != 0)
            RETURN_IF_ERROR(rename_chunk(made, tensor, box, &piece));
        RETURN_IF_ERROR(description_piece(made, tensor, box, piece));
    }
    return DCP_OK;
}
