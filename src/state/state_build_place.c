/* SPDX-License-Identifier: BSD-3-Clause */
/* Where building calls put what they make: under a key, behind the elements of a list, in a set, or
 * in a pair. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "state/node_children.h"
#include "state/node_pair.h"
#include "state/state_build.h"

struct state_pool *build_pool(const dcp_state *node)
{
    return node->content ? node->content : node->pool;
}

dcp_status build_keep_failure(const dcp_state *node, dcp_status status)
{
    if (status != DCP_OK && node && node->root->failure.status == DCP_OK)
        error_save(&node->root->failure);
    return status;
}

dcp_status build_check_text(const char *what, const char *text, size_t length)
{
    if (!utf8_is_valid(text, length))
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s \"%.*s\" is not valid UTF-8", what,
                             length < 80 ? (int)length : 80, text);
    return DCP_OK;
}

/* A key was given, or none, as the kind of parent wants it. */
static dcp_status check_key(const dcp_state *parent, const char *key)
{
    if (!node_is_dict(parent) && key)
        return dcp_error_set(DCP_ERR_ARGUMENT, "elements of a %s have no key, but \"%s\" is given",
                             node_kind_name(parent->kind), key);
    if (node_is_dict(parent) && !key)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "an entry of a dict needs a key, but it is NULL; add keys that are "
                             "not strings with dcp_state_pair()");
    return DCP_OK;
}

dcp_status build_check_place(const dcp_state *parent, const char *key)
{
    size_t position;
    if (!parent)
        return dcp_error_set(DCP_ERR_ARGUMENT, "cannot add \"%s\": the parent is NULL",
                             key ? key : "(an element)");
    if (!node_is_dict(parent) && !node_is_set(parent) && parent->kind != DCP_KIND_LIST &&
        parent->kind != DCP_KIND_TUPLE && parent->kind != DCP_KIND_PAIR)
        return dcp_error_set(DCP_ERR_ARGUMENT, "cannot add \"%s\": the parent is of kind %s",
                             key ? key : "(an element)", node_kind_name(parent->kind));
    RETURN_IF_ERROR(check_key(parent, key));
    if (parent->kind == DCP_KIND_PAIR)
        return node_pair_check(parent);
    if (!key)
        return DCP_OK;
    RETURN_IF_ERROR(build_check_text("key", key, strlen(key)));
    if (node_find(parent, key, strlen(key), &position))
        return dcp_error_set(DCP_ERR_DUPLICATE, "the key \"%s\" is in the dict already", key);
    return DCP_OK;
}

dcp_status build_check_hash(const dcp_state *node, const char *what)
{
    if (!key_is_hashable(node))
        return dcp_error_set(DCP_ERR_ARGUMENT, "a %s has no hash: it cannot be %s",
                             node_kind_name(node->kind), what);
    if (node->kind == DCP_KIND_TENSOR)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a tensor equals only itself: it cannot be %s",
                             what);
    return DCP_OK;
}

/* Adds an element to a set. */
static dcp_status place_element(dcp_state *set, dcp_state *node)
{
    struct key_form form;
    size_t position;
    RETURN_IF_ERROR(build_check_hash(node, "an element of a set"));
    key_form(node, &form);
    if (form.class == KEY_COMPOUND)
        RETURN_IF_ERROR(node_watch(build_pool(set), set));
    else if (node_find_form(set, &form, &position))
        return dcp_error_set(DCP_ERR_DUPLICATE,
                             "the %s has the element already: it equals number %zu",
                             node_kind_name(set->kind), position);
    return node_append(build_pool(set), set, NULL, node);
}

dcp_state *build_place(dcp_state *parent, const char *key, dcp_state *node)
{
    struct state_pool *pool = build_pool(parent);
    dcp_state *key_node = NULL;
    if (!node)
        return NULL;
    if (parent->kind == DCP_KIND_PAIR)
        return node_pair_add(parent, node) == DCP_OK ? node : NULL;
    if (node_is_set(parent))
        return place_element(parent, node) == DCP_OK ? node : NULL;
    if (key) {
        key_node = node_text(pool, DCP_KIND_STRING, key, strlen(key));
        if (!key_node)
            return NULL;
    }
    return node_append(pool, parent, key_node, node) == DCP_OK ? node : NULL;
}

dcp_status build_finish(dcp_state *parent, const char *key, dcp_state *node)
{
    if (build_place(parent, key, node))
        return DCP_OK;
    return build_keep_failure(parent, error_status());
}
