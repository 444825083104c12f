/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/node_block.h"

#include <string.h>

#include "base/checked.h"
#include "base/memory_account.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/device_memory.h"

/* account: what the memory is charged to; NULL: none. */
static dcp_status make_block(struct state_pool *pool, const dcp_device *device, uint64_t size,
                             struct memory_account *account, struct state_block **block)
{
    *block = NULL;
    if (size > SIZE_MAX)
        return error_no_memory(SIZE_MAX, "a chunk");
    struct state_block *made = arena_allocate(&pool->arena, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "a chunk's record");
    *made = (struct state_block){.size = size, .device = *device};
    struct memory_account *before = memory_account_enter(account);
    dcp_status status = device_memory_allocate(&made->device, (size_t)size, &made->data);
    memory_account_enter(before);
    RETURN_IF_ERROR(status);
    made->next = pool->blocks;
    pool->blocks = made;
    *block = made;
    return DCP_OK;
}

dcp_status state_block_new(struct state_pool *pool, const dcp_device *device, uint64_t size,
                           struct state_block **block)
{
    return make_block(pool, device, size, NULL, block);
}

bool chunk_reach(const struct state_tensor *tensor, const struct state_chunk *chunk,
                 uint64_t *start, uint64_t *end)
{
    uint64_t size = dcp_dtype_size(tensor->dtype);
    *start = (uintptr_t)chunk->data;
    *end = *start + size;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        uint64_t way = (uint64_t)(chunk->sizes[i] - 1) * (uint64_t)chunk->strides[i] * size;
        if (chunk->sizes[i] == 0)
            return false;
        *(chunk->strides[i] < 0 ? start : end) += way;
    }
    return true;
}

/* Elements from the first one to behind the last one; false: beyond any memory, or backwards. */
static bool count_reach(const struct state_tensor *tensor, const struct state_chunk *chunk,
                        uint64_t *reach)
{
    *reach = 0;
    for (int32_t i = 0; i < tensor->ndim; i++)
        if (chunk->sizes[i] == 0)
            return true;
    *reach = 1;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        uint64_t length;
        if (chunk->strides[i] < 0 ||
            !checked_multiply_u64((uint64_t)chunk->strides[i], (uint64_t)chunk->sizes[i] - 1,
                                  &length) ||
            !checked_add_u64(*reach, length, reach))
            return false;
    }
    return true;
}

bool chunk_is_view(const struct state_tensor *tensor, const struct state_chunk *chunk,
                   int64_t *offset)
{
    const struct state_block *block = chunk->block;
    uint64_t element = dcp_dtype_size(tensor->dtype), reach;
    *offset = 0;
    if (!block || !device_is_host(&block->device) ||
        (uintptr_t)chunk->data < (uintptr_t)block->data)
        return false;
    uint64_t before = (uintptr_t)chunk->data - (uintptr_t)block->data;
    if (before > block->size || before % element != 0 || !count_reach(tensor, chunk, &reach) ||
        reach > (block->size - before) / element)
        return false;
    *offset = (int64_t)(before / element);
    return true;
}

dcp_status chunk_read(const struct state_tensor *tensor, const struct state_chunk *chunk,
                      void *elements)
{
    int64_t dense[DCP_MAX_DIMS];
    uint64_t bytes = 0;
    shape_strides(tensor->ndim, chunk->sizes, dense);
    if (!shape_bytes(tensor->ndim, chunk->sizes, tensor->dtype, &bytes) || bytes == 0)
        return DCP_OK;
    if (device_is_host(&chunk->device)) {
        copy_strided(tensor->ndim, chunk->sizes, dcp_dtype_size(tensor->dtype), chunk->data,
                     chunk->strides, elements, dense);
        return DCP_OK;
    }
    if (!copy_is_dense(tensor->ndim, chunk->sizes, chunk->strides))
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "a tensor inside of an object, which is strided on its device");
    return device_end(&chunk->device,
                      chunk->device.operations->copy_to_host(&chunk->device, elements, chunk->data,
                                                             (size_t)bytes, (size_t)bytes, 1));
}

/* ---- separate memory for everything below a node ---- */

/* What alignment and the record of an allocation add to a block. */
#define AROUND_BLOCK ((uint64_t)128)

struct pending {
    dcp_state *node;
    struct pending *next;
};

struct owning {
    bool dry;        /* nothing is copied */
    uint64_t memory; /* of the copies */
    uint32_t walk;
    struct arena arena;
    struct pending *pending;
    struct name_table blocks; /* address of a block -> struct state_block, its copy */
};

static dcp_status await_visit(struct owning *owning, dcp_state *node)
{
    if (node_mark(node, owning->walk) != 0)
        return DCP_OK;
    node_set_mark(node, owning->walk, 1);
    struct pending *pending = arena_allocate(&owning->arena, sizeof *pending);
    if (!pending)
        return error_no_memory(sizeof *pending, "the values of an object");
    *pending = (struct pending){node, owning->pending};
    owning->pending = pending;
    return DCP_OK;
}

/* In a dry run *copy is NULL. */
static dcp_status new_block(struct owning *owning, struct state_pool *pool, uint64_t size,
                            struct state_block **copy)
{
    static const dcp_device host;
    *copy = NULL;
    if (!checked_add_u64(owning->memory, AROUND_BLOCK, &owning->memory) ||
        !checked_add_u64(owning->memory, size, &owning->memory))
        return error_no_memory(SIZE_MAX, "the tensors of an object");
    return owning->dry ? DCP_OK : make_block(pool, &host, size, memory_account_current(), copy);
}

/* Only of blocks in host memory. */
static dcp_status copy_block(struct owning *owning, struct state_pool *pool,
                             const struct state_block *block, struct state_block **copy)
{
    uint64_t address;
    bool existing;
    *copy = NULL;
    if (name_table_find(&owning->blocks, (const char *)&block, sizeof(void *), &address)) {
        *copy = (struct state_block *)(uintptr_t)address;
        return DCP_OK;
    }
    RETURN_IF_ERROR(new_block(owning, pool, block->size, copy));
    if (*copy && block->size > 0)
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): there is memory, or a failure */
        memcpy((*copy)->data, block->data, (size_t)block->size);
    const char *name = arena_copy(&owning->arena, &block, sizeof(void *));
    if (!name)
        return error_no_memory(sizeof(void *), "the blocks of an object");
    address = (uintptr_t)*copy;
    return name_table_add(&owning->blocks, name, sizeof(void *), &address, &existing);
}

static dcp_status own_chunk(struct owning *owning, struct state_pool *pool,
                            const struct state_tensor *tensor, struct state_chunk *chunk)
{
    struct state_block *block;
    int64_t offset;
    uint64_t bytes = 0;
    if (!chunk->data)
        return DCP_OK;
    if (chunk_is_view(tensor, chunk, &offset)) {
        RETURN_IF_ERROR(copy_block(owning, pool, chunk->block, &block));
        if (!block)
            return DCP_OK;
        chunk->data =
            (unsigned char *)block->data + offset * (int64_t)dcp_dtype_size(tensor->dtype);
    } else {
        shape_bytes(tensor->ndim, chunk->sizes, tensor->dtype, &bytes);
        RETURN_IF_ERROR(new_block(owning, pool, bytes, &block));
        if (!block)
            return DCP_OK;
        RETURN_IF_ERROR(chunk_read(tensor, chunk, block->data));
        shape_strides(tensor->ndim, chunk->sizes, chunk->strides);
        chunk->data = block->data;
        chunk->device = block->device;
    }
    chunk->block = block;
    return DCP_OK;
}

static dcp_status visit(struct owning *owning, dcp_state *node)
{
    const struct state_children *children = node_children(node);
    if (node->kind == DCP_KIND_TENSOR) {
        struct state_tensor *tensor = node->as.tensor;
        struct state_pool *pool = node->content ? node->content : node->pool;
        for (size_t c = 0; c < tensor->chunk_count; c++)
            RETURN_IF_ERROR(own_chunk(owning, pool, tensor, &tensor->chunks[c]));
    }
    for (size_t i = 0; children && i < children->count; i++) {
        if (children->items[i].key)
            RETURN_IF_ERROR(await_visit(owning, children->items[i].key));
        RETURN_IF_ERROR(await_visit(owning, children->items[i].value));
    }
    return children && children->making ? await_visit(owning, children->making) : DCP_OK;
}

static dcp_status walk(struct owning *owning, dcp_state *node)
{
    owning->walk = node_walk_begin(node);
    arena_init(&owning->arena, 0);
    name_table_init(&owning->blocks);
    dcp_status status = await_visit(owning, node);
    while (status == DCP_OK && owning->pending) {
        dcp_state *next = owning->pending->node;
        owning->pending = owning->pending->next;
        status = visit(owning, next);
    }
    name_table_free(&owning->blocks);
    arena_free(&owning->arena);
    return status;
}

dcp_status node_own_tensors(dcp_state *node)
{
    struct owning owning = {.dry = false};
    return walk(&owning, node);
}

dcp_status node_own_tensors_memory(dcp_state *node, uint64_t *memory)
{
    struct owning owning = {.dry = true};
    dcp_status status = walk(&owning, node);
    *memory = owning.memory;
    return status;
}
