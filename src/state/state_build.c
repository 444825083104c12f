/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls that build a tree. The root keeps the first failure. */
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "state/node_unique.h"
#include "state/state_build.h"

dcp_status dcp_state_status(const dcp_state *node)
{
    if (!node)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the node is NULL");
    if (node->root->failure.status != DCP_OK)
        return error_restore(&node->root->failure);
    return state_check_complete(node->root);
}

static dcp_state *add(dcp_state *parent, const char *key, dcp_kind kind)
{
    dcp_state *node = NULL;
    if (build_check_place(parent, key) == DCP_OK)
        node = build_place(parent, key, node_new(build_pool(parent), kind));
    if (!node)
        build_keep_failure(parent, error_status());
    return node;
}

dcp_state *dcp_state_dict(dcp_state *parent, const char *key)
{
    return add(parent, key, DCP_KIND_DICT);
}

dcp_state *dcp_state_list(dcp_state *parent, const char *key)
{
    return add(parent, key, DCP_KIND_LIST);
}

dcp_state *dcp_state_tuple(dcp_state *parent, const char *key)
{
    return add(parent, key, DCP_KIND_TUPLE);
}

dcp_state *dcp_state_ordered_dict(dcp_state *parent, const char *key)
{
    return add(parent, key, DCP_KIND_ORDERED_DICT);
}

dcp_state *dcp_state_set(dcp_state *parent, const char *key)
{
    return add(parent, key, DCP_KIND_SET);
}

dcp_state *dcp_state_frozenset(dcp_state *parent, const char *key)
{
    return add(parent, key, DCP_KIND_FROZENSET);
}

const char *dcp_state_intern(dcp_state *node, const char *key, size_t length)
{
    const char *copy = NULL;
    if (!node || (!key && length > 0))
        dcp_error_set(DCP_ERR_ARGUMENT, "interning a key needs a node and the key");
    else if (length > 0 && memchr(key, '\0', length))
        dcp_error_set(DCP_ERR_ARGUMENT, "the key \"%s\" has a NUL inside", key);
    else if (build_check_text("key", key, length) == DCP_OK) {
        copy = arena_copy_text(&build_pool(node)->arena, key, length);
        if (!copy)
            error_no_memory(length, "a key");
    }
    if (!copy)
        build_keep_failure(node, error_status());
    return copy;
}

dcp_status dcp_state_none(dcp_state *parent, const char *key)
{
    return add(parent, key, DCP_KIND_NONE) ? DCP_OK : error_status();
}

dcp_status dcp_state_bool(dcp_state *parent, const char *key, bool value)
{
    dcp_status status = build_check_place(parent, key);
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    dcp_state *node = node_new(build_pool(parent), DCP_KIND_BOOL);
    if (node)
        node->as.boolean = value;
    return build_finish(parent, key, node);
}

dcp_status dcp_state_int(dcp_state *parent, const char *key, int64_t value)
{
    dcp_status status = build_check_place(parent, key);
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    return build_finish(parent, key, node_int(build_pool(parent), value));
}

dcp_status dcp_state_uint(dcp_state *parent, const char *key, uint64_t value)
{
    dcp_status status = build_check_place(parent, key);
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    return build_finish(parent, key, node_uint(build_pool(parent), value));
}

dcp_status dcp_state_float(dcp_state *parent, const char *key, double value)
{
    dcp_status status = build_check_place(parent, key);
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    dcp_state *node = node_new(build_pool(parent), DCP_KIND_FLOAT);
    if (node)
        node->as.number = value;
    return build_finish(parent, key, node);
}

dcp_status dcp_state_string(dcp_state *parent, const char *key, const char *value)
{
    return dcp_state_text(parent, key, value, value ? strlen(value) : SIZE_MAX);
}

dcp_status dcp_state_text(dcp_state *parent, const char *key, const char *value, size_t length)
{
    dcp_status status = build_check_place(parent, key);
    if (status == DCP_OK && !value && length > 0)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the string for \"%s\" is NULL", key ? key : "");
    if (status == DCP_OK)
        status = build_check_text("string", value, length);
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    return build_finish(parent, key, node_text(build_pool(parent), DCP_KIND_STRING, value, length));
}

dcp_status dcp_state_bytes(dcp_state *parent, const char *key, const void *bytes, size_t length)
{
    dcp_status status = build_check_place(parent, key);
    if (status == DCP_OK && !bytes && length > 0)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the bytes for \"%s\" are NULL", key ? key : "");
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    return build_finish(parent, key, node_text(build_pool(parent), DCP_KIND_BYTES, bytes, length));
}

dcp_status dcp_state_stream(dcp_state *parent, const char *key, const void *bytes, size_t size)
{
    dcp_status status = build_check_place(parent, key);
    if (status == DCP_OK && (!bytes || size == 0))
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the stream for \"%s\" has no bytes",
                               key ? key : "(an element)");
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    return build_finish(parent, key, node_text(build_pool(parent), DCP_KIND_STREAM, bytes, size));
}

/* Copies a caller's tensor, whose pointer must not be NULL. */
static dcp_status read_tensor(dcp_tensor *ours, const dcp_tensor *theirs, size_t size)
{
    if (!theirs)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the tensor is NULL");
    RETURN_IF_ERROR(sized_read(ours, sizeof *ours, theirs, size, "dcp_tensor"));
    return tensor_check_given(ours);
}

/* Ends the calls that add a tensor, and adds the key to the message of a failure. */
static dcp_state *finish_tensor(dcp_state *parent, const char *key, dcp_status status,
                                dcp_state *node)
{
    if (status != DCP_OK || !node) {
        status = status != DCP_OK ? status : error_status();
        build_keep_failure(parent,
                           error_prefix(status, "tensor \"%s\"", key ? key : "(an element)"));
        return NULL;
    }
    if (key)
        node->as.tensor->key = arena_copy_text(&build_pool(parent)->arena, key, strlen(key));
    return build_finish(parent, key, node) == DCP_OK ? node : NULL;
}

dcp_state *dcp_state_tensor_sized(dcp_state *parent, const char *key, const dcp_tensor *tensor,
                                  size_t tensor_size)
{
    dcp_tensor ours;
    dcp_state *node = NULL;
    dcp_status status = build_check_place(parent, key);
    if (status != DCP_OK) {
        build_keep_failure(parent, status);
        return NULL;
    }
    status = read_tensor(&ours, tensor, tensor_size);
    if (status == DCP_OK)
        node = node_tensor(build_pool(parent), &ours, NULL);
    return finish_tensor(parent, key, status, node);
}

dcp_state *dcp_state_flat_range_sized(dcp_state *parent, const char *key, const dcp_tensor *whole,
                                      size_t tensor_size, int64_t start, int64_t length, void *data)
{
    dcp_tensor ours;
    dcp_state *node = NULL;
    dcp_status status = build_check_place(parent, key);
    if (status != DCP_OK) {
        build_keep_failure(parent, status);
        return NULL;
    }
    status = read_tensor(&ours, whole, tensor_size);
    if (status == DCP_OK)
        node = node_flat_range(build_pool(parent), &ours, start, length, data);
    return finish_tensor(parent, key, status, node);
}

dcp_status dcp_state_add_chunk_sized(dcp_state *tensor_node, const dcp_tensor *chunk,
                                     size_t tensor_size)
{
    dcp_tensor ours;
    if (!tensor_node)
        return dcp_error_set(DCP_ERR_ARGUMENT, "cannot add a chunk: the tensor's node is NULL");
    dcp_status status = DCP_OK;
    if (tensor_node->kind != DCP_KIND_TENSOR)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "cannot add a chunk: the node is of kind %s",
                               node_kind_name(tensor_node->kind));
    if (status == DCP_OK)
        status = read_tensor(&ours, chunk, tensor_size);
    if (status == DCP_OK)
        status = node_add_chunk(tensor_node, &ours);
    if (status != DCP_OK && tensor_node->kind == DCP_KIND_TENSOR) {
        const char *key = tensor_node->as.tensor->key;
        status =
            error_prefix(status, "adding a chunk to tensor \"%s\"", key ? key : "(an element)");
    }
    return build_keep_failure(tensor_node, status);
}

dcp_status dcp_state_stateful(dcp_state *parent, const char *key, const dcp_stateful *stateful)
{
    dcp_status status = build_check_place(parent, key);
    if (status == DCP_OK && (!stateful || !stateful->state_dict))
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the stateful entry \"%s\" has no state_dict",
                               key ? key : "(an element)");
    if (status == DCP_OK && !node_is_dict(parent) && parent->kind != DCP_KIND_PAIR)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "a stateful entry must be in a dict, not in a %s",
                               node_kind_name(parent->kind));
    if (status != DCP_OK)
        return build_keep_failure(parent, status);
    dcp_state *node = node_new(build_pool(parent), DCP_KIND_STATEFUL);
    if (node)
        node->as.stateful = *stateful;
    return build_finish(parent, key, node);
}

dcp_state *dcp_state_copy(dcp_state *parent, const char *key, const dcp_state *node)
{
    dcp_state *copy = NULL;
    dcp_status status = build_check_place(parent, key);
    if (status == DCP_OK && !node)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the node to copy as \"%s\" is NULL",
                               key ? key : "(an element)");
    if (status == DCP_OK && node->kind == DCP_KIND_PAIR)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "a pair that is being built cannot be copied");
    if (status == DCP_OK)
        status = node_copy(build_pool(parent), node, &copy);
    if (status == DCP_OK)
        status = build_place(parent, key, copy) ? DCP_OK : error_status();
    return build_keep_failure(parent, status) == DCP_OK ? copy : NULL;
}
