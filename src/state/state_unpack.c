/* SPDX-License-Identifier: BSD-3-Clause */
/* A tree from bytes, by the calls that anyone builds one with. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "dcp/mesh.h"
#include "dcp/packed.h"
#include "state/packed.h"
#include "state/state_build.h"

/* A container that is being filled. */
struct open_container {
    dcp_state *node;
    uint64_t left; /* values to come */
};

struct unpacker {
    struct reader reader;
    struct open_container *stack;
    size_t depth;
    size_t capacity;
};

static dcp_status bad(const struct unpacker *unpacker, size_t at, const char *what)
{
    return dcp_error_set(DCP_ERR_FORMAT, "packed state, byte %zu of %zu: %s", at,
                         unpacker->reader.size, what);
}

static dcp_status cut_short(const struct unpacker *unpacker)
{
    return bad(unpacker, unpacker->reader.size, "the description ends too early");
}

/* Reads a count of values of at least `least` bytes each, and checks that the remaining bytes can
 * hold them. */
static dcp_status read_count(struct unpacker *unpacker, size_t least, uint64_t *count)
{
    size_t at = unpacker->reader.position;
    *count = reader_u64(&unpacker->reader);
    if (unpacker->reader.failed)
        return cut_short(unpacker);
    if (*count > reader_left(&unpacker->reader) / least)
        return bad(unpacker, at, "the count is larger than what follows it");
    return DCP_OK;
}

static dcp_status read_bytes(struct unpacker *unpacker, const char **bytes, size_t *length)
{
    uint64_t count;
    RETURN_IF_ERROR(read_count(unpacker, 1, &count));
    *length = (size_t)count;
    *bytes = (const char *)reader_bytes(&unpacker->reader, *length);
    return DCP_OK;
}

/* Text that ends with a NUL, in the tree. */
static dcp_status read_text(struct unpacker *unpacker, dcp_state *parent, const char **text)
{
    const char *bytes;
    size_t length;
    RETURN_IF_ERROR(read_bytes(unpacker, &bytes, &length));
    *text = dcp_state_intern(parent, bytes, length);
    return *text ? DCP_OK : dcp_state_status(parent);
}

static double read_double(struct unpacker *unpacker)
{
    uint64_t bits = reader_u64(&unpacker->reader);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void read_numbers(struct unpacker *unpacker, int64_t *numbers, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        numbers[i] = (int64_t)reader_u64(&unpacker->reader);
}

static dcp_status add_size(struct unpacker *unpacker, dcp_state *parent, const char *key)
{
    uint64_t count;
    RETURN_IF_ERROR(read_count(unpacker, sizeof(int64_t), &count));
    int64_t *sizes = memory_allocate_array((size_t)count, sizeof *sizes);
    if (!sizes)
        return error_no_memory((size_t)count * sizeof *sizes, "sizes");
    for (uint64_t i = 0; i < count; i++)
        sizes[i] = (int64_t)reader_u64(&unpacker->reader);
    dcp_status status = dcp_state_size(parent, key, sizes, (size_t)count);
    memory_release(sizes);
    return status;
}

static dcp_status read_memory(struct unpacker *unpacker, dcp_tensor *tensor)
{
    struct reader *reader = &unpacker->reader;
    tensor->device.operations = (const dcp_device_operations *)(uintptr_t)reader_u64(reader);
    tensor->device.index = (int32_t)(int64_t)reader_u64(reader);
    tensor->device.queue = (void *)(uintptr_t)reader_u64(reader);
    tensor->data = (void *)(uintptr_t)reader_u64(reader);
    return reader->failed ? cut_short(unpacker) : DCP_OK;
}

static dcp_status read_chunk(struct unpacker *unpacker, dcp_tensor *tensor)
{
    RETURN_IF_ERROR(read_memory(unpacker, tensor));
    read_numbers(unpacker, tensor->offsets, tensor->ndim);
    read_numbers(unpacker, tensor->sizes, tensor->ndim);
    read_numbers(unpacker, tensor->strides, tensor->ndim);
    return unpacker->reader.failed ? cut_short(unpacker) : DCP_OK;
}

static dcp_status add_tensor(struct unpacker *unpacker, dcp_state *parent, const char *key)
{
    struct reader *reader = &unpacker->reader;
    size_t at = reader->position;
    dcp_tensor tensor = {.dtype = (dcp_dtype)reader_u8(reader), .ndim = reader_u8(reader)};
    tensor.requires_grad = reader_u8(reader) != 0;
    tensor.sharded = reader_u8(reader) != 0;
    tensor.strided = true;
    uint64_t chunks = reader_u64(reader);
    if (tensor.ndim > DCP_MAX_DIMS)
        return bad(unpacker, at, "a tensor has more than 64 dimensions");
    if (chunks == 0 || (!tensor.sharded && chunks > 1))
        return bad(unpacker, at, "a tensor needs a chunk, and has several only if it is sharded");
    read_numbers(unpacker, tensor.global_shape, tensor.ndim);
    RETURN_IF_ERROR(read_chunk(unpacker, &tensor));
    dcp_state *node = dcp_state_tensor(parent, key, &tensor);
    if (!node)
        return dcp_state_status(parent);
    while (--chunks > 0) {
        RETURN_IF_ERROR(read_chunk(unpacker, &tensor));
        RETURN_IF_ERROR(dcp_state_add_chunk(node, &tensor));
    }
    return DCP_OK;
}

static dcp_status read_mesh(struct unpacker *unpacker, int32_t ndim, dcp_layout *layout)
{
    struct reader *reader = &unpacker->reader;
    dcp_mesh *mesh = &layout->mesh;
    size_t at = reader->position;
    if (ndim > DCP_MAX_MESH_DIMS)
        return bad(unpacker, at, "a mesh has more than 16 dimensions");
    mesh->ndim = ndim;
    mesh->rank = (int64_t)reader_u64(reader);
    read_numbers(unpacker, mesh->shape, ndim);
    for (int32_t i = 0; i < ndim; i++) {
        int64_t numbers[3]; /* kind, dim, split_factor */
        read_numbers(unpacker, numbers, 3);
        if (numbers[0] < DCP_REPLICATE || numbers[0] > DCP_STRIDED_SHARD ||
            numbers[1] < -DCP_MAX_DIMS || numbers[1] >= DCP_MAX_DIMS)
            return bad(unpacker, at, "an invalid placement");
        layout->placements[i] = (dcp_placement){.kind = (dcp_placement_kind)numbers[0],
                                                .dim = (int32_t)numbers[1],
                                                .split_factor = numbers[2]};
    }
    return reader->failed ? cut_short(unpacker) : DCP_OK;
}

static dcp_status check_sizes(const dcp_tensor *tensor, const int64_t *given, const char *key)
{
    for (int32_t i = 0; i < tensor->ndim; i++)
        if (tensor->sizes[i] != given[i])
            return dcp_error_set(DCP_ERR_SHAPE,
                                 "tensor \"%s\": dimension %" PRId32 " of the chunk has %" PRId64
                                 " elements, its placements leave it %" PRId64,
                                 key ? key : "(an element)", i, given[i], tensor->sizes[i]);
    return DCP_OK;
}

static dcp_status add_mesh_tensor(struct unpacker *unpacker, dcp_state *parent, const char *key)
{
    struct reader *reader = &unpacker->reader;
    size_t at = reader->position;
    dcp_layout layout = {0};
    int64_t sizes[DCP_MAX_DIMS] = {0};
    dcp_tensor tensor = {.dtype = (dcp_dtype)reader_u8(reader), .ndim = reader_u8(reader)};
    tensor.requires_grad = reader_u8(reader) != 0;
    tensor.strided = true;
    int32_t mesh_ndim = reader_u8(reader);
    if (tensor.ndim > DCP_MAX_DIMS)
        return bad(unpacker, at, "a tensor has more than 64 dimensions");
    RETURN_IF_ERROR(read_mesh(unpacker, mesh_ndim, &layout));
    read_numbers(unpacker, tensor.global_shape, tensor.ndim);
    RETURN_IF_ERROR(read_memory(unpacker, &tensor));
    read_numbers(unpacker, sizes, tensor.ndim);
    read_numbers(unpacker, tensor.strides, tensor.ndim);
    if (reader->failed)
        return cut_short(unpacker);
    RETURN_IF_ERROR(dcp_mesh_shard(&layout.mesh, &tensor, layout.placements));
    RETURN_IF_ERROR(check_sizes(&tensor, sizes, key));
    return dcp_state_tensor(parent, key, &tensor) ? DCP_OK : dcp_state_status(parent);
}

static dcp_status push(struct unpacker *unpacker, dcp_state *node, uint64_t count)
{
    if (unpacker->depth == unpacker->capacity) {
        size_t capacity = unpacker->capacity * 2 + 32;
        struct open_container *stack =
            memory_reallocate_array(unpacker->stack, capacity, sizeof *stack);
        if (!stack)
            return error_no_memory(capacity * sizeof *stack, "nested values");
        unpacker->stack = stack;
        unpacker->capacity = capacity;
    }
    unpacker->stack[unpacker->depth++] = (struct open_container){node, count};
    return DCP_OK;
}

typedef dcp_state *container_builder(dcp_state *parent, const char *key);

static dcp_status add_container(struct unpacker *unpacker, dcp_state *parent, const char *key,
                                container_builder *build)
{
    uint64_t count;
    RETURN_IF_ERROR(read_count(unpacker, 1, &count));
    dcp_state *node = build(parent, key);
    return node ? push(unpacker, node, count) : dcp_state_status(parent);
}

/* A value with its length in front. */
static dcp_status add_text(struct unpacker *unpacker, uint8_t kind, dcp_state *parent,
                           const char *key)
{
    const char *bytes;
    size_t length;
    if (kind == PACKED_DIGITS || kind == PACKED_DEVICE) {
        RETURN_IF_ERROR(read_text(unpacker, parent, &bytes));
        return kind == PACKED_DIGITS ? dcp_state_digits(parent, key, bytes)
                                     : dcp_state_device(parent, key, bytes);
    }
    RETURN_IF_ERROR(read_bytes(unpacker, &bytes, &length));
    if (kind == PACKED_STREAM)
        return dcp_state_stream(parent, key, bytes, length);
    if (kind == PACKED_STRING)
        return dcp_state_text(parent, key, bytes, length);
    return kind == PACKED_BYTES ? dcp_state_bytes(parent, key, bytes, length)
                                : dcp_state_bytearray(parent, key, bytes, length);
}

/* Bytes that follow, of values of one size. */
static size_t size_of_value(uint8_t kind)
{
    switch (kind) {
    case PACKED_INT:
    case PACKED_FLOAT:
        return 8;
    case PACKED_COMPLEX:
        return 16;
    case PACKED_DTYPE:
        return 1;
    default:
        return 0;
    }
}

static dcp_status add_value(struct unpacker *unpacker, dcp_state *parent, const char *key)
{
    struct reader *reader = &unpacker->reader;
    size_t at = reader->position;
    double real;
    uint8_t kind = reader_u8(reader);
    if (reader->failed || reader_left(reader) < size_of_value(kind))
        return cut_short(unpacker);
    switch (kind) {
    case PACKED_NONE:
        return dcp_state_none(parent, key);
    case PACKED_FALSE:
    case PACKED_TRUE:
        return dcp_state_bool(parent, key, kind == PACKED_TRUE);
    case PACKED_INT:
        return dcp_state_int(parent, key, (int64_t)reader_u64(reader));
    case PACKED_FLOAT:
        return dcp_state_float(parent, key, read_double(unpacker));
    case PACKED_COMPLEX:
        real = read_double(unpacker);
        return dcp_state_complex(parent, key, real, read_double(unpacker));
    case PACKED_DIGITS:
    case PACKED_STRING:
    case PACKED_BYTES:
    case PACKED_BYTEARRAY:
    case PACKED_DEVICE:
    case PACKED_STREAM:
        return add_text(unpacker, kind, parent, key);
    case PACKED_DTYPE:
        return dcp_state_dtype(parent, key, (dcp_dtype)reader_u8(reader));
    case PACKED_SIZE:
        return add_size(unpacker, parent, key);
    case PACKED_TENSOR:
        return add_tensor(unpacker, parent, key);
    case PACKED_MESH_TENSOR:
        return add_mesh_tensor(unpacker, parent, key);
    case PACKED_LIST:
        return add_container(unpacker, parent, key, dcp_state_list);
    case PACKED_TUPLE:
        return add_container(unpacker, parent, key, dcp_state_tuple);
    case PACKED_DICT:
        return add_container(unpacker, parent, key, dcp_state_dict);
    case PACKED_ORDERED_DICT:
        return add_container(unpacker, parent, key, dcp_state_ordered_dict);
    case PACKED_SET:
        return add_container(unpacker, parent, key, dcp_state_set);
    case PACKED_FROZENSET:
        return add_container(unpacker, parent, key, dcp_state_frozenset);
    default:
        return bad(unpacker, at, "no value begins with this byte");
    }
}

/* Adds what comes next to the innermost open container. */
static dcp_status step(struct unpacker *unpacker)
{
    struct open_container *top = &unpacker->stack[unpacker->depth - 1];
    const char *key = NULL;
    if (top->left == 0) {
        unpacker->depth--;
        return DCP_OK;
    }
    top->left--;
    if (!node_is_dict(top->node))
        return add_value(unpacker, top->node, NULL);
    if (reader_u8(&unpacker->reader) == PACKED_STRING) {
        RETURN_IF_ERROR(read_text(unpacker, top->node, &key));
        return add_value(unpacker, top->node, key);
    }
    unpacker->reader.position--;
    dcp_state *pair = dcp_state_pair(top->node);
    return pair ? push(unpacker, pair, 2) : dcp_state_status(top->node);
}

/* The pairs of a described dict go to the parent itself. */
static dcp_status enter(struct unpacker *unpacker, dcp_state *parent)
{
    uint8_t kind = reader_u8(&unpacker->reader);
    uint64_t count;
    if (kind != PACKED_DICT && kind != PACKED_ORDERED_DICT)
        return bad(unpacker, 0, "a dict is needed if there is no key");
    RETURN_IF_ERROR(read_count(unpacker, 1, &count));
    return push(unpacker, parent, count);
}

dcp_status dcp_state_unpack(dcp_state *parent, const char *key, const void *bytes, size_t size)
{
    struct unpacker unpacker = {0};
    if (!parent || !bytes)
        return build_keep_failure(parent,
                                  dcp_error_set(DCP_ERR_ARGUMENT, "unpacking: the %s is NULL",
                                                parent ? "description" : "parent"));
    reader_init(&unpacker.reader, bytes, size);
    dcp_status status =
        !key && node_is_dict(parent) ? enter(&unpacker, parent) : add_value(&unpacker, parent, key);
    while (status == DCP_OK && unpacker.depth > 0 && !unpacker.reader.failed)
        status = step(&unpacker);
    if (status == DCP_OK && unpacker.reader.failed)
        status = cut_short(&unpacker);
    if (status == DCP_OK && reader_left(&unpacker.reader) > 0)
        status = bad(&unpacker, unpacker.reader.position, "something follows the value");
    memory_release(unpacker.stack);
    return build_keep_failure(parent, status);
}
