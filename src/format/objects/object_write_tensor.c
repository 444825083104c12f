/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors inside of objects, as torch.save writes them: a call that rebuilds the tensor from a
 * storage of its own, which is a record of the stream. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/objects/object_encoder.h"
#include "format/streams/storage_class.h"
#include "state/box.h"
#include "state/dtype.h"

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

static dcp_status take_tensor(struct encoder *encoder, const dcp_state *node)
{
    if (encoder->tensor_count == encoder->tensor_capacity) {
        size_t capacity = 2 * encoder->tensor_capacity + 16;
        const dcp_state **tensors =
            memory_reallocate_array(encoder->tensors, capacity, sizeof *tensors);
        if (tensors == NULL)
            return error_no_memory(capacity * sizeof *tensors, "the tensors of an object");
        encoder->tensors = tensors;
        encoder->tensor_capacity = capacity;
    }
    encoder->tensors[encoder->tensor_count++] = node;
    return DCP_OK;
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

static void put_storage(struct encoder *encoder, const struct state_tensor *tensor)
{
    char key[24];
    int64_t size = 0;
    int length = snprintf(key, sizeof key, "%zu", encoder->tensor_count - 1);
    shape_volume(tensor->ndim, tensor->global_shape, &size);
    if (storage_class_name(tensor->dtype) == NULL)
        size *= (int64_t)dcp_dtype_size(tensor->dtype);
    pickle_put_op(encoder->out, OP_MARK);
    put_constant(encoder, "storage", &encoder->memo_of_storage);
    encoder_put_storage_class(encoder, tensor->dtype);
    pickle_put_string(encoder->out, key, (size_t)length);
    encoder_put_memo(encoder);
    put_constant(encoder, "cpu", &encoder->memo_of_cpu);
    pickle_put_int(encoder->out, size);
    pickle_put_op(encoder->out, OP_TUPLE);
    encoder_put_memo(encoder);
    pickle_put_op(encoder->out, OP_BINPERSID);
}

dcp_status encoder_put_tensor(struct encoder *encoder, const dcp_state *node)
{
    const struct state_tensor *tensor = node->as.tensor;
    int64_t strides[DCP_MAX_DIMS];
    RETURN_IF_ERROR(check_tensor(tensor));
    RETURN_IF_ERROR(take_tensor(encoder, node));
    bool typed = storage_class_name(tensor->dtype) != NULL;
    shape_strides(tensor->ndim, tensor->global_shape, strides);
    encoder_put_global(encoder, typed ? GLOBAL_REBUILD_TYPED : GLOBAL_REBUILD_UNTYPED);
    pickle_put_op(encoder->out, OP_MARK);
    put_storage(encoder, tensor);
    pickle_put_int(encoder->out, 0); /* storage offset */
    put_numbers(encoder, tensor->ndim, tensor->global_shape);
    put_numbers(encoder, tensor->ndim, strides);
    pickle_put_bool(encoder->out, tensor->requires_grad);
    encoder_put_global(encoder, GLOBAL_ORDERED_DICT); /* of hooks, of which there are none */
    encoder_put_reduce(encoder, 0);
    encoder_put_memo(encoder);
    if (!typed)
        encoder_put_dtype(encoder, tensor->dtype);
    pickle_put_op(encoder->out, OP_TUPLE);
    encoder_put_memo(encoder);
    pickle_put_op(encoder->out, OP_REDUCE);
    return DCP_OK;
}
