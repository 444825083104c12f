/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/node_place.h"

#include <string.h>

static dcp_state *find_child(const dcp_state *parent, const dcp_path_part *part)
{
    if (node_is_dict(parent))
        return part->key ? dcp_state_find(parent, part->key) : NULL;
    return !part->key && part->position >= 0 && (uint64_t)part->position < dcp_state_count(parent)
               ? dcp_state_at(parent, (size_t)part->position)
               : NULL;
}

static dcp_status add_child(struct state_pool *pool, dcp_state *parent, const dcp_path_part *part,
                            dcp_state *child)
{
    dcp_state *key = NULL;
    if (!node_is_dict(parent) && parent->kind != DCP_KIND_LIST)
        return dcp_error_set(DCP_ERR_FORMAT, "a path leads through a %s",
                             node_kind_name(parent->kind));
    if (node_is_dict(parent) != (part->key != NULL))
        return dcp_error_set(DCP_ERR_FORMAT, "paths make one thing a dict and a list");
    if (part->key) {
        key = node_text(pool, DCP_KIND_STRING, part->key, strlen(part->key));
        if (!key)
            return DCP_ERR_NO_MEMORY;
    } else if (part->position < 0 || (uint64_t)part->position != dcp_state_count(parent)) {
        return dcp_error_set(DCP_ERR_FORMAT, "paths leave out element %zu of a list",
                             dcp_state_count(parent));
    }
    return node_append(pool, parent, key, child);
}

dcp_status node_place(dcp_state *into, const dcp_path_part *path, size_t length, dcp_state *node)
{
    struct state_pool *pool = into->content ? into->content : into->pool;
    dcp_state *parent = into;
    for (size_t i = 0; i + 1 < length; i++) {
        dcp_state *child = find_child(parent, &path[i]);
        if (!child) {
            child = node_new(pool, path[i + 1].key ? DCP_KIND_DICT : DCP_KIND_LIST);
            if (!child)
                return DCP_ERR_NO_MEMORY;
            RETURN_IF_ERROR(add_child(pool, parent, &path[i], child));
        }
        parent = child;
    }
    if (find_child(parent, &path[length - 1]))
        return dcp_error_set(DCP_ERR_DUPLICATE, "\"%s\" already exists",
                             path[length - 1].key ? path[length - 1].key : "an element");
    return add_child(pool, parent, &path[length - 1], node);
}
