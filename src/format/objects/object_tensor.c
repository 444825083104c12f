/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/objects/object_tensor.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/copy.h"
#include "state/element_sign.h"

/* Tensors may share storages and repeat elements, but not without end. */
#define ALLOWANCE_BASE  (UINT64_C(64) << 20)
#define ALLOWANCE_TIMES 4

/* A storage in memory, as stored. */
struct object_storage {
    struct object_storage *next;
    _Alignas(max_align_t) unsigned char bytes[];
};

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
    name_table_init(&tensors->by_key);
}

void object_tensors_free(struct object_tensors *tensors)
{
    while (tensors->storages != NULL) {
        struct object_storage *storage = tensors->storages;
        tensors->storages = storage->next;
        memory_release(storage);
    }
    name_table_free(&tensors->by_key);
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

/* The storage in memory, read when the first tensor asks for it. */
static dcp_status find_storage(struct object_tensors *tensors, const struct tensor_pickle *tensor,
                               const struct tensor_view *view, const unsigned char **bytes)
{
    uint64_t address;
    if (name_table_find(&tensors->by_key, tensor->storage_key, tensor->storage_key_length,
                        &address)) {
        *bytes = ((struct object_storage *)(uintptr_t)address)->bytes;
        return DCP_OK;
    }
    RETURN_IF_ERROR(charge(tensors, view->storage_bytes));
    size_t size = sizeof(struct object_storage) + (size_t)view->storage_bytes;
    struct object_storage *storage = memory_allocate(size);
    if (storage == NULL)
        return error_no_memory(size, "a storage");
    bool existing;
    address = (uintptr_t)storage;
    dcp_status status = read_storage(tensors, tensor, view, storage->bytes);
    if (status == DCP_OK)
        status = name_table_add(&tensors->by_key, tensor->storage_key, tensor->storage_key_length,
                                &address, &existing);
    if (status != DCP_OK) {
        memory_release(storage);
        return status;
    }
    storage->next = tensors->storages;
    tensors->storages = storage;
    *bytes = storage->bytes;
    return DCP_OK;
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

static dcp_status read_elements(struct object_tensors *tensors, const struct tensor_pickle *tensor,
                                const struct tensor_view *view, const struct state_chunk *chunk,
                                size_t size)
{
    size_t element_size = dcp_dtype_size(view->dtype);
    const unsigned char *storage;
    if (size == view->storage_bytes && view->storage_offset == 0 &&
        copy_is_dense(view->ndim, view->sizes, view->strides)) {
        RETURN_IF_ERROR(read_storage(tensors, tensor, view, chunk->data));
    } else {
        RETURN_IF_ERROR(find_storage(tensors, tensor, view, &storage));
        copy_strided(view->ndim, view->sizes, element_size,
                     storage + (size_t)view->storage_offset * element_size, view->strides,
                     chunk->data, chunk->strides);
    }
    if (view->swapped)
        copy_swap_bytes(view->dtype, chunk->data, size / element_size);
    return resolve_flags(view, chunk->data, size / element_size);
}

static dcp_status make_node(const struct tensor_view *view, bool requires_grad,
                            struct state_pool *pool, dcp_state **node)
{
    dcp_tensor tensor = {.dtype = view->dtype, .ndim = view->ndim, .requires_grad = requires_grad};
    if (view->ndim > 0)
        memcpy(tensor.global_shape, view->sizes, (size_t)view->ndim * sizeof *view->sizes);
    *node = node_tensor(pool, &tensor, false);
    if (*node == NULL) {
        struct error_story story;
        error_save(&story);
        return story.status;
    }
    return node_chunk_allocate(*node, 0);
}

dcp_status object_tensor_read(struct object_tensors *tensors, const struct pickle_value *value,
                              struct state_pool *pool, dcp_state **node)
{
    struct tensor_pickle tensor;
    struct tensor_view view;
    struct arena arena;
    uint64_t size = 0;
    arena_init(&arena, 0);
    dcp_status status = tensor_pickle_parse(value, &arena, &tensor);
    if (status == DCP_OK)
        status = tensor_pickle_view(&tensor, tensors->archive, &view);
    if (status == DCP_OK && !shape_bytes(view.ndim, view.sizes, view.dtype, &size))
        status = dcp_error_set(DCP_ERR_INTERNAL, "a tensor's shape that was not checked");
    if (status == DCP_OK)
        status = charge(tensors, size);
    if (status == DCP_OK)
        status = make_node(&view, tensor.requires_grad, pool, node);
    if (status == DCP_OK && size > 0)
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there is a node, or a failure */
        status = read_elements(tensors, &tensor, &view, (*node)->as.tensor->chunks, (size_t)size);
    arena_free(&arena);
    return status;
}
