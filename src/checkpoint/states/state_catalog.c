/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/states/state_catalog.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "device/device_copy.h"
#include "format/streams/item.h"
#include "state/copy.h"
#include "state/device_memory.h"

static size_t count_pieces(const dcp_state *node)
{
    if (node->kind != DCP_KIND_TENSOR)
        return 1;
    size_t count = 0;
    const struct state_tensor *tensor = node->as.tensor;
    for (size_t c = 0; c < tensor->chunk_count; c++)
        count += box_volume((struct box){tensor->ndim, tensor->chunks[c].offsets,
                                         tensor->chunks[c].sizes}) > 0;
    return count;
}

static dcp_status add_chunks(struct state_catalog *catalog, const struct flat_entry *from,
                             struct metadata_entry *entry)
{
    const struct state_tensor *tensor = from->node->as.tensor;
    for (size_t c = 0; c < tensor->chunk_count; c++) {
        const struct state_chunk *chunk = &tensor->chunks[c];
        struct box box = {tensor->ndim, chunk->offsets, chunk->sizes};
        uint64_t bytes;
        if (box_volume(box) == 0)
            continue;
        if (!chunk->data)
            return dcp_error_set(DCP_ERR_ARGUMENT, "%s: a chunk has no memory", from->name);
        if (!shape_bytes(tensor->ndim, chunk->sizes, tensor->dtype, &bytes))
            return dcp_error_set(DCP_ERR_ARGUMENT, "%s: its size overflows", from->name);
        entry->pieces[entry->piece_count++] = (struct metadata_piece){.offsets = chunk->offsets,
                                                                      .sizes = chunk->sizes,
                                                                      .offset = catalog->count,
                                                                      .length = bytes};
        catalog->sources[catalog->count++] = (struct catalog_source){from->node, chunk, 0};
    }
    return DCP_OK;
}

/* Objects without streams count as one byte. */
static dcp_status add_object(struct state_catalog *catalog, const struct flat_entry *from,
                             bool streams, struct metadata_entry *entry)
{
    size_t start = catalog->streams.size;
    dcp_status status = streams ? item_encode_stream(from->node, &catalog->streams) : DCP_OK;
    if (status != DCP_OK)
        return error_prefix(status, "%s", from->name);
    entry->pieces[entry->piece_count++] = (struct metadata_piece){
        .offset = catalog->count, .length = streams ? catalog->streams.size - start : 1};
    catalog->sources[catalog->count++] = (struct catalog_source){from->node, NULL, start};
    return DCP_OK;
}

static dcp_status add_entry(struct state_catalog *catalog, const struct flat_entry *from,
                            bool streams)
{
    struct metadata *metadata = &catalog->metadata;
    struct metadata_entry *entry = &metadata->entries[metadata->count++];
    size_t pieces = count_pieces(from->node);
    *entry = (struct metadata_entry){
        .name = from->name, .path = from->path, .path_length = from->path_length};
    entry->pieces = arena_allocate_array(&metadata->arena, pieces, sizeof *entry->pieces);
    if (!entry->pieces)
        return error_no_memory(pieces * sizeof *entry->pieces, "a catalog");
    if (from->node->kind != DCP_KIND_TENSOR)
        return add_object(catalog, from, streams, entry);
    const struct state_tensor *tensor = from->node->as.tensor;
    entry->is_tensor = true;
    entry->requires_grad = tensor->requires_grad;
    entry->dtype = tensor->dtype;
    entry->ndim = tensor->ndim;
    entry->global_shape = tensor->global_shape;
    return add_chunks(catalog, from, entry);
}

dcp_status state_catalog_make(const struct flat_state *flat, int rank, bool streams,
                              struct state_catalog *catalog)
{
    char name[24];
    size_t pieces = 0;
    struct metadata *metadata = &catalog->metadata;
    *catalog = (struct state_catalog){0};
    metadata_init(metadata);
    buffer_init(&catalog->streams, 0);
    for (size_t i = 0; i < flat->count; i++)
        pieces += flat->entries[i].left_out ? 0 : count_pieces(flat->entries[i].node);
    int length = snprintf(name, sizeof name, "%d", rank);
    catalog->sources = memory_allocate_array(pieces, sizeof *catalog->sources);
    metadata->entries =
        arena_allocate_array(&metadata->arena, flat->count, sizeof *metadata->entries);
    metadata->files = arena_allocate_array(&metadata->arena, 1, sizeof *metadata->files);
    char *file = arena_copy_text(&metadata->arena, name, (size_t)length);
    if (!catalog->sources || !metadata->entries || !metadata->files || !file)
        return error_no_memory(pieces * sizeof *catalog->sources, "a catalog");
    metadata->files[0] = file;
    metadata->file_count = 1;
    metadata->has_paths = true;
    for (size_t i = 0; i < flat->count; i++)
        if (!flat->entries[i].left_out)
            RETURN_IF_ERROR(add_entry(catalog, &flat->entries[i], streams));
    RETURN_IF_ERROR(buffer_status(&catalog->streams));
    return metadata_index(metadata);
}

void state_catalog_free(struct state_catalog *catalog)
{
    memory_release(catalog->sources);
    buffer_free(&catalog->streams);
    metadata_free(&catalog->metadata);
    *catalog = (struct state_catalog){0};
}

int state_catalog_owner(const struct metadata *metadata, uint32_t file)
{
    long rank = strtol(metadata->files[file], NULL, 10);
    return rank >= 0 && rank <= INT_MAX ? (int)rank : -1;
}

dcp_status state_catalog_read(const struct catalog_source *source, struct box box, void *elements)
{
    const struct state_tensor *tensor = source->node->as.tensor;
    const struct state_chunk *chunk = source->chunk;
    size_t element = dcp_dtype_size(tensor->dtype);
    int64_t strides[DCP_MAX_DIMS], way = 0;
    for (int32_t d = 0; d < tensor->ndim; d++)
        way += (box.offsets[d] - chunk->offsets[d]) * chunk->strides[d];
    const unsigned char *from = (const unsigned char *)chunk->data + way * (int64_t)element;
    shape_strides(tensor->ndim, box.sizes, strides);
    if (!device_is_host(&chunk->device))
        return device_copy_to_host(&chunk->device, tensor->ndim, box.sizes, element, from,
                                   chunk->strides, elements, strides);
    copy_strided(tensor->ndim, box.sizes, element, from, chunk->strides, elements, strides);
    return DCP_OK;
}
