/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls that look at a tree. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "state/copy.h"
#include "state/node_children.h"

dcp_kind dcp_state_kind(const dcp_state *node)
{
    return node ? node->kind : DCP_KIND_NONE;
}

size_t dcp_state_count(const dcp_state *node)
{
    const struct state_children *children = node ? node_children(node) : NULL;
    return children ? children->count : 0;
}

dcp_state *dcp_state_at(const dcp_state *node, size_t index)
{
    const struct state_children *children = node ? node_children(node) : NULL;
    return children && index < children->count ? children->items[index].value : NULL;
}

const dcp_state *dcp_state_key_at(const dcp_state *node, size_t index)
{
    const struct state_children *children = node ? node_children(node) : NULL;
    return children && index < children->count ? children->items[index].key : NULL;
}

dcp_state *dcp_state_find(const dcp_state *node, const char *key)
{
    size_t position;
    if (!node || !key || !node_is_dict(node) || !node_find(node, key, strlen(key), &position))
        return NULL;
    return node->as.children.items[position].value;
}

/* The position of a key, or an element, without parts. */
static bool find_plain(const dcp_state *container, const dcp_state *key, size_t *position)
{
    struct key_form form;
    key_form(key, &form);
    return node_find_form(container, &form, position);
}

dcp_state *dcp_state_find_int(const dcp_state *node, int64_t key)
{
    const dcp_state wanted = {.kind = DCP_KIND_INT, .as.integer.bits = (uint64_t)key};
    size_t position;
    return node && node_is_dict(node) && find_plain(node, &wanted, &position)
               ? node->as.children.items[position].value
               : NULL;
}

/* The position of a tuple or frozenset; on failure the message says why it could not be
 * searched. */
static bool find_compound(const dcp_state *container, const dcp_state *key, size_t *position)
{
    const struct state_children *children = &container->as.children;
    struct buffer wanted, candidate;
    bool found = false;
    buffer_init(&wanted, 0);
    buffer_init(&candidate, 0);
    dcp_status status = key_write(key, DCP_ERR_ARGUMENT, &wanted);
    for (size_t i = 0; i < children->count && status == DCP_OK && !found; i++) {
        const dcp_state *other = child_key(&children->items[i]);
        if (!key_is_compound(other))
            continue;
        buffer_clear(&candidate);
        status = key_write(other, DCP_ERR_ARGUMENT, &candidate);
        found = status == DCP_OK && candidate.size == wanted.size &&
                memcmp(candidate.data, wanted.data, wanted.size) == 0;
        *position = i;
    }
    buffer_free(&wanted);
    buffer_free(&candidate);
    return found;
}

dcp_state *dcp_state_find_key(const dcp_state *node, const dcp_state *key)
{
    size_t position;
    if (!node || !key || !(node_is_dict(node) || node_is_set(node)) || !key_is_hashable(key))
        return NULL;
    bool found = key_is_compound(key) ? find_compound(node, key, &position)
                                      : find_plain(node, key, &position);
    return found ? node->as.children.items[position].value : NULL;
}

/* Checks a reading call: a node of the kind, and somewhere to put the value. */
static dcp_status check_kind(const dcp_state *node, dcp_kind kind, const void *result)
{
    if (!node || !result)
        return dcp_error_set(DCP_ERR_ARGUMENT, "reading a node of kind %s: the %s is NULL",
                             node_kind_name(kind), node ? "result" : "node");
    if (node->kind != kind)
        return dcp_error_set(DCP_ERR_KIND, "expected %s, found %s", node_kind_name(kind),
                             node_kind_name(node->kind));
    return DCP_OK;
}

static dcp_status does_not_fit(const dcp_state *node, const char *type)
{
    const char *digits = dcp_state_int_digits(node);
    return dcp_error_set(DCP_ERR_KIND, "the int %.80s does not fit %s", digits ? digits : "", type);
}

dcp_status dcp_state_as_bool(const dcp_state *node, bool *value)
{
    RETURN_IF_ERROR(check_kind(node, DCP_KIND_BOOL, value));
    *value = node->as.boolean;
    return DCP_OK;
}

dcp_status dcp_state_as_int(const dcp_state *node, int64_t *value)
{
    RETURN_IF_ERROR(check_kind(node, DCP_KIND_INT, value));
    if (node->as.integer.is_big || node->as.integer.is_unsigned)
        return does_not_fit(node, "int64_t");
    *value = (int64_t)node->as.integer.bits;
    return DCP_OK;
}

dcp_status dcp_state_as_uint(const dcp_state *node, uint64_t *value)
{
    RETURN_IF_ERROR(check_kind(node, DCP_KIND_INT, value));
    if (node->as.integer.is_big ||
        (!node->as.integer.is_unsigned && (int64_t)node->as.integer.bits < 0))
        return does_not_fit(node, "uint64_t");
    *value = node->as.integer.bits;
    return DCP_OK;
}

/* A double holds an int exactly if its lowest and highest set bits span at most 53 bits. */
static bool int_is_double(const dcp_state *node, double *value)
{
    bool negative = !node->as.integer.is_unsigned && (int64_t)node->as.integer.bits < 0;
    uint64_t magnitude = negative ? 0 - node->as.integer.bits : node->as.integer.bits;
    if (node->as.integer.is_big)
        return false;
    if (magnitude != 0 && 64 - __builtin_clzll(magnitude) - __builtin_ctzll(magnitude) > 53)
        return false;
    *value = negative ? -(double)magnitude : (double)magnitude;
    return true;
}

dcp_status dcp_state_as_float(const dcp_state *node, double *value)
{
    if (node && value && node->kind == DCP_KIND_INT)
        return int_is_double(node, value) ? DCP_OK : does_not_fit(node, "double exactly");
    RETURN_IF_ERROR(check_kind(node, DCP_KIND_FLOAT, value));
    *value = node->as.number;
    return DCP_OK;
}

dcp_status dcp_state_as_complex(const dcp_state *node, double *real, double *imaginary)
{
    RETURN_IF_ERROR(check_kind(node, DCP_KIND_COMPLEX, real && imaginary ? real : NULL));
    *real = node->as.complex.real;
    *imaginary = node->as.complex.imaginary;
    return DCP_OK;
}

dcp_status dcp_state_as_text(const dcp_state *node, const char **text, size_t *length)
{
    if (!node || node->kind != DCP_KIND_DEVICE)
        RETURN_IF_ERROR(check_kind(node, DCP_KIND_STRING, text));
    if (!text)
        return dcp_error_set(DCP_ERR_ARGUMENT, "reading a string: the result is NULL");
    *text = node->as.text.bytes;
    if (length)
        *length = node->as.text.length;
    return DCP_OK;
}

dcp_status dcp_state_as_bytes(const dcp_state *node, const void **bytes, size_t *length)
{
    if (!node || (node->kind != DCP_KIND_BYTEARRAY && node->kind != DCP_KIND_STREAM))
        RETURN_IF_ERROR(check_kind(node, DCP_KIND_BYTES, bytes));
    if (!bytes || !length)
        return dcp_error_set(DCP_ERR_ARGUMENT, "reading bytes: a result is NULL");
    *bytes = node->as.text.bytes;
    *length = node->as.text.length;
    return DCP_OK;
}

dcp_status dcp_state_as_dtype(const dcp_state *node, dcp_dtype *dtype)
{
    RETURN_IF_ERROR(check_kind(node, DCP_KIND_DTYPE, dtype));
    *dtype = node->as.dtype;
    return DCP_OK;
}

const char *dcp_state_int_digits(const dcp_state *node)
{
    if (!node || node->kind != DCP_KIND_INT)
        return NULL;
    if (node->as.integer.digits)
        return node->as.integer.digits;
    char digits[24];
    int length = node->as.integer.is_unsigned
                     ? snprintf(digits, sizeof digits, "%" PRIu64, node->as.integer.bits)
                     : snprintf(digits, sizeof digits, "%" PRId64, (int64_t)node->as.integer.bits);
    struct state_pool *pool = node->content ? node->content : node->pool;
    char *copy = arena_copy_text(&pool->arena, digits, (size_t)length);
    if (!copy)
        error_no_memory((size_t)length, "digits");
    /* remembered in the node, which is the tree's to change */
    ((dcp_state *)node)->as.integer.digits = copy;
    return copy;
}

size_t dcp_state_chunk_count(const dcp_state *node)
{
    return node && node->kind == DCP_KIND_TENSOR ? node->as.tensor->chunk_count : 0;
}

dcp_status dcp_state_chunk_sized(const dcp_state *node, size_t index, dcp_tensor *chunk,
                                 size_t tensor_size)
{
    RETURN_IF_ERROR(check_kind(node, DCP_KIND_TENSOR, chunk));
    const struct state_tensor *tensor = node->as.tensor;
    if (index >= tensor->chunk_count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "chunk %zu of a tensor that has %zu here", index,
                             tensor->chunk_count);
    const struct state_chunk *from = &tensor->chunks[index];
    size_t bytes = (size_t)tensor->ndim * sizeof(int64_t);
    dcp_tensor ours = {
        .dtype = tensor->dtype,
        .ndim = tensor->ndim,
        .sharded = tensor->sharded,
        .strided = !copy_is_dense(tensor->ndim, from->sizes, from->strides),
        .requires_grad = tensor->requires_grad,
        .device = from->device,
        .data = from->data,
    };
    memcpy(ours.global_shape, tensor->global_shape, bytes);
    memcpy(ours.offsets, from->offsets, bytes);
    memcpy(ours.sizes, from->sizes, bytes);
    memcpy(ours.strides, from->strides, bytes);
    sized_write(chunk, tensor_size, &ours, sizeof ours);
    return DCP_OK;
}

const char *dcp_state_opaque_name(const dcp_state *node)
{
    return node && node->kind == DCP_KIND_OPAQUE ? node->as.opaque->name : NULL;
}
