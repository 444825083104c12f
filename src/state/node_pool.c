/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a tree: pools that nodes come from, and objects that take each other's place. */
#include "base/memory.h"
#include "state/box.h"
#include "state/device_memory.h"
#include "state/node_block.h"
#include "state/node_children.h"
#include "state/node_pair.h"

static void pool_init(struct state_pool *pool, struct state_root *root)
{
    *pool = (struct state_pool){.root = root};
    arena_init(&pool->arena, 0);
    pool->arena.unpaid = true; /* a tree is the caller's, also what a load puts into it */
}

static void pool_link(struct state_pool *pool, struct state_pool **list)
{
    pool->next = *list;
    pool->link = list;
    if (pool->next)
        pool->next->link = &pool->next;
    *list = pool;
}

static void pool_unlink(struct state_pool *pool)
{
    if (!pool->link)
        return;
    *pool->link = pool->next;
    if (pool->next)
        pool->next->link = pool->link;
    pool->link = NULL;
    pool->next = NULL;
}

/* Frees what a pool holds, but for the objects inside it. */
static void pool_clear(struct state_pool *pool)
{
    for (struct state_index *index = pool->indexes; index; index = index->next)
        index_free(index);
    for (dcp_state *pair = pool->pairs; pair; pair = pair->as.pair.next_in_pool)
        node_pair_close(pair);
    for (struct state_block *block = pool->blocks; block; block = block->next)
        device_memory_release(&block->device, block->data);
    arena_free(&pool->arena);
}

/* Objects are in places of objects are in places of ...: a list of what is left to free, not
 * recursion. */
static void objects_free(struct state_pool *list)
{
    while (list) {
        struct state_pool *pool = list;
        list = pool->next;
        while (pool->objects) {
            struct state_pool *inner = pool->objects;
            pool->objects = inner->next;
            inner->next = list;
            list = inner;
        }
        pool_clear(pool);
        memory_release(pool);
    }
}

struct state_pool *state_pool_new(struct state_root *root)
{
    struct state_pool *pool = memory_allocate_unpaid(sizeof *pool);
    if (!pool) {
        error_no_memory(sizeof *pool, "an object");
        return NULL;
    }
    pool_init(pool, root);
    return pool;
}

void state_pool_free(struct state_pool *pool)
{
    if (!pool)
        return;
    pool_unlink(pool);
    objects_free(pool);
}

dcp_state *dcp_state_new(void)
{
    struct state_root *root = memory_allocate_unpaid(sizeof *root);
    if (!root) {
        error_no_memory(sizeof *root, "a state");
        return NULL;
    }
    *root = (struct state_root){0};
    pool_init(&root->own, root);
    root->node.kind = DCP_KIND_DICT;
    root->node.root = root;
    root->node.pool = &root->own;
    return &root->node;
}

void dcp_state_free(dcp_state *node)
{
    if (!node || node != &node->root->node)
        return;
    struct state_root *root = node->root;
    objects_free(root->own.objects);
    pool_clear(&root->own);
    memory_release(root);
}

dcp_status node_replace(dcp_state *target, struct state_pool *pool, dcp_state *object)
{
    if (target == &target->root->node)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the root of a state cannot be replaced");
    if (pool->root != target->root || object->pool != pool)
        return dcp_error_set(DCP_ERR_ARGUMENT, "an object of another state cannot be put here");
    struct state_pool *before = target->content;
    node_unwatch(target);
    target->kind = object->kind;
    target->as = object->as;
    target->content = pool;
    node_moved(target);
    pool_link(pool, &target->pool->objects);
    state_pool_free(before);
    return DCP_OK;
}

dcp_status node_add_object(dcp_status status, dcp_state *parent, const char *key,
                           struct state_pool *pool, dcp_state *object)
{
    if (status == DCP_OK)
        status = dcp_state_none(parent, key);
    if (status == DCP_OK)
        status = node_replace(dcp_state_at(parent, dcp_state_count(parent) - 1), pool, object);
    if (status != DCP_OK)
        state_pool_free(pool);
    return status;
}

dcp_status node_chunk_allocate(dcp_state *tensor_node, size_t chunk_index)
{
    struct state_tensor *tensor = tensor_node->as.tensor;
    struct state_chunk *chunk = &tensor->chunks[chunk_index];
    struct state_pool *pool = tensor_node->content ? tensor_node->content : tensor_node->pool;
    struct state_block *block;
    uint64_t bytes;
    if (!shape_bytes(tensor->ndim, chunk->sizes, tensor->dtype, &bytes) || bytes > SIZE_MAX)
        return dcp_error_set(DCP_ERR_INTERNAL, "a chunk of a size that was not checked");
    RETURN_IF_ERROR(state_block_new(pool, &chunk->device, bytes, &block));
    shape_strides(tensor->ndim, chunk->sizes, chunk->strides);
    chunk->data = block->data;
    chunk->block = block;
    return DCP_OK;
}

uint32_t node_walk_begin(dcp_state *node)
{
    return ++node->root->walk;
}

unsigned node_mark(const dcp_state *node, uint32_t walk)
{
    return node->mark >> 3 == (walk & (UINT32_MAX >> 3)) ? node->mark & 7 : 0;
}

void node_set_mark(dcp_state *node, uint32_t walk, unsigned mark)
{
    node->mark = walk << 3 | mark;
}
