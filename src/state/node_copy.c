/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying a part of a tree to another place, or another tree. Values that are shared, or contain
 * themselves, stay so: each container, and each tensor, is copied once. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "state/chunk_index.h"
#include "state/node_children.h"

/* A container whose children must still be copied, or a tensor. */
struct copied {
    const dcp_state *source;
    dcp_state *copy;
    struct copied *next;
};

struct copying {
    struct state_pool *pool;
    struct arena arena;
    struct name_table met; /* address of the source -> struct copied */
    struct copied *pending;
};

/* One after the other, so that the copy has an index of its own. */
static dcp_status copy_chunks(struct state_pool *pool, const struct state_tensor *from,
                              struct state_tensor *to)
{
    size_t bytes = (size_t)from->ndim * sizeof(int64_t);
    to->chunks = arena_copy(&pool->arena, from->chunks, from->chunk_count * sizeof *to->chunks);
    if (!to->chunks)
        return error_no_memory(from->chunk_count * sizeof *to->chunks, "chunks");
    to->chunk_capacity = from->chunk_count;
    to->chunk_count = 0;
    to->index = NULL;
    for (size_t i = 0; i < from->chunk_count; i++) {
        struct state_chunk *chunk = &to->chunks[i];
        RETURN_IF_ERROR(chunk_index_reserve(&pool->arena, to));
        chunk->offsets = arena_copy(&pool->arena, from->chunks[i].offsets, bytes);
        chunk->sizes = arena_copy(&pool->arena, from->chunks[i].sizes, bytes);
        chunk->strides = arena_copy(&pool->arena, from->chunks[i].strides, bytes);
        if (!chunk->offsets || !chunk->sizes || !chunk->strides)
            return error_no_memory(3 * bytes, "a chunk's numbers");
        to->chunk_count++;
        chunk_index_added(to);
    }
    return DCP_OK;
}

/* Nothing of it is in the tree of the source, which may be freed. */
static dcp_status copy_tensor(struct state_pool *pool, const struct state_tensor *from,
                              dcp_state *copy)
{
    struct arena *arena = &pool->arena;
    struct state_tensor *to = arena_copy(arena, from, sizeof *from);
    if (!to)
        return error_no_memory(sizeof *to, "a tensor");
    to->global_shape =
        arena_copy(arena, from->global_shape, (size_t)from->ndim * sizeof *from->global_shape);
    to->layout = from->layout ? arena_copy(arena, from->layout, sizeof *from->layout) : NULL;
    to->key = from->key ? arena_copy_text(arena, from->key, strlen(from->key)) : NULL;
    if (!to->global_shape || (from->layout && !to->layout) || (from->key && !to->key))
        return error_no_memory(sizeof *to, "a tensor");
    copy->as.tensor = to;
    return copy_chunks(pool, from, to);
}

static bool is_text(const dcp_state *node)
{
    return node->kind == DCP_KIND_STRING || node->kind == DCP_KIND_BYTES ||
           node->kind == DCP_KIND_BYTEARRAY || node->kind == DCP_KIND_DEVICE ||
           node->kind == DCP_KIND_STREAM;
}

/* Without children. */
static dcp_state *copy_opaque(struct state_pool *pool, const struct state_opaque *opaque)
{
    dcp_state *copy = node_text(pool, DCP_KIND_OPAQUE, opaque->name, strlen(opaque->name));
    if (!copy)
        return NULL;
    char *name = copy->as.opaque->name;
    *copy->as.opaque = *opaque;
    copy->as.opaque->name = name;
    copy->as.opaque->children = (struct state_children){0};
    return copy;
}

/* A node without children; NULL: no memory. */
static dcp_state *copy_leaf(struct state_pool *pool, const dcp_state *node)
{
    if (is_text(node))
        return node_text(pool, node->kind, node->as.text.bytes, node->as.text.length);
    if (node->kind == DCP_KIND_OPAQUE)
        return copy_opaque(pool, node->as.opaque);
    if (node->kind == DCP_KIND_INT && node->as.integer.is_big)
        return node_digits(pool, node->as.integer.digits);
    if (node->kind == DCP_KIND_INT)
        return node->as.integer.is_unsigned ? node_uint(pool, node->as.integer.bits)
                                            : node_int(pool, (int64_t)node->as.integer.bits);
    dcp_state *copy = node_new(pool, node->kind);
    if (!copy || node_children(node))
        return copy;
    if (node->kind == DCP_KIND_TENSOR)
        return copy_tensor(pool, node->as.tensor, copy) == DCP_OK ? copy : NULL;
    copy->as = node->as;
    return copy;
}

/* What has an identity is copied once. */
static dcp_status copy_shareable(struct copying *copying, const dcp_state *node, dcp_state **copy)
{
    struct copied *made = arena_allocate(&copying->arena, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "copying values");
    *made = (struct copied){.source = node};
    uint64_t value = (uint64_t)(uintptr_t)made;
    bool existing;
    RETURN_IF_ERROR(name_table_add(&copying->met, (const char *)&made->source, sizeof made->source,
                                   &value, &existing));
    if (existing) {
        *copy = ((const struct copied *)(uintptr_t)value)->copy;
        return DCP_OK;
    }
    made->copy = copy_leaf(copying->pool, node);
    *copy = made->copy;
    if (node_children(node)) {
        made->next = copying->pending;
        copying->pending = made;
    }
    return DCP_OK;
}

static dcp_status copy_node(struct copying *copying, const dcp_state *node, dcp_state **copy)
{
    *copy = NULL;
    if (node_children(node) || node->kind == DCP_KIND_TENSOR)
        RETURN_IF_ERROR(copy_shareable(copying, node, copy));
    else
        *copy = copy_leaf(copying->pool, node);
    return *copy ? DCP_OK : DCP_ERR_NO_MEMORY;
}

static dcp_status copy_children(struct copying *copying, const struct copied *container)
{
    const struct state_children *children = node_children(container->source);
    for (size_t i = 0; i < children->count; i++) {
        dcp_state *key = NULL, *value;
        if (children->items[i].key)
            RETURN_IF_ERROR(copy_node(copying, children->items[i].key, &key));
        RETURN_IF_ERROR(copy_node(copying, children->items[i].value, &value));
        RETURN_IF_ERROR(node_append(copying->pool, container->copy, key, value));
    }
    if (node_is_watched(container->source))
        RETURN_IF_ERROR(node_watch(copying->pool, container->copy));
    if (children->making)
        return copy_node(copying, children->making, &container->copy->as.children.making);
    return DCP_OK;
}

dcp_status node_copy(struct state_pool *pool, const dcp_state *node, dcp_state **copy)
{
    struct copying copying = {.pool = pool};
    arena_init(&copying.arena, 0);
    name_table_init(&copying.met);
    dcp_status status = copy_node(&copying, node, copy);
    while (status == DCP_OK && copying.pending) {
        const struct copied *container = copying.pending;
        copying.pending = container->next;
        status = copy_children(&copying, container);
    }
    name_table_free(&copying.met);
    arena_free(&copying.arena);
    return status;
}

dcp_status state_copy_root(const dcp_state *dict, dcp_state **copy)
{
    dcp_state *root = dcp_state_new(), *made = NULL;
    *copy = NULL;
    if (!root)
        return error_no_memory(sizeof(struct state_root), "a copy of a state");
    dcp_status status = dcp_state_status(dict);
    if (status == DCP_OK && !node_is_dict(dict))
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the state is not a dict");
    if (status == DCP_OK)
        status = node_copy(&root->root->own, dict, &made);
    if (status != DCP_OK) {
        dcp_state_free(root);
        return status;
    }
    root->as.children = made->as.children;
    node_moved(root);
    *copy = root;
    return DCP_OK;
}
