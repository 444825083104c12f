/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/objects/object_tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/copy.h"
#include "state/dtype.h"
#include "state/element_sign.h"
#include "state/node_block.h"

/* Storages are read once, but for flags and byte orders that take copies, not without end. */
#define ALLOWANCE_BASE  (UINT64_C(64) << 20)
#define ALLOWANCE_TIMES 4

void object_tensors_init(struct object_tensors *tensors, const struct zip_archive *archive)
{
    uint64_t total = 0;
    for (size_t i = 0; i < archive->count; i++) {
        const struct zip_record *record = &archive->records[i];
        uint64_t most = record->stored_size;
        if (record->deflated && !checked_multiply_u64(most, ZIP_INFLATED_TIMES, &most))
            most = UINT64_MAX;
        if (record->deflated && most < ZIP_INFLATED_BASE)
            most = ZIP_INFLATED_BASE;
        if (!checked_add_u64(total, record->size < most ? record->size : most, &total))
            total = UINT64_MAX;
    }
    if (!checked_multiply_u64(total, ALLOWANCE_TIMES, &total) ||
        !checked_add_u64(total, ALLOWANCE_BASE, &total))
        total = UINT64_MAX;
    *tensors = (struct object_tensors){.archive = archive, .allowance = total};
    arena_init(&tensors->names, 0);
    name_table_init(&tensors->blocks);
}

void object_tensors_free(struct object_tensors *tensors)
{
    name_table_free(&tensors->blocks);
    arena_free(&tensors->names);
}

static dcp_status charge(struct object_tensors *tensors, uint64_t bytes)
{
    if (bytes > tensors->allowance)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "the tensors of an object take %" PRIu64
                             " bytes more than their storages account for",
                             bytes - tensors->allowance);
    tensors->allowance -= bytes;
    return DCP_OK;
}

/* The storage's bytes as stored, inflated and checked. */
static dcp_status read_storage(const struct object_tensors *tensors,
                               const struct tensor_pickle *tensor, const struct tensor_view *view,
                               void *bytes)
{
    const struct byte_source *source = &tensors->archive->source;
    size_t size = (size_t)view->storage_bytes, stored_size = (size_t)view->data_length;
    dcp_status status;
    if (view->deflated) {
        RETURN_IF_ERROR(zip_check_inflated("data", stored_size, size));
        void *stored = memory_allocate(stored_size);
        if (stored == NULL)
            return error_no_memory(stored_size, "a deflated storage");
        status = byte_source_read(source, view->data_offset, stored, stored_size);
        if (status == DCP_OK)
            status = zip_inflate(stored, stored_size, bytes, size);
        memory_release(stored);
    } else {
        status = byte_source_read(source, view->data_offset, bytes, size);
    }
    if (status != DCP_OK || !view->has_crc)
        return status;
    char record[64];
    snprintf(record, sizeof record, "data/%.*s", (int)tensor->storage_key_length,
             tensor->storage_key);
    return zip_check_crc(record, view->crc, crc32_update(0, bytes, size));
}

/* Bytes of what a machine of the other order would reverse; 0 where nothing is to be reversed. */
static char swapped_width(const struct tensor_view *view)
{
    const struct dtype_facts *facts = dtype_facts(view->dtype);
    if (!view->swapped || facts == NULL)
        return 0;
    return (char)(facts->size / facts->numbers);
}

/* The block of a storage, in this machine's byte order. */
static dcp_status read_block(struct object_tensors *tensors, const struct tensor_pickle *tensor,
                             const struct tensor_view *view, struct state_pool *pool,
                             struct state_block **block)
{
    static const dcp_device host;
    RETURN_IF_ERROR(charge(tensors, view->storage_bytes));
    RETURN_IF_ERROR(state_block_new(pool, &host, view->storage_bytes, block));
    RETURN_IF_ERROR(read_storage(tensors, tensor, view, (*block)->data));
    if (view->swapped)
        copy_swap_bytes(view->dtype, (*block)->data,
                        (size_t)view->storage_bytes / dcp_dtype_size(view->dtype));
    return DCP_OK;
}

/* The block of a tensor's storage, read for the first tensor that uses it. If bytes must be
 * swapped, elements of different widths cannot share a block. */
static dcp_status find_block(struct object_tensors *tensors, const struct tensor_pickle *tensor,
                             const struct tensor_view *view, struct state_pool *pool,
                             struct state_block **block)
{
    char name[ZIP_NAME_MAX + 1];
    size_t length = tensor->storage_key_length + 1;
    uint64_t address;
    bool existing;
    if (length > sizeof name)
        return dcp_error_set(DCP_ERR_INTERNAL, "a storage's key that was not checked");
    memcpy(name, tensor->storage_key, length - 1);
    name[length - 1] = swapped_width(view);
    if (name_table_find(&tensors->blocks, name, length, &address)) {
        *block = (struct state_block *)(uintptr_t)address;
        return DCP_OK;
    }
    RETURN_IF_ERROR(read_block(tensors, tensor, view, pool, block));
    const char *kept = arena_copy(&tensors->names, name, length);
    if (kept == NULL)
        return error_no_memory(length, "a storage's key");
    address = (uintptr_t)*block;
    return name_table_add(&tensors->blocks, kept, length, &address, &existing);
}

/* Carries out the flags on dense little-endian elements. */
static dcp_status resolve_flags(const struct tensor_view *view, void *elements, size_t count)
{
    if (view->negative && !element_has_sign(view->dtype))
        return dcp_error_set(DCP_ERR_FORMAT, "tensor of %s that is flagged as negative",
                             dcp_dtype_name(view->dtype));
    if (view->conjugate)
        element_conjugate(view->dtype, elements, count);
    if (view->negative)
        element_negate(view->dtype, elements, count);
    return DCP_OK;
}

static dcp_status make_node(const struct tensor_view *view, const struct tensor_pickle *said,
                            const struct state_block *block, struct state_pool *pool,
                            dcp_state **node)
{
    dcp_tensor tensor = {.dtype = view->dtype,
                         .ndim = view->ndim,
                         .strided = true,
                         .requires_grad = said->requires_grad};
    if (view->ndim > 0) {
        memcpy(tensor.global_shape, view->sizes, (size_t)view->ndim * sizeof *view->sizes);
        memcpy(tensor.strides, view->strides, (size_t)view->ndim * sizeof *view->strides);
    }
    if (block != NULL)
        tensor.data = (unsigned char *)block->data +
                      (size_t)view->storage_offset * dcp_dtype_size(view->dtype);
    *node = node_tensor(pool, &tensor, block);
    if (*node != NULL) {
        (*node)->as.tensor->parameter = said->parameter;
        return DCP_OK;
    }
    return error_status();
}

/* Elements that differ from the storage are copied to separate memory. */
static dcp_status read_flagged(struct object_tensors *tensors, const struct tensor_view *view,
                               uint64_t size, dcp_state *node)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there is a node, or a failure */
    struct state_chunk *chunk = &node->as.tensor->chunks[0];
    const void *stored = chunk->data;
    RETURN_IF_ERROR(charge(tensors, size));
    RETURN_IF_ERROR(node_chunk_allocate(node, 0));
    copy_strided(view->ndim, view->sizes, dcp_dtype_size(view->dtype), stored, view->strides,
                 chunk->data, chunk->strides);
    return resolve_flags(view, chunk->data, (size_t)size / dcp_dtype_size(view->dtype));
}

/* Where a tensor without elements begins need not be in its storage. */
static bool begins_inside(const struct tensor_view *view)
{
    return (uint64_t)view->storage_offset <= view->storage_bytes / dcp_dtype_size(view->dtype);
}

static dcp_status read_tensor(struct object_tensors *tensors, const struct tensor_pickle *tensor,
                              const struct tensor_view *view, struct state_pool *pool,
                              dcp_state **node)
{
    struct state_block *block = NULL;
    uint64_t size = 0;
    RETURN_IF_ERROR(tensor_pickle_check_expansion(view));
    if (!shape_bytes(view->ndim, view->sizes, view->dtype, &size))
        return dcp_error_set(DCP_ERR_INTERNAL, "a tensor's shape that was not checked");
    if (begins_inside(view))
        RETURN_IF_ERROR(find_block(tensors, tensor, view, pool, &block));
    RETURN_IF_ERROR(make_node(view, tensor, block, pool, node));
    return view->conjugate || view->negative ? read_flagged(tensors, view, size, *node) : DCP_OK;
}

dcp_status object_tensor_read(struct object_tensors *tensors, const struct pickle_value *value,
                              struct state_pool *pool, dcp_state **node)
{
    struct tensor_pickle tensor;
    struct tensor_view view;
    struct arena arena;
    arena_init(&arena, 0);
    dcp_status status = tensor_pickle_parse(value, &arena, &tensor);
    if (status == DCP_OK)
        status = tensor_pickle_view(&tensor, tensors->archive, &view);
    if (status == DCP_OK)
        status = read_tensor(tensors, &tensor, &view, pool, node);
    arena_free(&arena);
    return status;
}
