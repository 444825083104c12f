/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors inside of objects, as torch.save writes them: a call that rebuilds the tensor from its
 * storage, which is a record of the stream. Tensors of one block of the tree share a storage. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/objects/object_encoder.h"
#include "format/streams/storage_class.h"
#include "state/box.h"
#include "state/dtype.h"
#include "state/node_block.h"

static dcp_status check_tensor(const struct state_tensor *tensor)
{
    struct box whole = box_whole(tensor->ndim, tensor->global_shape);
    if (!dtype_is_savable(tensor->dtype))
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "dtype %s cannot be saved: PyTorch 2.13 could not load it",
                             dcp_dtype_name(tensor->dtype));
    if (tensor->chunk_count != 1 ||
        !box_equal(whole,
                   (struct box){tensor->ndim, tensor->chunks[0].offsets, tensor->chunks[0].sizes}))
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "a tensor inside of an object, of which this rank does not hold all "
                             "in one chunk");
    if (!tensor->chunks[0].data && box_volume(whole) > 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a tensor without memory to save from");
    return DCP_OK;
}

static dcp_status add_storage(struct encoder *encoder, struct encoder_storage storage)
{
    if (encoder->storage_count == encoder->storage_capacity) {
        size_t capacity = 2 * encoder->storage_capacity + 16;
        struct encoder_storage *storages =
            memory_reallocate_array(encoder->storages, capacity, sizeof *storages);
        if (storages == NULL)
            return error_no_memory(capacity * sizeof *storages, "the storages of an object");
        encoder->storages = storages;
        encoder->storage_capacity = capacity;
    }
    encoder->storages[encoder->storage_count++] = storage;
    return DCP_OK;
}

/* The storage of a tensor, and where the tensor begins in it. */
static dcp_status take_storage(struct encoder *encoder, const dcp_state *node, size_t *index,
                               int64_t *offset)
{
    const struct state_tensor *tensor = node->as.tensor;
    struct encoder_storage storage = {.tensor = node, .dtype = tensor->dtype};
    struct encoder_slot *slot;
    bool existing;
    *index = encoder->storage_count;
    if (chunk_is_view(tensor, &tensor->chunks[0], offset)) {
        storage.block = tensor->chunks[0].block;
        storage.size = storage.block->size;
        RETURN_IF_ERROR(encoder_take_block(encoder, storage.block, &slot, &existing));
        if (existing) {
            *index = slot->index;
            return DCP_OK;
        }
        slot->index = (uint32_t)encoder->storage_count;
    } else {
        shape_bytes(tensor->ndim, tensor->global_shape, tensor->dtype, &storage.size);
    }
    if (storage_class_name(tensor->dtype) == NULL ||
        storage.size % dcp_dtype_size(tensor->dtype) != 0)
        storage.dtype = DCP_U8;
    return add_storage(encoder, storage);
}

/* A text that Python has once, so that it is found in the memo from the second time on. */
static void put_constant(struct encoder *encoder, const char *text, uint32_t *memo)
{
    if (*memo != 0) {
        pickle_get_memo(encoder->out, *memo - 1);
        return;
    }
    pickle_put_string(encoder->out, text, strlen(text));
    *memo = encoder_put_memo(encoder) + 1;
}

static void put_numbers(struct encoder *encoder, int32_t count, const int64_t *numbers)
{
    if (count > 3)
        pickle_put_op(encoder->out, OP_MARK);
    for (int32_t i = 0; i < count; i++)
        pickle_put_int(encoder->out, numbers[i]);
    encoder_put_tuple(encoder, (size_t)count);
    if (count > 0)
        encoder_put_memo(encoder);
}

/* typed: as a storage of the dtype's class; else as bytes. */
static void put_storage(struct encoder *encoder, size_t index, bool typed)
{
    struct encoder_storage *storage = &encoder->storages[index];
    char key[24];
    snprintf(key, sizeof key, "%zu", index);
    pickle_put_op(encoder->out, OP_MARK);
    put_constant(encoder, "storage", &encoder->memo_of_storage);
    if (typed)
        encoder_put_storage_class(encoder, storage->dtype);
    else
        encoder_put_global(encoder, GLOBAL_UNTYPED_STORAGE);
    put_constant(encoder, key, &storage->memo_of_key);
    put_constant(encoder, "cpu", &encoder->memo_of_cpu);
    pickle_put_int(encoder->out, (int64_t)(typed ? storage->size / dcp_dtype_size(storage->dtype)
                                                 : storage->size));
    pickle_put_op(encoder->out, OP_TUPLE);
    encoder_put_memo(encoder);
    pickle_put_op(encoder->out, OP_BINPERSID);
}

static void put_no_hooks(struct encoder *encoder)
{
    encoder_put_global(encoder, GLOBAL_ORDERED_DICT);
    encoder_put_reduce(encoder, 0);
    encoder_put_memo(encoder);
}

/* PyTorch gives all tensors of a storage the dtype of the first class that it reads, except tensors
 * that name their dtype. */
static bool has_dtype_of_storage(const struct encoder *encoder, const struct state_tensor *tensor,
                                 size_t index)
{
    return encoder->storages[index].dtype == tensor->dtype &&
           storage_class_name(tensor->dtype) != NULL;
}

static void put_rebuilt(struct encoder *encoder, const struct state_tensor *tensor, size_t index,
                        int64_t offset, bool requires_grad)
{
    const int64_t *strides = tensor->chunks[0].strides;
    int64_t dense[DCP_MAX_DIMS];
    bool typed = has_dtype_of_storage(encoder, tensor, index);
    if (encoder->storages[index].block == NULL) {
        shape_strides(tensor->ndim, tensor->global_shape, dense);
        strides = dense;
    }
    encoder_put_global(encoder, typed ? GLOBAL_REBUILD_TYPED : GLOBAL_REBUILD_UNTYPED);
    pickle_put_op(encoder->out, OP_MARK);
    put_storage(encoder, index, typed);
    pickle_put_int(encoder->out, offset);
    put_numbers(encoder, tensor->ndim, tensor->global_shape);
    put_numbers(encoder, tensor->ndim, strides);
    pickle_put_bool(encoder->out, requires_grad);
    put_no_hooks(encoder);
    if (!typed)
        encoder_put_dtype(encoder, tensor->dtype);
    pickle_put_op(encoder->out, OP_TUPLE);
    encoder_put_memo(encoder);
    pickle_put_op(encoder->out, OP_REDUCE);
}

/* A tensor that names its dtype cannot be written with requires_grad, because PyTorch could not
 * load it, unless it is a parameter. All such tensors that PyTorch saves and can load are
 * parameters. */
dcp_status encoder_put_tensor(struct encoder *encoder, const dcp_state *node)
{
    const struct state_tensor *tensor = node->as.tensor;
    size_t index;
    int64_t offset;
    RETURN_IF_ERROR(check_tensor(tensor));
    RETURN_IF_ERROR(take_storage(encoder, node, &index, &offset));
    if (!tensor->parameter &&
        !(tensor->requires_grad && !has_dtype_of_storage(encoder, tensor, index))) {
        put_rebuilt(encoder, tensor, index, offset, tensor->requires_grad);
        return DCP_OK;
    }
    encoder_put_global(encoder, GLOBAL_REBUILD_PARAMETER);
    put_rebuilt(encoder, tensor, index, offset, false);
    encoder_put_memo(encoder);
    pickle_put_bool(encoder->out, tensor->requires_grad);
    put_no_hooks(encoder);
    encoder_put_reduce(encoder, 3);
    return DCP_OK;
}
