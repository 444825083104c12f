/* SPDX-License-Identifier: BSD-3-Clause */
#include "walk.h"

void walk_divide(struct walk *walk, int64_t most)
{
    const dcp_tensor *box = &walk->box;
    int64_t inner = (int64_t)walk->element_size, outer = 1;
    walk->split = 0;
    walk->rows = walk->parts = walk->count = walk->together = 1;
    walk->bytes = walk->element_size;
    if (box->ndim == 0)
        return;
    for (int32_t d = 0; d < box->ndim; d++)
        if (box->sizes[d] == 0)
            walk->count = 0;
    if (walk->count == 0)
        return;
    for (int32_t d = box->ndim - 1; d >= 0; d--) {
        walk->split = d;
        if (box->sizes[d] > most / inner || d == 0)
            break;
        inner *= box->sizes[d];
    }
    int64_t size = box->sizes[walk->split];
    walk->rows = most / inner < 1 ? 1 : most / inner;
    if (walk->rows > size)
        walk->rows = size;
    walk->parts = (size + walk->rows - 1) / walk->rows;
    for (int32_t d = 0; d < walk->split; d++)
        outer *= box->sizes[d];
    walk->count = outer * walk->parts;
    walk->bytes = (size_t)(walk->rows * inner);
}

void walk_whole(struct walk *walk, const dcp_entry *entry, dcp_dtype dtype, int64_t most)
{
    *walk = (struct walk){.element_size = dcp_dtype_size(dtype)};
    walk->box.dtype = dtype;
    walk->box.ndim = entry->ndim;
    walk->box.sharded = true;
    for (int32_t d = 0; d < entry->ndim; d++) {
        walk->box.global_shape[d] = entry->global_shape[d];
        walk->box.sizes[d] = entry->global_shape[d];
    }
    walk_divide(walk, most);
}

/* Whether the chunk holds whole rows of the outermost dimension. */
static bool has_rows(const dcp_stored_chunk *chunk, const dcp_tensor *box)
{
    for (int32_t d = 1; d < box->ndim; d++)
        if (chunk->sizes[d] != box->global_shape[d])
            return false;
    return true;
}

void walk_group(struct walk *walk, const dcp_checkpoint *checkpoint, size_t entry)
{
    dcp_entry found;
    dcp_stored_chunk chunk;
    bool compressed = false, rows = true;
    if (walk->count <= 1 || dcp_checkpoint_entry(checkpoint, entry, &found) != DCP_OK)
        return;
    for (size_t i = 0; i < found.chunk_count; i++) {
        if (dcp_checkpoint_chunk(checkpoint, entry, i, &chunk) != DCP_OK)
            return;
        compressed = compressed || chunk.compressed || chunk.deflated;
        rows = rows && has_rows(&chunk, &walk->box);
    }
    int64_t groups = rows && found.chunk_count > 0 ? (int64_t)found.chunk_count : 1;
    int64_t together = compressed ? (walk->count + groups - 1) / groups : 1;
    walk->together = together > walk->together ? together : walk->together;
}

int64_t walk_run(const struct walk *walk, int64_t index)
{
    int64_t left = walk->count - index, run = walk->together - index % walk->together;
    return run < left ? run : left;
}

void walk_block(const struct walk *walk, int64_t index, dcp_tensor *block)
{
    *block = walk->box;
    if (block->ndim == 0)
        return;
    int64_t row = index % walk->parts * walk->rows, left = block->sizes[walk->split] - row;
    block->offsets[walk->split] += row;
    block->sizes[walk->split] = left < walk->rows ? left : walk->rows;
    index /= walk->parts;
    for (int32_t d = walk->split - 1; d >= 0; d--) {
        block->offsets[d] += index % walk->box.sizes[d];
        block->sizes[d] = 1;
        index /= walk->box.sizes[d];
    }
}

int64_t walk_elements(const dcp_tensor *block)
{
    int64_t elements = 1;
    for (int32_t d = 0; d < block->ndim; d++)
        elements *= block->sizes[d];
    return elements;
}

void walk_position(const dcp_tensor *block, int64_t index, int64_t *position)
{
    for (int32_t d = block->ndim - 1; d >= 0; d--) {
        position[d] = block->offsets[d] + index % block->sizes[d];
        index /= block->sizes[d];
    }
}
