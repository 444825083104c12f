/* SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz_tree.h"

#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formula.h"

enum { MOST_BOXES = 6, MOST_DEPTH = 5, KEY_SIZE = 64 };

uint64_t fuzz_next(struct fuzz_random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15U;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

uint64_t fuzz_below(struct fuzz_random *random, uint64_t count)
{
    return fuzz_next(random) % count;
}

static uint64_t below(struct fuzz_tree *tree, uint64_t count)
{
    return fuzz_below(&tree->random, count);
}

/* ---- keys ---- */

/* Never twice the same in one tree; NULL in lists. */
static const char *next_key(struct fuzz_tree *tree, const dcp_state *parent, char key[KEY_SIZE])
{
    static const char *const starts[] = {
        "",
        "w",
        "a.b",
        ".",
        "..",
        "0",
        "-1",
        "$dict",
        "gr\xc3\xbc\xc3\x9f",
        "/",
        "\\",
        "\"quote'",
        "\n",
        "\xe2\x82\xac\xf0\x9f\x98\x80",
        "\x1b[31m",
        " ",
        "%s",
        "a.",
        ".a",
    };
    dcp_kind kind = dcp_state_kind(parent);

    if (kind != DCP_KIND_DICT)
        return NULL;
    snprintf(key, KEY_SIZE, "%s%llu", starts[below(tree, sizeof starts / sizeof *starts)],
             (unsigned long long)(1000000 + tree->keys++));
    return key;
}

/* ---- tensors ---- */

struct boxes {
    size_t count;
    dcp_tensor box[MOST_BOXES];
};

static dcp_tensor random_whole(struct fuzz_tree *tree)
{
    dcp_tensor whole = {.sharded = true};
    static const int32_t ndims[] = {0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 8, 12};

    /* PyTorch 2.13 does not know bcomplex32, and cannot copy the bits types. */
    while (!dcp_dtype_name(whole.dtype) || whole.dtype == DCP_BCOMPLEX32)
        whole.dtype = (dcp_dtype)(1 + below(tree, DCP_F4_E2M1FN_X2));
    whole.ndim = ndims[below(tree, sizeof ndims / sizeof *ndims)];
    for (int32_t d = 0; d < whole.ndim; d++) {
        uint64_t most = whole.ndim > 4 ? 3 : whole.ndim > 1 ? 7 : 300;
        whole.global_shape[d] = (int64_t)(below(tree, 30) == 0 ? 0 : 1 + below(tree, most));
        whole.sizes[d] = whole.global_shape[d];
    }
    return whole;
}

/* Cuts one of the boxes in two, where that can be done. */
static void cut_box(struct fuzz_tree *tree, struct boxes *boxes)
{
    dcp_tensor *first = &boxes->box[below(tree, boxes->count)];
    int32_t d = first->ndim > 0 ? (int32_t)below(tree, (uint64_t)first->ndim) : 0;

    if (first->ndim == 0 || first->sizes[d] < 2 || boxes->count == MOST_BOXES)
        return;
    int64_t cut = 1 + (int64_t)below(tree, (uint64_t)first->sizes[d] - 1);
    dcp_tensor *second = &boxes->box[boxes->count++];
    *second = *first;
    second->offsets[d] += cut;
    second->sizes[d] -= cut;
    first->sizes[d] = cut;
}

/* Dimensions in any order, perhaps with gaps, some from the last element to the first. */
static size_t random_strides(struct fuzz_tree *tree, dcp_tensor *chunk, size_t *first)
{
    int32_t order[DCP_MAX_DIMS];
    int64_t room = 1;

    *first = 0;
    chunk->strided = true;
    for (int32_t d = 0; d < chunk->ndim; d++)
        order[d] = d;
    for (int32_t i = chunk->ndim - 1; i >= 0; i--) {
        int32_t other = (int32_t)below(tree, (uint64_t)i + 1);
        int32_t d = order[other];
        order[other] = order[i];
        chunk->strides[d] = room;
        room *= chunk->sizes[d] + (int64_t)below(tree, 2);
        if (below(tree, 4) == 0 && chunk->sizes[d] > 0) {
            *first += (size_t)(chunk->strides[d] * (chunk->sizes[d] - 1));
            chunk->strides[d] = -chunk->strides[d];
        }
    }
    return (size_t)room;
}

static void fill(struct fuzz_tree *tree, uint64_t number, dcp_tensor *chunk)
{
    size_t size = dcp_dtype_size(chunk->dtype), first = 0;
    size_t elements = tensor_elements(chunk->ndim, chunk->sizes);
    char name[40];

    if (below(tree, 3) == 0)
        elements = random_strides(tree, chunk, &first);
    if (tree->block_count == sizeof tree->blocks / sizeof *tree->blocks)
        errx(1, "too many tensors");
    char *memory = malloc(elements * size + 1);
    if (!memory)
        err(1, "no memory");
    tree->blocks[tree->block_count++] = memory;
    chunk->data = memory + first * size;
    snprintf(name, sizeof name, "%llu", (unsigned long long)number);
    formula_fill(name, chunk);
}

static void add_tensor(struct fuzz_tree *tree, dcp_state *parent, const char *key)
{
    struct boxes boxes = {1, {random_whole(tree)}};
    uint64_t number = tree->tensors++, cuts = below(tree, 2 * MOST_BOXES);
    dcp_tensor nothing = boxes.box[0];
    dcp_state *node = NULL;

    for (uint64_t i = 0; i < cuts; i++)
        cut_box(tree, &boxes);
    for (size_t i = 0; i < boxes.count; i++) {
        uint64_t owner = below(tree, (uint64_t)tree->ranks);
        bool replicated = below(tree, 4) == 0;
        dcp_tensor *chunk = &boxes.box[i];
        struct fuzz_random common = tree->random;
        if (boxes.count == 1 && below(tree, 2) == 0)
            chunk->sharded = false;
        if (replicated || owner == (uint64_t)tree->rank) {
            fill(tree, number, chunk);
            if (!node)
                node = dcp_state_tensor(parent, key, chunk);
            else if (dcp_state_add_chunk(node, chunk) != DCP_OK)
                errx(1, "%s", dcp_error_message());
        }
        tree->random = common; /* what layouts took differs from rank to rank */
        below(tree, 2);
    }
    /* A rank without a chunk says so, for positions in lists must be the same on all ranks. */
    if (node)
        return;
    struct fuzz_random common = tree->random;
    for (int32_t d = 0; d < nothing.ndim; d++) {
        nothing.offsets[d] = nothing.sizes[d];
        nothing.sizes[d] = 0;
    }
    if (nothing.ndim == 0)
        fill(tree, number, &nothing);
    dcp_state_tensor(parent, key, &nothing);
    tree->random = common;
}

/* ---- objects ---- */

static double random_double(struct fuzz_tree *tree)
{
    static const double odd[] = {0.0, -0.0, 0.1, 1e16, 1e-5, 0x1p-1074, 0x1.fffffffffffffp+1023};
    uint64_t bits = fuzz_next(&tree->random);
    double value;

    memcpy(&value, &bits, sizeof value);
    return bits % 2 == 0 ? odd[bits / 2 % 7] : isnan(value) ? (double)NAN : value;
}

static void add_text(struct fuzz_tree *tree, dcp_state *parent, const char *key)
{
    static const char *const parts[] = {"a",  "\xc3\xbf", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\n",
                                        "\"", "\\"};
    static const uint64_t lengths[] = {0, 1, 3, 63, 64, 255, 256, 257, 20000};
    uint64_t length = lengths[below(tree, 9)];
    char *text = malloc(4 * length + 2);
    size_t used = 0;

    if (!text)
        err(1, "no memory");
    for (uint64_t i = 0; i < length; i++) {
        const char *part = parts[below(tree, 7)];
        memcpy(text + used, part, strlen(part));
        used += strlen(part);
    }
    if (below(tree, 3) == 0)
        dcp_state_bytes(parent, key, text, used);
    else if (used > 0 && below(tree, 5) == 0)
        dcp_state_text(parent, key, "nul\0in\0it", 9);
    else
        dcp_state_text(parent, key, text, used);
    free(text);
}

static void add_leaf(struct fuzz_tree *tree, dcp_state *parent, const char *key)
{
    uint64_t bits = fuzz_next(&tree->random), shift = below(tree, 64);

    switch (below(tree, 7)) {
    case 0:
        dcp_state_none(parent, key);
        break;
    case 1:
        dcp_state_bool(parent, key, bits % 2);
        break;
    case 2:
        dcp_state_uint(parent, key, bits >> shift);
        break;
    case 3:
        dcp_state_int(parent, key, (int64_t)bits >> shift);
        break;
    case 4:
        dcp_state_float(parent, key, random_double(tree));
        break;
    default:
        add_text(tree, parent, key);
    }
}

/* Adds a leaf as the key of a dict, or as an element of a set or tuple in either, unless one that
 * equals it is there. Returns what takes the value of the key. */
static dcp_state *add_hashed_leaf(struct fuzz_tree *tree, dcp_state *container)
{
    dcp_state *scratch = dcp_state_new(), *list = dcp_state_list(scratch, "list");
    dcp_state *into = container;

    if (below(tree, 4) == 0)
        add_leaf(tree, dcp_state_tuple(list, NULL), NULL);
    else
        add_leaf(tree, list, NULL);
    const dcp_state *leaf = dcp_state_at(list, 0);
    if (dcp_state_find_key(container, leaf))
        into = NULL;
    else if (dcp_state_kind(container) == DCP_KIND_DICT)
        into = dcp_state_pair(container);
    if (into)
        dcp_state_copy(into, NULL, leaf);
    dcp_state_free(scratch);
    return into;
}

/* A dict in a tuple, as it would be entered elsewhere, or a set. */
static void add_hashed(struct fuzz_tree *tree, dcp_state *parent, const char *key)
{
    uint64_t choice = below(tree, 3), count = below(tree, 20);
    dcp_state *node = choice == 0   ? dcp_state_set(parent, key)
                      : choice == 1 ? dcp_state_frozenset(parent, key)
                                    : dcp_state_dict(dcp_state_tuple(parent, key), NULL);

    for (uint64_t i = 0; i < count; i++) {
        dcp_state *pair = add_hashed_leaf(tree, node);
        if (pair && choice == 2)
            add_leaf(tree, pair, NULL);
    }
}

/* A value without tensors; in a list, one that does not make flattening enter the list. */
static void add_object(struct fuzz_tree *tree, dcp_state *parent, const char *key, int depth)
{
    uint64_t choice = depth > MOST_DEPTH ? 9 : below(tree, 10);
    static const uint64_t counts[] = {0, 1, 2, 3, 4, 9, 1001};
    uint64_t count = depth > 2 ? below(tree, 4) : counts[below(tree, 7)];
    char inner_key[KEY_SIZE];
    bool is_list = dcp_state_kind(parent) == DCP_KIND_LIST;

    if (choice == 4) {
        add_hashed(tree, parent, key);
        return;
    }
    if (choice > 3 || (choice == 2 && is_list)) {
        add_leaf(tree, parent, key);
        return;
    }
    dcp_state *node = choice == 0   ? dcp_state_list(parent, key)
                      : choice == 2 ? dcp_state_dict(dcp_state_tuple(parent, key), NULL)
                                    : dcp_state_tuple(parent, key);
    for (uint64_t i = 0; i < count; i++)
        if (count > 100)
            dcp_state_int(node, next_key(tree, node, inner_key), (int64_t)i);
        else
            add_object(tree, node, next_key(tree, node, inner_key), depth + 1);
}

/* ---- the tree ---- */

static void add_node(struct fuzz_tree *tree, dcp_state *parent, int depth);

/* Never empty: PyTorch cannot convert a list that has an empty dict in it. */
static void add_children(struct fuzz_tree *tree, dcp_state *parent, int depth)
{
    uint64_t count = 1 + below(tree, 4);

    for (uint64_t i = 0; i < count; i++)
        add_node(tree, parent, depth);
}

static void add_node(struct fuzz_tree *tree, dcp_state *parent, int depth)
{
    char text[KEY_SIZE];
    const char *key = next_key(tree, parent, text);
    uint64_t choice = depth >= MOST_DEPTH ? below(tree, 6) : below(tree, 9);

    if (choice < 3)
        add_tensor(tree, parent, key);
    else if (choice < 6)
        add_object(tree, parent, key, 0);
    else if (choice < 8)
        add_children(tree, dcp_state_dict(parent, key), depth + 1);
    else
        add_children(tree, dcp_state_list(parent, key), depth + 1);
}

void fuzz_tree_build(struct fuzz_tree *tree)
{
    uint64_t count = 1 + below(tree, 12);

    tree->root = dcp_state_new();
    for (uint64_t i = 0; i < count; i++)
        add_node(tree, tree->root, 1);
    if (dcp_state_status(tree->root) != DCP_OK)
        errx(1, "%s", dcp_error_message());
}

void fuzz_tree_free(struct fuzz_tree *tree)
{
    dcp_state_free(tree->root);
    for (size_t i = 0; i < tree->block_count; i++)
        free(tree->blocks[i]);
}
