/* SPDX-License-Identifier: BSD-3-Clause */
/* In a loaded object, one node may be in several places if its pickle shares the value. A load into
 * such a tree gives each place a separate value, as Python does. */
#include "base/error.h"
#include "state/flatten.h"

/* Maximum number of copied containers: only a malicious object needs more. */
enum { CONTAINERS_MAX = 1 << 16 };

struct owning {
    uint32_t walk;            /* of the caller's tree */
    struct state_root *asked; /* the last tree of a stateful entry, and its walk */
    uint32_t asked_walk;
    size_t containers;
};

static dcp_status copy_value(struct owning *owning, const dcp_state *node, dcp_state **copy)
{
    if (node_children(node) || node->content) {
        if (++owning->containers > CONTAINERS_MAX)
            return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "values with parts are shared more than %d times in all",
                                 (int)CONTAINERS_MAX);
        return node_copy(node->pool, node, copy);
    }
    *copy = node_new(node->pool, node->kind);
    if (!*copy)
        return error_no_memory(sizeof **copy, "a value");
    (*copy)->as = node->as; /* texts never change */
    return DCP_OK;
}

static uint32_t walk_of(struct owning *owning, const struct state_root *root, dcp_state *node)
{
    if (node->root == root)
        return owning->walk;
    if (node->root != owning->asked) {
        owning->asked = node->root;
        owning->asked_walk = node_walk_begin(node);
    }
    return owning->asked_walk;
}

dcp_status flatten_own_objects(dcp_state *root, struct flat_state *flat)
{
    struct owning owning = {.walk = node_walk_begin(root)};
    for (size_t i = 0; i < flat->count; i++) {
        struct flat_entry *entry = &flat->entries[i];
        if (entry->node->kind == DCP_KIND_TENSOR || !entry->place)
            continue;
        uint32_t walk = walk_of(&owning, root->root, entry->node);
        if (node_mark(entry->node, walk) != 0) {
            dcp_state *copy;
            RETURN_IF_ERROR(copy_value(&owning, entry->node, &copy));
            entry->place->value = entry->node = copy;
        }
        node_set_mark(entry->node, walk, 1);
    }
    return DCP_OK;
}
