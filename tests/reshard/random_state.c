/* SPDX-License-Identifier: BSD-3-Clause */
#include "reshard/random_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/scratch.h"

/* ---- tensors ---- */

/* Most bytes of a tensor; a state has few of the larger ones. The last one is read by several
 * threads, and is rare. */
static const int64_t sizes[] = {64,      4 << 10,          96 << 10, (int64_t)1200 << 10,
                                9 << 20, (int64_t)40 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, RARE = 20 };
/* No tensor follows in a state that has so many bytes. */
#define MOST ((uint64_t)12 << 20)

static int64_t volume(int32_t ndim, const int64_t *extents)
{
    int64_t result = 1;
    for (int32_t d = 0; d < ndim; d++)
        result *= extents[d];
    return result;
}

uint64_t random_state_bytes(const struct random_state *state)
{
    uint64_t bytes = 0;
    for (int i = 0; i < state->count; i++)
        bytes += (uint64_t)volume(state->tensors[i].ndim, state->tensors[i].shape) *
                 dcp_dtype_size(state->tensors[i].dtype);
    return bytes;
}

static struct random_tensor make_tensor(int64_t most, uint64_t *seed)
{
    static const dcp_dtype dtypes[] = {DCP_U8, DCP_BF16, DCP_F32, DCP_I64, DCP_C64};
    struct random_tensor tensor = {.dtype = dtypes[scratch_below(seed, 5)],
                                   .ndim = (int32_t)scratch_below(seed, RANDOM_DIMS + 1)};
    int64_t left = most / (int64_t)dcp_dtype_size(tensor.dtype);
    left -= scratch_below(seed, left / 2 + 1);
    for (int32_t d = 0; d < tensor.ndim; d++) {
        int64_t share = 1 + scratch_below(seed, scratch_below(seed, 3) == 0 ? left : 300);
        tensor.shape[d] = d == tensor.ndim - 1 ? left : share < left ? share : left;
        left = left / tensor.shape[d] > 0 ? left / tensor.shape[d] : 1;
    }
    if (tensor.ndim > 0 && scratch_below(seed, 40) == 0)
        tensor.shape[scratch_below(seed, tensor.ndim)] = 0;
    return tensor;
}

static int64_t choose_size(bool many, uint64_t *seed)
{
    if (many)
        return scratch_below(seed, SIZES - 3);
    return scratch_below(seed, RARE) == 0 ? SIZES - 1 : scratch_below(seed, SIZES - 1);
}

void random_state_make(struct random_state *state, uint64_t *seed)
{
    bool many = scratch_below(seed, 4) == 0;
    int wanted = 1 + (int)scratch_below(seed, many ? RANDOM_TENSORS_MAX : 7);
    for (state->count = 0; state->count < wanted && random_state_bytes(state) < MOST;) {
        struct random_tensor *tensor = &state->tensors[state->count];
        *tensor = make_tensor(sizes[choose_size(many, seed)], seed);
        tensor->equal = state->count;
        if (state->count > 0 && scratch_below(seed, 10) == 0)
            *tensor = state->tensors[scratch_below(seed, state->count)];
        state->count++;
    }
}

/* ---- divisions ---- */

static struct random_box whole_of(const struct random_tensor *tensor)
{
    struct random_box box = {.offsets = {0}};
    memcpy(box.sizes, tensor->shape, sizeof box.sizes);
    return box;
}

static void add_chunk(struct random_chunks *chunks, int rank, struct random_box box)
{
    if (chunks->count < RANDOM_CHUNKS_MAX)
        chunks->chunks[chunks->count++] = (struct random_chunk){rank, box};
}

/* Cuts boxes in two until there are so many. */
static int cut_boxes(const struct random_tensor *tensor, int wanted, uint64_t *seed,
                     struct random_box *boxes)
{
    int count = 1;
    boxes[0] = whole_of(tensor);
    for (int tries = 0; count < wanted && tensor->ndim > 0 && tries < 40; tries++) {
        struct random_box *box = &boxes[scratch_below(seed, count)], rest = *box;
        int64_t d = scratch_below(seed, tensor->ndim);
        if (box->sizes[d] < 2)
            continue;
        int64_t cut = 1 + scratch_below(seed, box->sizes[d] - 1);
        box->sizes[d] = cut;
        rest.offsets[d] += cut;
        rest.sizes[d] -= cut;
        boxes[count++] = rest;
    }
    return count;
}

/* Each box to a rank, or to several. */
static void deal_boxes(struct random_chunks *chunks, const struct random_tensor *tensor, int ranks,
                       uint64_t *seed)
{
    struct random_box boxes[RANDOM_CHUNKS_MAX / 2];
    int wanted = 1 + (int)scratch_below(seed, RANDOM_CHUNKS_MAX / 2);
    int count = cut_boxes(tensor, wanted, seed, boxes);
    for (int i = 0; i < count; i++) {
        int rank = (int)scratch_below(seed, ranks);
        add_chunk(chunks, rank, boxes[i]);
        if (ranks > 1 && scratch_below(seed, 5) == 0)
            add_chunk(chunks, (rank + 1) % ranks, boxes[i]);
    }
}

/* Even or uneven parts of one dimension, each to a rank; some may be empty. */
static void deal_slices(struct random_chunks *chunks, const struct random_tensor *tensor,
                        int32_t dim, int ranks, uint64_t *seed)
{
    struct random_box box = whole_of(tensor);
    int64_t length = tensor->shape[dim], each = (length + ranks - 1) / ranks;
    bool even = scratch_below(seed, 2) == 0;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t left = length - box.offsets[dim];
        int64_t taken = even ? each : scratch_below(seed, 2 * each + 1);
        box.sizes[dim] = rank == ranks - 1 || taken > left ? left : taken;
        add_chunk(chunks, rank, box);
        box.offsets[dim] += box.sizes[dim];
    }
}

static void deal_any_box(struct random_chunks *chunks, const struct random_tensor *tensor, int rank,
                         uint64_t *seed)
{
    struct random_box box;
    for (int32_t d = 0; d < tensor->ndim; d++) {
        box.offsets[d] = scratch_below(seed, tensor->shape[d] + 1);
        box.sizes[d] = scratch_below(seed, tensor->shape[d] - box.offsets[d] + 1);
    }
    add_chunk(chunks, rank, box);
}

enum way { EVERYTHING, ROWS, COLUMNS, BOXES, ANY_BOX, NOTHING, WAYS };

static void deal(struct random_chunks *chunks, const struct random_tensor *tensor, enum way way,
                 int ranks, uint64_t *seed)
{
    chunks->count = 0;
    if (tensor->ndim == 0 && way != NOTHING)
        way = EVERYTHING;
    if (way == ROWS || way == COLUMNS)
        deal_slices(chunks, tensor, way == ROWS ? 0 : tensor->ndim - 1, ranks, seed);
    if (way == BOXES)
        deal_boxes(chunks, tensor, ranks, seed);
    for (int rank = 0; rank < ranks; rank++) {
        if (way == EVERYTHING)
            add_chunk(chunks, rank, whole_of(tensor));
        if (way == ANY_BOX)
            deal_any_box(chunks, tensor, rank, seed);
    }
}

/* Mostly all tensors alike. */
static void divide(struct random_division *division, const struct random_state *state, int ranks,
                   int ways, uint64_t *seed)
{
    enum way usual = (enum way)scratch_below(seed, ways);
    division->ranks = ranks;
    for (int i = 0; i < state->count; i++) {
        bool other = scratch_below(seed, 4) == 0;
        deal(&division->of[i], &state->tensors[i],
             other ? (enum way)scratch_below(seed, ways) : usual, ranks, seed);
    }
}

void random_divide_all(struct random_division *division, const struct random_state *state,
                       int ranks, uint64_t *seed)
{
    divide(division, state, ranks, BOXES + 1, seed);
}

void random_divide_some(struct random_division *division, const struct random_state *state,
                        int ranks, uint64_t *seed)
{
    divide(division, state, ranks, WAYS, seed);
}

void random_divide_rows(struct random_division *division, const struct random_state *state,
                        int ranks, uint64_t *seed)
{
    division->ranks = ranks;
    for (int i = 0; i < state->count; i++)
        deal(&division->of[i], &state->tensors[i], ROWS, ranks, seed);
}

void random_divide_everything(struct random_division *division, const struct random_state *state)
{
    division->ranks = 1;
    for (int i = 0; i < state->count; i++) {
        division->of[i].count = 0;
        add_chunk(&division->of[i], 0, whole_of(&state->tensors[i]));
    }
}

void random_division_halve(struct random_division *division, const struct random_state *state,
                           int half)
{
    for (int i = 1 - half; i < state->count; i += 2)
        division->of[i].count = 0;
}

/* ---- elements ---- */

/* The bytes of an element are the first of these. */
static uint64_t value_of(int tensor, int64_t index)
{
    uint64_t x = ((uint64_t)tensor << 40) + (uint64_t)index;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 27;
}

/* A chunk that lies in memory. */
struct laid_chunk {
    int tensor; /* whose elements it has: the first that is equal */
    int32_t ndim;
    size_t size; /* of an element */
    const int64_t *shape;
    const struct random_box *box;
    int64_t strides[RANDOM_DIMS];
};

static struct laid_chunk lay_chunk(const struct random_state *state, int tensor,
                                   const struct random_box *box, bool transposed)
{
    const struct random_tensor *of = &state->tensors[tensor];
    struct laid_chunk chunk = {.tensor = of->equal,
                               .ndim = of->ndim,
                               .size = dcp_dtype_size(of->dtype),
                               .shape = of->shape,
                               .box = box};
    int64_t stride = 1;
    for (int32_t i = 0; i < of->ndim; i++) {
        int32_t d = transposed ? i : of->ndim - 1 - i;
        chunk.strides[d] = stride;
        stride *= box->sizes[d];
    }
    return chunk;
}

/* Elements of a chunk that follow each other in the tensor. */
struct row {
    int64_t count;
    int64_t place; /* of the first one in memory, in elements */
    int64_t step;  /* from each to the next */
    int64_t index; /* of the first one in the tensor */
};

/* Finds a row, of 0 to rows - 1; false: there is no such row. */
static bool find_row(const struct laid_chunk *chunk, int64_t number, struct row *row)
{
    const struct random_box *box = chunk->box;
    int32_t last = chunk->ndim - 1;
    int64_t step = 1;
    if (chunk->ndim == 0) {
        *row = (struct row){.count = 1, .step = 1};
        return number == 0;
    }
    *row = (struct row){box->sizes[last], 0, chunk->strides[last], box->offsets[last]};
    if (volume(chunk->ndim, box->sizes) == 0)
        return false;
    for (int32_t d = last - 1; d >= 0; d--) {
        int64_t at = number % box->sizes[d];
        number /= box->sizes[d];
        step *= chunk->shape[d + 1];
        row->place += at * chunk->strides[d];
        row->index += (box->offsets[d] + at) * step;
    }
    return number == 0;
}

static void fill_chunk(const struct laid_chunk *chunk, unsigned char *memory, uint64_t turned)
{
    struct row row;
    for (int64_t number = 0; find_row(chunk, number, &row); number++)
        for (int64_t e = 0; e < row.count; e++) {
            uint64_t value = value_of(chunk->tensor, row.index + e) ^ turned;
            memcpy(memory + (size_t)(row.place + e * row.step) * chunk->size, &value, chunk->size);
        }
}

static bool check_chunk(const struct laid_chunk *chunk, const unsigned char *memory, int of,
                        char *text, size_t size)
{
    struct row row;
    for (int64_t number = 0; find_row(chunk, number, &row); number++)
        for (int64_t e = 0; e < row.count; e++) {
            uint64_t value = value_of(chunk->tensor, row.index + e);
            if (memcmp(memory + (size_t)(row.place + e * row.step) * chunk->size, &value,
                       chunk->size) == 0)
                continue;
            snprintf(text, size, "element %lld of t%d is wrong", (long long)(row.index + e), of);
            return false;
        }
    return true;
}

void random_state_lay(const struct random_state *state, int tensor, const int64_t *strides,
                      void *memory)
{
    const struct random_box box = whole_of(&state->tensors[tensor]);
    struct laid_chunk chunk = lay_chunk(state, tensor, &box, false);
    memcpy(chunk.strides, strides, sizeof chunk.strides);
    fill_chunk(&chunk, memory, 0);
}

/* ---- trees ---- */

/* A rank's chunks, in the order in which its tree has them. */
struct chunk_walk {
    int tensor, chunk; /* the next one to look at */
    int number;        /* of the tensor of the chunk that was found */
    struct laid_chunk laid;
};

/* False: there is no further one. */
static bool walk_on(struct chunk_walk *walk, const struct random_tree *tree)
{
    for (; walk->tensor < tree->state->count; walk->tensor++, walk->chunk = 0) {
        const struct random_chunks *chunks = &tree->division->of[walk->tensor];
        while (walk->chunk < chunks->count) {
            const struct random_chunk *chunk = &chunks->chunks[walk->chunk++];
            if (chunk->rank != tree->rank)
                continue;
            walk->number = walk->tensor;
            walk->laid = lay_chunk(tree->state, walk->tensor, &chunk->box, tree->transposed);
            return true;
        }
    }
    return false;
}

static bool add_to_tree(struct random_tree *tree, int number, const struct laid_chunk *chunk,
                        dcp_state **node)
{
    size_t bytes = (size_t)volume(chunk->ndim, chunk->box->sizes) * chunk->size;
    unsigned char *memory = malloc(bytes + 1);
    dcp_tensor tensor = {.dtype = tree->state->tensors[number].dtype,
                         .ndim = chunk->ndim,
                         .sharded = chunk->ndim > 0,
                         .strided = tree->transposed,
                         .data = memory};
    char name[16];
    snprintf(name, sizeof name, "t%d", number);
    for (int32_t d = 0; d < chunk->ndim; d++) {
        tensor.global_shape[d] = chunk->shape[d];
        tensor.offsets[d] = chunk->box->offsets[d];
        tensor.sizes[d] = chunk->box->sizes[d];
        tensor.strides[d] = chunk->strides[d];
    }
    tree->memory[tree->count++] = memory;
    if (!memory)
        return false;
    if (*node)
        return dcp_state_add_chunk(*node, &tensor) == DCP_OK;
    *node = dcp_state_tensor(tree->root, name, &tensor);
    return *node != NULL;
}

bool random_tree_make(struct random_tree *tree)
{
    struct chunk_walk walk = {0};
    dcp_state *node = NULL;
    tree->root = dcp_state_new();
    for (int last = -1; tree->root && walk_on(&walk, tree); last = walk.number) {
        if (walk.number != last)
            node = NULL;
        if (!add_to_tree(tree, walk.number, &walk.laid, &node))
            return false;
    }
    if (tree->root)
        random_tree_fill(tree, false);
    return tree->root != NULL;
}

void random_tree_fill(const struct random_tree *tree, bool right)
{
    struct chunk_walk walk = {0};
    for (int at = 0; walk_on(&walk, tree); at++)
        fill_chunk(&walk.laid, tree->memory[at], right ? 0 : UINT64_MAX);
}

bool random_tree_check(const struct random_tree *tree, char *text, size_t size)
{
    struct chunk_walk walk = {0};
    for (int at = 0; walk_on(&walk, tree); at++)
        if (!check_chunk(&walk.laid, tree->memory[at], walk.number, text, size))
            return false;
    return true;
}

void random_tree_free(struct random_tree *tree)
{
    dcp_state_free(tree->root);
    for (int i = 0; i < tree->count; i++)
        free(tree->memory[i]);
}
