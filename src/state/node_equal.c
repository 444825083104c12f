/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/node_equal.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "state/box.h"
#include "state/box_blocks.h"
#include "state/copy.h"
#include "state/device_memory.h"
#include "state/node_unique.h"

/* A value may share its parts so often that a walk over it would not end in reasonable time; real
 * values do not have so many parts. */
#define PAIRS_MAX ((size_t)1 << 24)

/* A tensor may repeat its elements, so that it has more than there is memory. */
#define BLOCK_ELEMENTS 16384

struct pair {
    const dcp_state *left, *right;
};

/* Pairs that are still to be compared. */
struct pairs {
    struct pair *items;
    size_t count, capacity;
    size_t seen;
};

static dcp_status push(struct pairs *pairs, const dcp_state *left, const dcp_state *right)
{
    if (++pairs->seen > PAIRS_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "values of more than %zu parts are not compared",
                             PAIRS_MAX);
    if (pairs->count == pairs->capacity) {
        size_t capacity = pairs->capacity ? pairs->capacity * 2 : 64;
        struct pair *items = memory_reallocate_array(pairs->items, capacity, sizeof *items);
        if (!items)
            return error_no_memory(capacity * sizeof *items, "values to compare");
        pairs->items = items;
        pairs->capacity = capacity;
    }
    pairs->items[pairs->count++] = (struct pair){left, right};
    return DCP_OK;
}

/* Elements without an equal in the other set (objects of other Python classes) are compared in
 * order with the elements of the other set that have none. */
static dcp_status push_elements(struct pairs *pairs, const struct state_children *left,
                                const struct state_children *right, const size_t *positions,
                                bool *is_taken)
{
    for (size_t i = 0; i < left->count; i++)
        if (positions[i] != SIZE_MAX)
            is_taken[positions[i]] = true;
    size_t next = 0;
    for (size_t i = 0; i < left->count; i++) {
        size_t position = positions[i];
        while (position == SIZE_MAX && is_taken[next])
            next++;
        if (position == SIZE_MAX)
            position = next++;
        RETURN_IF_ERROR(push(pairs, left->items[i].value, right->items[position].value));
    }
    return DCP_OK;
}

/* Sets of equally many elements. */
static dcp_status push_sets(struct pairs *pairs, const dcp_state *left, const dcp_state *right)
{
    size_t count = left->as.children.count;
    size_t *positions = memory_allocate_array(count, sizeof *positions);
    bool *is_taken = memory_allocate_zeroed(count, sizeof *is_taken);
    dcp_status status = positions && is_taken
                            ? node_match(left, right, positions)
                            : error_no_memory(count * sizeof *positions, "sets to compare");
    if (status == DCP_OK)
        status = push_elements(pairs, &left->as.children, &right->as.children, positions, is_taken);
    memory_release(positions);
    memory_release(is_taken);
    return status;
}

static dcp_status push_children(struct pairs *pairs, const dcp_state *left, const dcp_state *right,
                                bool *equal)
{
    const struct state_children *a = node_children(left), *b = node_children(right);
    size_t count = a ? a->count : 0;
    *equal = count == (b ? b->count : 0);
    if (a && b && *equal) {
        *equal = !a->making == !b->making;
        if (a->making && b->making)
            RETURN_IF_ERROR(push(pairs, a->making, b->making));
    }
    if (*equal && node_is_set(left))
        return push_sets(pairs, left, right);
    for (size_t i = 0; i < count && *equal; i++) {
        const struct state_child *one = &a->items[i], *other = &b->items[i];
        *equal = !one->key == !other->key;
        if (one->key && other->key)
            RETURN_IF_ERROR(push(pairs, one->key, other->key));
        RETURN_IF_ERROR(push(pairs, one->value, other->value));
    }
    return DCP_OK;
}

static bool integers_equal(const dcp_state *left, const dcp_state *right)
{
    if (left->as.integer.is_big != right->as.integer.is_big)
        return false;
    if (left->as.integer.is_big)
        return strcmp(left->as.integer.digits, right->as.integer.digits) == 0;
    return left->as.integer.is_unsigned == right->as.integer.is_unsigned &&
           left->as.integer.bits == right->as.integer.bits;
}

static bool chunks_alike(const struct state_tensor *a, const struct state_tensor *b)
{
    size_t shape_size = (size_t)a->ndim * sizeof *a->global_shape;
    if (a->dtype != b->dtype || a->ndim != b->ndim || a->chunk_count != b->chunk_count ||
        (shape_size > 0 && memcmp(a->global_shape, b->global_shape, shape_size) != 0))
        return false;
    for (size_t c = 0; c < a->chunk_count; c++)
        if (!box_equal((struct box){a->ndim, a->chunks[c].offsets, a->chunks[c].sizes},
                       (struct box){b->ndim, b->chunks[c].offsets, b->chunks[c].sizes}))
            return false;
    return true;
}

/* The elements of a block of a chunk, row-major. */
static void take_block(const struct state_tensor *tensor, const struct state_chunk *chunk,
                       const struct box_storage *block, unsigned char *dense)
{
    size_t element = dcp_dtype_size(tensor->dtype);
    int64_t strides[DCP_MAX_DIMS], start = 0;
    shape_strides(tensor->ndim, block->sizes, strides);
    for (int32_t i = 0; i < tensor->ndim; i++)
        if (block->offsets[i] > 0)
            start += block->offsets[i] * chunk->strides[i];
    copy_strided(tensor->ndim, block->sizes, element,
                 (const unsigned char *)chunk->data + start * (int64_t)element, chunk->strides,
                 dense, strides);
}

static bool blocks_equal(const struct state_tensor *tensor, const struct state_chunk *a,
                         const struct state_chunk *b, unsigned char *dense)
{
    size_t element = dcp_dtype_size(tensor->dtype);
    struct box_blocks blocks;
    struct box_storage block;
    bool equal = true;
    box_blocks_start_bounded(&blocks, tensor->ndim, a->sizes, BLOCK_ELEMENTS);
    while (equal && box_blocks_next(&blocks, &block)) {
        struct box box = {tensor->ndim, block.offsets, block.sizes};
        take_block(tensor, a, &block, dense);
        take_block(tensor, b, &block, dense + BLOCK_ELEMENTS * element);
        equal =
            memcmp(dense, dense + BLOCK_ELEMENTS * element, (size_t)box_volume(box) * element) == 0;
    }
    return equal;
}

static dcp_status chunk_equal(const struct state_tensor *tensor, const struct state_chunk *a,
                              const struct state_chunk *b, bool *equal)
{
    uint64_t bytes = 0;
    if (!shape_bytes(tensor->ndim, a->sizes, tensor->dtype, &bytes) || bytes == 0) {
        *equal = bytes == 0;
        return DCP_OK;
    }
    if (!a->data || !b->data) {
        *equal = a->data == b->data;
        return DCP_OK;
    }
    if (!device_is_host(&a->device) || !device_is_host(&b->device))
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "tensors on devices are not compared");
    size_t most = 2 * BLOCK_ELEMENTS * dcp_dtype_size(tensor->dtype);
    unsigned char *dense = memory_allocate(most);
    if (!dense)
        return error_no_memory(most, "tensors to compare");
    *equal = blocks_equal(tensor, a, b, dense);
    memory_release(dense);
    return DCP_OK;
}

static dcp_status tensors_equal(const struct state_tensor *a, const struct state_tensor *b,
                                bool *equal)
{
    *equal = chunks_alike(a, b);
    for (size_t c = 0; c < a->chunk_count && *equal; c++)
        RETURN_IF_ERROR(chunk_equal(a, &a->chunks[c], &b->chunks[c], equal));
    return DCP_OK;
}

static bool bits_equal(double left, double right)
{
    uint64_t bits[2];
    memcpy(&bits[0], &left, sizeof left);
    memcpy(&bits[1], &right, sizeof right);
    return bits[0] == bits[1];
}

static bool opaque_alike(const struct state_opaque *a, const struct state_opaque *b)
{
    return strcmp(a->name, b->name) == 0 && a->module_length == b->module_length &&
           a->form == b->form && a->has_callable == b->has_callable &&
           a->has_state == b->has_state && a->has_items == b->has_items &&
           a->has_pairs == b->has_pairs && a->argument_count == b->argument_count;
}

/* Compares a pair without its children, which are added to the list. */
static dcp_status compare(struct pairs *pairs, const dcp_state *left, const dcp_state *right,
                          bool *equal)
{
    *equal = left->kind == right->kind;
    if (!*equal || left == right)
        return DCP_OK;
    switch (left->kind) {
    case DCP_KIND_NONE:
        return DCP_OK;
    case DCP_KIND_BOOL:
        *equal = left->as.boolean == right->as.boolean;
        return DCP_OK;
    case DCP_KIND_INT:
        *equal = integers_equal(left, right);
        return DCP_OK;
    case DCP_KIND_FLOAT:
        *equal = bits_equal(left->as.number, right->as.number);
        return DCP_OK;
    case DCP_KIND_COMPLEX:
        *equal = bits_equal(left->as.complex.real, right->as.complex.real) &&
                 bits_equal(left->as.complex.imaginary, right->as.complex.imaginary);
        return DCP_OK;
    case DCP_KIND_DTYPE:
        *equal = left->as.dtype == right->as.dtype;
        return DCP_OK;
    case DCP_KIND_TENSOR:
        return tensors_equal(left->as.tensor, right->as.tensor, equal);
    case DCP_KIND_STRING:
    case DCP_KIND_BYTES:
    case DCP_KIND_BYTEARRAY:
    case DCP_KIND_DEVICE:
    case DCP_KIND_STREAM:
        *equal = left->as.text.length == right->as.text.length &&
                 memcmp(left->as.text.bytes, right->as.text.bytes, left->as.text.length) == 0;
        return DCP_OK;
    case DCP_KIND_OPAQUE:
        *equal = opaque_alike(left->as.opaque, right->as.opaque);
        break;
    case DCP_KIND_STATEFUL:
        *equal = left->as.stateful.context == right->as.stateful.context &&
                 left->as.stateful.state_dict == right->as.stateful.state_dict;
        return DCP_OK;
    default:
        break;
    }
    return *equal ? push_children(pairs, left, right, equal) : DCP_OK;
}

dcp_status node_equal(const dcp_state *left, const dcp_state *right, bool *equal)
{
    struct pairs pairs = {0};
    dcp_status status = push(&pairs, left, right);
    *equal = true;
    while (status == DCP_OK && *equal && pairs.count > 0) {
        struct pair pair = pairs.items[--pairs.count];
        status = compare(&pairs, pair.left, pair.right, equal);
    }
    memory_release(pairs.items);
    return status;
}
