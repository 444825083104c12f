/* SPDX-License-Identifier: BSD-3-Clause */
/* A tree as bytes. */
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "dcp/packed.h"
#include "state/node.h"
#include "state/packed.h"

#define LIMIT_DEFAULT ((size_t)1 << 30)

enum { NODE_OPEN = 1 };

/* A container that is being described. next counts keys and values of a dict. */
struct open_node {
    dcp_state *node;
    size_t next;
};

struct packer {
    struct buffer out;
    struct open_node *stack;
    size_t depth;
    size_t capacity;
    uint32_t walk;
};

static void put_text(struct packer *packer, enum packed_kind kind, const char *text, size_t length)
{
    buffer_append_u8(&packer->out, (uint8_t)kind);
    buffer_append_u64(&packer->out, length);
    buffer_append(&packer->out, text, length);
}

static void put_double(struct packer *packer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    buffer_append_u64(&packer->out, bits);
}

static void put_numbers(struct packer *packer, const int64_t *numbers, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        buffer_append_u64(&packer->out, (uint64_t)numbers[i]);
}

static dcp_status put_int(struct packer *packer, const dcp_state *node)
{
    int64_t value;
    if (dcp_state_as_int(node, &value) == DCP_OK) {
        buffer_append_u8(&packer->out, PACKED_INT);
        buffer_append_u64(&packer->out, (uint64_t)value);
        return DCP_OK;
    }
    const char *digits = dcp_state_int_digits(node);
    if (!digits)
        return DCP_ERR_NO_MEMORY;
    put_text(packer, PACKED_DIGITS, digits, strlen(digits));
    return DCP_OK;
}

static void put_tensor(struct packer *packer, const struct state_tensor *tensor)
{
    buffer_append_u8(&packer->out, PACKED_TENSOR);
    buffer_append_u8(&packer->out, (uint8_t)tensor->dtype);
    buffer_append_u8(&packer->out, (uint8_t)tensor->ndim);
    buffer_append_u8(&packer->out, tensor->requires_grad);
    buffer_append_u8(&packer->out, tensor->sharded);
    buffer_append_u64(&packer->out, tensor->chunk_count);
    put_numbers(packer, tensor->global_shape, tensor->ndim);
    for (size_t i = 0; i < tensor->chunk_count; i++) {
        const struct state_chunk *chunk = &tensor->chunks[i];
        buffer_append_u64(&packer->out, (uintptr_t)chunk->device.operations);
        buffer_append_u64(&packer->out, (uint64_t)chunk->device.index);
        buffer_append_u64(&packer->out, (uintptr_t)chunk->device.queue);
        buffer_append_u64(&packer->out, (uintptr_t)chunk->data);
        put_numbers(packer, chunk->offsets, tensor->ndim);
        put_numbers(packer, chunk->sizes, tensor->ndim);
        put_numbers(packer, chunk->strides, tensor->ndim);
    }
}

static dcp_status put_leaf(struct packer *packer, const dcp_state *node)
{
    const char *text = node->as.text.bytes;
    size_t length = node->as.text.length;
    switch (node->kind) {
    case DCP_KIND_NONE:
        buffer_append_u8(&packer->out, PACKED_NONE);
        return DCP_OK;
    case DCP_KIND_BOOL:
        buffer_append_u8(&packer->out, node->as.boolean ? PACKED_TRUE : PACKED_FALSE);
        return DCP_OK;
    case DCP_KIND_INT:
        return put_int(packer, node);
    case DCP_KIND_FLOAT:
        buffer_append_u8(&packer->out, PACKED_FLOAT);
        put_double(packer, node->as.number);
        return DCP_OK;
    case DCP_KIND_COMPLEX:
        buffer_append_u8(&packer->out, PACKED_COMPLEX);
        put_double(packer, node->as.complex.real);
        put_double(packer, node->as.complex.imaginary);
        return DCP_OK;
    case DCP_KIND_STRING:
        put_text(packer, PACKED_STRING, text, length);
        return DCP_OK;
    case DCP_KIND_BYTES:
        put_text(packer, PACKED_BYTES, text, length);
        return DCP_OK;
    case DCP_KIND_BYTEARRAY:
        put_text(packer, PACKED_BYTEARRAY, text, length);
        return DCP_OK;
    case DCP_KIND_STREAM:
        put_text(packer, PACKED_STREAM, text, length);
        return DCP_OK;
    case DCP_KIND_DEVICE:
        put_text(packer, PACKED_DEVICE, text, length);
        return DCP_OK;
    case DCP_KIND_DTYPE:
        buffer_append_u8(&packer->out, PACKED_DTYPE);
        buffer_append_u8(&packer->out, (uint8_t)node->as.dtype);
        return DCP_OK;
    case DCP_KIND_TENSOR:
        put_tensor(packer, node->as.tensor);
        return DCP_OK;
    default:
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a value of kind %s cannot be packed",
                             node_kind_name(node->kind));
    }
}

static enum packed_kind container_kind(dcp_kind kind)
{
    switch (kind) {
    case DCP_KIND_TUPLE:
        return PACKED_TUPLE;
    case DCP_KIND_DICT:
        return PACKED_DICT;
    case DCP_KIND_ORDERED_DICT:
        return PACKED_ORDERED_DICT;
    case DCP_KIND_SET:
        return PACKED_SET;
    case DCP_KIND_FROZENSET:
        return PACKED_FROZENSET;
    case DCP_KIND_OPAQUE:
        return PACKED_OPAQUE;
    default:
        return PACKED_LIST;
    }
}

static dcp_status push(struct packer *packer, dcp_state *node)
{
    if (packer->depth == packer->capacity) {
        size_t capacity = packer->capacity * 2 + 32;
        struct open_node *stack = memory_reallocate_array(packer->stack, capacity, sizeof *stack);
        if (!stack)
            return error_no_memory(capacity * sizeof *stack, "nested values");
        packer->stack = stack;
        packer->capacity = capacity;
    }
    packer->stack[packer->depth++] = (struct open_node){.node = node};
    node_set_mark(node, packer->walk, NODE_OPEN);
    return DCP_OK;
}

static dcp_status put_size(struct packer *packer, const struct state_children *sizes)
{
    buffer_append_u8(&packer->out, PACKED_SIZE);
    buffer_append_u64(&packer->out, sizes->count);
    for (size_t i = 0; i < sizes->count; i++) {
        int64_t size;
        RETURN_IF_ERROR(dcp_state_as_int(sizes->items[i].value, &size));
        buffer_append_u64(&packer->out, (uint64_t)size);
    }
    return DCP_OK;
}

static dcp_status put_node(struct packer *packer, dcp_state *node)
{
    const struct state_children *children = node_children(node);
    if (!children)
        return put_leaf(packer, node);
    if (node->kind == DCP_KIND_SIZE)
        return put_size(packer, children);
    if (node_mark(node, packer->walk) == NODE_OPEN)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a %s contains itself, and cannot be packed",
                             node_kind_name(node->kind));
    buffer_append_u8(&packer->out, (uint8_t)container_kind(node->kind));
    if (node->kind == DCP_KIND_OPAQUE) {
        buffer_append_u64(&packer->out, strlen(node->as.opaque->name));
        buffer_append(&packer->out, node->as.opaque->name, strlen(node->as.opaque->name));
    }
    buffer_append_u64(&packer->out, children->count);
    return push(packer, node);
}

/* Describes what comes next of the innermost open container. */
static dcp_status step(struct packer *packer)
{
    struct open_node *top = &packer->stack[packer->depth - 1];
    const struct state_children *children = node_children(top->node);
    bool pairs = node_is_dict(top->node);
    if (top->next == (pairs ? 2 * children->count : children->count)) {
        node_set_mark(top->node, packer->walk, 0);
        packer->depth--;
        return DCP_OK;
    }
    size_t next = top->next++;
    if (pairs && next % 2 == 0)
        return put_node(packer, children->items[next / 2].key);
    return put_node(packer, children->items[pairs ? next / 2 : next].value);
}

dcp_status dcp_state_pack(const dcp_state *node, size_t limit, dcp_sink sink, void *context)
{
    if (!node || !sink)
        return dcp_error_set(DCP_ERR_ARGUMENT, "packing a node: the %s is NULL",
                             node ? "sink" : "node");
    /* the walk leaves marks in the nodes, which are the tree's to change */
    dcp_state *start = (dcp_state *)node;
    struct packer packer = {.walk = node_walk_begin(start)};
    if (limit == 0)
        limit = LIMIT_DEFAULT;
    buffer_init(&packer.out, limit);
    dcp_status status = put_node(&packer, start);
    while (status == DCP_OK && packer.depth > 0 && packer.out.status == DCP_OK)
        status = step(&packer);
    if (status == DCP_OK && packer.out.status == DCP_ERR_UNSUPPORTED)
        status =
            dcp_error_set(DCP_ERR_UNSUPPORTED, "the packed state has more than %zu bytes", limit);
    else if (status == DCP_OK)
        status = buffer_status(&packer.out);
    if (status == DCP_OK)
        status = error_checked(sink(context, packer.out.data, packer.out.size), "a sink");
    memory_release(packer.stack);
    buffer_free(&packer.out);
    return status;
}
