/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of dicts as parts of names, as PyTorch's flattening has them: 0 is "0". */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/torch_file/pt_file.h"
#include "state/flatten_key.h"

static bool is_name(const struct pickle_value *key)
{
    return key->kind == PICKLE_STRING && utf8_is_valid(key->as.text.bytes, key->as.text.length) &&
           memchr(key->as.text.bytes, '\0', key->as.text.length) == NULL;
}

static bool is_plain(const struct pickle_value *key)
{
    return is_name(key) || key->kind == PICKLE_INT || key->kind == PICKLE_BOOL ||
           key->kind == PICKLE_NONE || key->kind == PICKLE_FLOAT;
}

bool pt_key_has_text(const struct pickle_value *key)
{
    if (key->kind != PICKLE_TUPLE)
        return is_plain(key);
    for (uint32_t i = 0; i < key->as.sequence.count; i++)
        if (!is_plain(key->as.sequence.items[i]))
            return false;
    return true;
}

/* NULL: no memory. */
static dcp_state *plain_node(struct state_pool *pool, const struct pickle_value *key)
{
    if (key->kind == PICKLE_STRING)
        return node_text(pool, DCP_KIND_STRING, key->as.text.bytes, key->as.text.length);
    if (key->kind == PICKLE_INT)
        return node_int(pool, key->as.integer);
    dcp_state *node = node_new(pool, key->kind == PICKLE_BOOL    ? DCP_KIND_BOOL
                                     : key->kind == PICKLE_FLOAT ? DCP_KIND_FLOAT
                                                                 : DCP_KIND_NONE);
    if (node != NULL && key->kind == PICKLE_BOOL)
        node->as.boolean = key->as.boolean;
    if (node != NULL && key->kind == PICKLE_FLOAT)
        node->as.number = key->as.number;
    return node;
}

static dcp_state *key_node(struct state_pool *pool, const struct pickle_value *key)
{
    if (key->kind != PICKLE_TUPLE)
        return plain_node(pool, key);
    dcp_state *tuple = node_new(pool, DCP_KIND_TUPLE);
    for (uint32_t i = 0; tuple != NULL && i < key->as.sequence.count; i++) {
        dcp_state *element = plain_node(pool, key->as.sequence.items[i]);
        if (element == NULL || node_append(pool, tuple, NULL, element) != DCP_OK)
            return NULL;
    }
    return tuple;
}

dcp_status pt_key_append(struct buffer *out, const struct pickle_value *key)
{
    if (key->kind == PICKLE_STRING)
        buffer_append(out, key->as.text.bytes, key->as.text.length);
    if (key->kind == PICKLE_INT)
        buffer_append_format(out, "%" PRId64, key->as.integer);
    if (key->kind == PICKLE_STRING || key->kind == PICKLE_INT)
        return buffer_status(out);
    dcp_state *root = dcp_state_new();
    const dcp_state *node = root != NULL ? key_node(&root->root->own, key) : NULL;
    dcp_status status =
        node != NULL ? key_append(out, node) : error_no_memory(sizeof *node, "a dict's key");
    dcp_state_free(root);
    return status;
}
