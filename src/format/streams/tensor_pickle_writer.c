/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/streams/tensor_pickle.h"

#include <string.h>

#include "format/streams/storage_class.h"

/* Elements for typed storages, bytes for untyped ones. */
static int64_t storage_size(dcp_dtype dtype, int32_t ndim, const int64_t *sizes)
{
    int64_t elements = 0;
    shape_volume(ndim, sizes, &elements);
    return storage_class_name(dtype) != NULL ? elements : elements * (int64_t)dcp_dtype_size(dtype);
}

static void put_text(struct buffer *out, const char *text, uint32_t memo)
{
    pickle_put_string(out, text, strlen(text));
    pickle_put_memo(out, memo);
}

/* Returns the next memo index: the empty tuple takes none. */
static uint32_t put_tuple(struct buffer *out, int32_t count, const int64_t *numbers, uint32_t memo)
{
    static const uint8_t endings[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};
    if (count > 3)
        pickle_put_op(out, OP_MARK);
    for (int32_t i = 0; i < count; i++)
        pickle_put_int(out, numbers[i]);
    pickle_put_op(out, count > 3 ? OP_TUPLE : endings[count]);
    if (count == 0)
        return memo;
    pickle_put_memo(out, memo);
    return memo + 1;
}

static void put_storage(struct buffer *out, const char *typed_class, int64_t size)
{
    pickle_put_op(out, OP_MARK);
    put_text(out, "storage", 1);
    if (typed_class != NULL)
        pickle_put_global(out, "torch", typed_class);
    else
        pickle_put_global(out, "torch.storage", "UntypedStorage");
    pickle_put_memo(out, 2);
    put_text(out, "0", 3);
    put_text(out, "cpu", 4);
    pickle_put_int(out, size);
    pickle_put_op(out, OP_TUPLE);
    pickle_put_memo(out, 5);
    pickle_put_op(out, OP_BINPERSID);
}

void tensor_pickle_write(struct buffer *out, dcp_dtype dtype, int32_t ndim, const int64_t *sizes)
{
    const char *typed_class = storage_class_name(dtype);
    int64_t strides[DCP_MAX_DIMS];
    shape_strides(ndim, sizes, strides);

    pickle_put_protocol(out, 2);
    pickle_put_global(out, "torch._utils",
                      typed_class != NULL ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    pickle_put_memo(out, 0);
    pickle_put_op(out, OP_MARK);
    put_storage(out, typed_class, storage_size(dtype, ndim, sizes));
    pickle_put_int(out, 0); /* storage offset */
    uint32_t memo = put_tuple(out, ndim, sizes, 6);
    memo = put_tuple(out, ndim, strides, memo);
    pickle_put_bool(out, false); /* requires_grad: DCP detaches tensors */
    pickle_put_global(out, "collections", "OrderedDict");
    pickle_put_memo(out, memo++);
    pickle_put_op(out, OP_EMPTY_TUPLE);
    pickle_put_op(out, OP_REDUCE);
    pickle_put_memo(out, memo++);
    if (typed_class == NULL) {
        pickle_put_global(out, "torch", dcp_dtype_name(dtype));
        pickle_put_memo(out, memo++);
    }
    pickle_put_op(out, OP_TUPLE);
    pickle_put_memo(out, memo++);
    pickle_put_op(out, OP_REDUCE);
    pickle_put_memo(out, memo++);
    pickle_put_op(out, OP_STOP);
}

/* Bytes that tensor_pickle_write() appends besides names and numbers. */
enum { FIXED_BYTES_TYPED = 126, FIXED_BYTES_UNTYPED = 158 };

/* The pickled size of a number that is not negative. */
static size_t int_bytes(int64_t value)
{
    if (value <= UINT8_MAX)
        return 2;
    if (value <= UINT16_MAX)
        return 3;
    if (value <= INT32_MAX)
        return 5;
    size_t size = 2; /* LONG1, its length, and two's complement with a bit for the sign */
    for (uint64_t rest = (uint64_t)value << 1; rest != 0; rest >>= 8)
        size++;
    return size;
}

static size_t tuple_bytes(int32_t count, const int64_t *numbers)
{
    size_t size = count == 0 ? 1 : count <= 3 ? 3 : 4;
    for (int32_t i = 0; i < count; i++)
        size += int_bytes(numbers[i]);
    return size;
}

size_t tensor_pickle_size(dcp_dtype dtype, int32_t ndim, const int64_t *sizes)
{
    const char *typed_class = storage_class_name(dtype);
    int64_t strides[DCP_MAX_DIMS];
    shape_strides(ndim, sizes, strides);
    size_t size = typed_class != NULL ? FIXED_BYTES_TYPED + strlen(typed_class)
                                      : FIXED_BYTES_UNTYPED + strlen(dcp_dtype_name(dtype));
    return size + int_bytes(storage_size(dtype, ndim, sizes)) + tuple_bytes(ndim, sizes) +
           tuple_bytes(ndim, strides);
}
