/* SPDX-License-Identifier: BSD-3-Clause */
/* Making nodes. */
#include "state/node.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

const char *node_kind_name(dcp_kind kind)
{
    switch (kind) {
    case DCP_KIND_NONE:
        return "None";
    case DCP_KIND_BOOL:
        return "bool";
    case DCP_KIND_INT:
        return "int";
    case DCP_KIND_FLOAT:
        return "float";
    case DCP_KIND_COMPLEX:
        return "complex";
    case DCP_KIND_STRING:
        return "string";
    case DCP_KIND_BYTES:
        return "bytes";
    case DCP_KIND_BYTEARRAY:
        return "bytearray";
    case DCP_KIND_LIST:
        return "list";
    case DCP_KIND_TUPLE:
        return "tuple";
    case DCP_KIND_DICT:
        return "dict";
    case DCP_KIND_ORDERED_DICT:
        return "ordered dict";
    case DCP_KIND_SET:
        return "set";
    case DCP_KIND_FROZENSET:
        return "frozenset";
    case DCP_KIND_PAIR:
        return "pair";
    case DCP_KIND_TENSOR:
        return "tensor";
    case DCP_KIND_STATEFUL:
        return "stateful entry";
    case DCP_KIND_DTYPE:
        return "torch.dtype";
    case DCP_KIND_SIZE:
        return "torch.Size";
    case DCP_KIND_DEVICE:
        return "torch.device";
    case DCP_KIND_OPAQUE:
        return "opaque object";
    case DCP_KIND_STREAM:
        return "stored stream";
    }
    return "node of an unknown kind";
}

bool node_is_dict(const dcp_state *node)
{
    return node->kind == DCP_KIND_DICT || node->kind == DCP_KIND_ORDERED_DICT;
}

const struct state_children *node_children(const dcp_state *node)
{
    switch (node->kind) {
    case DCP_KIND_LIST:
    case DCP_KIND_TUPLE:
    case DCP_KIND_DICT:
    case DCP_KIND_ORDERED_DICT:
    case DCP_KIND_SET:
    case DCP_KIND_FROZENSET:
    case DCP_KIND_SIZE:
        return &node->as.children;
    case DCP_KIND_OPAQUE:
        return &node->as.opaque->children;
    default:
        return NULL;
    }
}

dcp_state *node_new(struct state_pool *pool, dcp_kind kind)
{
    dcp_state *node = arena_allocate(&pool->arena, sizeof *node);
    struct state_opaque *opaque = NULL;
    if (node && kind == DCP_KIND_OPAQUE) {
        opaque = arena_allocate(&pool->arena, sizeof *opaque);
        if (opaque)
            *opaque = (struct state_opaque){.name = ""};
    }
    if (!node || (kind == DCP_KIND_OPAQUE && !opaque)) {
        error_no_memory(sizeof *node, "a node");
        return NULL;
    }
    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->root = pool->root;
    node->pool = pool;
    if (opaque)
        node->as.opaque = opaque;
    return node;
}

dcp_state *node_text(struct state_pool *pool, dcp_kind kind, const char *bytes, size_t length)
{
    dcp_state *node = node_new(pool, kind);
    if (!node)
        return NULL;
    char *copy = arena_copy_text(&pool->arena, bytes, length);
    if (!copy) {
        error_no_memory(length, node_kind_name(kind));
        return NULL;
    }
    if (kind == DCP_KIND_OPAQUE) {
        node->as.opaque->name = copy;
    } else {
        node->as.text.bytes = copy;
        node->as.text.length = length;
    }
    return node;
}

dcp_state *node_int(struct state_pool *pool, int64_t value)
{
    dcp_state *node = node_new(pool, DCP_KIND_INT);
    if (node)
        node->as.integer.bits = (uint64_t)value;
    return node;
}

dcp_state *node_uint(struct state_pool *pool, uint64_t value)
{
    dcp_state *node = node_new(pool, DCP_KIND_INT);
    if (node) {
        node->as.integer.bits = value;
        node->as.integer.is_unsigned = value > INT64_MAX;
    }
    return node;
}

/* The digits' value if it fits in 64 bits. */
static bool digits_value(const char *digits, bool negative, uint64_t *bits)
{
    *bits = 0;
    for (; *digits; digits++) {
        uint64_t digit = (uint64_t)(*digits - '0');
        if (__builtin_mul_overflow(*bits, 10, bits) || __builtin_add_overflow(*bits, digit, bits))
            return false;
    }
    return !negative || *bits <= (uint64_t)INT64_MAX + 1;
}

dcp_state *node_digits(struct state_pool *pool, const char *digits)
{
    bool negative = *digits == '-';
    const char *first = digits + negative;
    size_t length = strspn(first, "0123456789");
    if (length == 0 || first[length] != '\0') {
        dcp_error_set(DCP_ERR_ARGUMENT, "\"%.40s\" is not an int in digits", digits);
        return NULL;
    }
    uint64_t bits;
    if (digits_value(first, negative, &bits))
        return negative ? node_int(pool, (int64_t)(0 - bits)) : node_uint(pool, bits);
    dcp_state *node = node_new(pool, DCP_KIND_INT);
    if (!node)
        return NULL;
    node->as.integer.is_big = true;
    node->as.integer.digits = arena_copy_text(&pool->arena, digits, negative + length);
    if (!node->as.integer.digits) {
        error_no_memory(length, "digits");
        return NULL;
    }
    return node;
}
