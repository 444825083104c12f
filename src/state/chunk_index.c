/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/chunk_index.h"

#include <stdlib.h>
#include <string.h>

enum { RUN_FIRST = 32, FANOUT = 8, RUNS_MAX = 32, LAYERS_MAX = 12 };

/* Chunks in the order of their offsets. Layers are numbered from the chunks upwards: a node of
 * layer 0 bounds FANOUT chunks, one of the next FANOUT such nodes, until one bounds all. */
struct chunk_run {
    bool filled;
    uint32_t *order; /* RUN_FIRST << number of the run; NULL: never needed */
    int64_t *bounds; /* per node, by layer: ndim lowest positions, ndim highest (exclusive) */
};

struct chunk_index {
    struct chunk_run runs[RUNS_MAX];
};

static size_t nodes_of(size_t below)
{
    return (below + FANOUT - 1) / FANOUT;
}

static size_t run_length(size_t run)
{
    return (size_t)RUN_FIRST << run;
}

/* Where each layer's nodes begin; returns the number of layers. */
static size_t list_layers(size_t length, size_t starts[LAYERS_MAX + 1], size_t counts[LAYERS_MAX])
{
    size_t layer = 0;
    starts[0] = 0;
    do {
        counts[layer] = length = nodes_of(length);
        starts[layer + 1] = starts[layer] + length;
        layer++;
    } while (length > 1);
    return layer;
}

/* The run that the chunks without one go to, together with those of all runs before it. */
static size_t next_run(const struct chunk_index *index)
{
    size_t run = 0;
    while (index->runs[run].filled)
        run++;
    return run;
}

dcp_status chunk_index_reserve(struct arena *arena, struct state_tensor *tensor)
{
    if ((tensor->chunk_count + 1) % RUN_FIRST != 0)
        return DCP_OK;
    if (tensor->chunk_count >= UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "more than 2^32 chunks of one tensor");
    if (tensor->index == NULL) {
        tensor->index = arena_allocate(arena, sizeof *tensor->index);
        if (tensor->index == NULL)
            return error_no_memory(sizeof *tensor->index, "an index of chunks");
        memset(tensor->index, 0, sizeof *tensor->index);
    }
    size_t number = next_run(tensor->index);
    struct chunk_run *run = &tensor->index->runs[number];
    if (run->order != NULL)
        return DCP_OK;
    size_t starts[LAYERS_MAX + 1] = {0}, counts[LAYERS_MAX], length = run_length(number);
    size_t layers = list_layers(length, starts, counts), nodes = starts[layers];
    run->bounds =
        arena_allocate_array(arena, nodes, 2 * (size_t)tensor->ndim * sizeof *run->bounds);
    run->order = run->bounds ? arena_allocate_array(arena, length, sizeof *run->order) : NULL;
    return run->order ? DCP_OK : error_no_memory(length * sizeof *run->order, "an index of chunks");
}

static int compare_offsets(const void *left, const void *right, void *context)
{
    const struct state_tensor *tensor = context;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        int64_t first = tensor->chunks[a].offsets[i], second = tensor->chunks[b].offsets[i];
        if (first != second)
            return first < second ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

/* Chunks are mostly added in order. */
static void sort_run(struct state_tensor *tensor, uint32_t *order, size_t length)
{
    size_t i = 1;
    while (i < length && compare_offsets(&order[i - 1], &order[i], tensor) < 0)
        i++;
    if (i < length)
        qsort_r(order, length, sizeof *order, compare_offsets, tensor);
}

static void bound(int32_t ndim, int64_t *bounds, bool first, const int64_t *low,
                  const int64_t *high)
{
    for (int32_t i = 0; i < ndim; i++) {
        if (first || low[i] < bounds[i])
            bounds[i] = low[i];
        if (first || high[i] > bounds[ndim + i])
            bounds[ndim + i] = high[i];
    }
}

static void bound_run(const struct state_tensor *tensor, struct chunk_run *run, size_t length)
{
    size_t starts[LAYERS_MAX + 1], counts[LAYERS_MAX];
    size_t layers = list_layers(length, starts, counts);
    int32_t ndim = tensor->ndim;
    size_t width = 2 * (size_t)ndim;
    for (size_t i = 0; i < length; i++) {
        const struct state_chunk *chunk = &tensor->chunks[run->order[i]];
        int64_t ends[DCP_MAX_DIMS];
        for (int32_t dim = 0; dim < ndim; dim++)
            ends[dim] = chunk->offsets[dim] + chunk->sizes[dim];
        bound(ndim, run->bounds + i / FANOUT * width, i % FANOUT == 0, chunk->offsets, ends);
    }
    for (size_t layer = 1; layer < layers; layer++) {
        for (size_t i = 0; i < counts[layer - 1]; i++) {
            const int64_t *below = run->bounds + (starts[layer - 1] + i) * width;
            bound(ndim, run->bounds + (starts[layer] + i / FANOUT) * width, i % FANOUT == 0, below,
                  below + ndim);
        }
    }
}

void chunk_index_added(struct state_tensor *tensor)
{
    if (tensor->chunk_count % RUN_FIRST != 0)
        return;
    size_t number = next_run(tensor->index), length = run_length(number);
    struct chunk_run *run = &tensor->index->runs[number];
    size_t filled = 0;
    for (size_t i = number; i-- > 0;) {
        memcpy(run->order + filled, tensor->index->runs[i].order,
               run_length(i) * sizeof *run->order);
        filled += run_length(i);
        tensor->index->runs[i].filled = false;
    }
    for (size_t first = tensor->chunk_count - length; filled < length; filled++)
        run->order[filled] = (uint32_t)(first + filled);
    sort_run(tensor, run->order, length);
    bound_run(tensor, run, length);
    run->filled = true;
}

static bool bounds_touch(struct box box, const int64_t *bounds)
{
    for (int32_t i = 0; i < box.ndim; i++)
        if (box.offsets[i] >= bounds[box.ndim + i] || box.offsets[i] + box.sizes[i] <= bounds[i])
            return false;
    return true;
}

static bool chunk_touches(const struct state_tensor *tensor, size_t chunk, struct box box)
{
    struct box_storage common;
    struct box other = {tensor->ndim, tensor->chunks[chunk].offsets, tensor->chunks[chunk].sizes};
    return box_intersect(box, other, &common);
}

static bool find_in_node(const struct state_tensor *tensor, const uint32_t *order, struct box box,
                         size_t *chunk)
{
    for (size_t i = 0; i < FANOUT; i++) {
        *chunk = order[i];
        if (chunk_touches(tensor, *chunk, box))
            return true;
    }
    return false;
}

/* Visits the nodes depth first, without a stack: the children of node n are numbered from FANOUT *
 * n on. */
static bool find_in_run(const struct state_tensor *tensor, const struct chunk_run *run,
                        size_t length, struct box box, size_t *chunk)
{
    size_t starts[LAYERS_MAX + 1], counts[LAYERS_MAX];
    size_t top = list_layers(length, starts, counts) - 1;
    size_t layer = top, node = 0, width = 2 * (size_t)tensor->ndim;
    while (node < counts[layer]) {
        if (bounds_touch(box, run->bounds + (starts[layer] + node) * width)) {
            if (layer-- != 0) {
                node *= FANOUT;
                continue;
            }
            layer = 0;
            if (find_in_node(tensor, run->order + node * FANOUT, box, chunk))
                return true;
        }
        node++;
        while (layer < top && (node % FANOUT == 0 || node == counts[layer])) {
            node = (node - 1) / FANOUT + 1;
            layer++;
        }
    }
    return false;
}

bool chunk_index_find(const struct state_tensor *tensor, struct box box, size_t *chunk)
{
    if (box_volume(box) == 0)
        return false;
    for (size_t i = tensor->chunk_count / RUN_FIRST * RUN_FIRST; i < tensor->chunk_count; i++) {
        *chunk = i;
        if (chunk_touches(tensor, i, box))
            return true;
    }
    for (size_t i = 0; tensor->index != NULL && i < RUNS_MAX; i++)
        if (tensor->index->runs[i].filled &&
            find_in_run(tensor, &tensor->index->runs[i], run_length(i), box, chunk))
            return true;
    return false;
}
