/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/node_path.h"

#include <stdio.h>

#include "base/memory.h"
#include "state/flatten_key.h"

enum { NODE_SEEN = 1 };

/* A container on the way from the root; dicts count keys and values. */
struct step {
    dcp_state *node;
    size_t next;
};

struct search {
    const dcp_state *wanted;
    uint32_t walk;
    struct step *steps;
    size_t depth, capacity;
};

/* False: no memory. */
static bool enter(struct search *search, dcp_state *node)
{
    if (!node_children(node) || node_mark(node, search->walk) == NODE_SEEN)
        return true;
    if (search->depth == search->capacity) {
        size_t capacity = search->capacity * 2 + 16;
        struct step *steps = memory_reallocate_array(search->steps, capacity, sizeof *steps);
        if (!steps)
            return false;
        search->steps = steps;
        search->capacity = capacity;
    }
    node_set_mark(node, search->walk, NODE_SEEN);
    search->steps[search->depth++] = (struct step){node, 0};
    return true;
}

static bool find(struct search *search, dcp_state *root)
{
    bool complete = enter(search, root);
    while (complete && search->depth > 0) {
        struct step *top = &search->steps[search->depth - 1];
        const struct state_children *children = node_children(top->node);
        size_t index = top->next / 2;
        if (index == children->count) {
            search->depth--;
            continue;
        }
        const struct state_child *child = &children->items[index];
        dcp_state *node = top->next++ % 2 == 0 ? child->key : child->value;
        if (node && node == search->wanted)
            return true;
        if (node)
            complete = enter(search, node);
    }
    return false;
}

/* The text of a dict's key; what has none is numbered. */
static void put_key(struct buffer *out, const dcp_state *key, size_t index)
{
    size_t size = out->size;
    if (key->kind == DCP_KIND_STRING) {
        buffer_append_format(out, "[\"%s\"]", key->as.text.bytes);
        return;
    }
    buffer_append_format(out, "[");
    if (key_append(out, key) == DCP_OK) {
        buffer_append_format(out, "]");
    } else {
        out->size = size;
        buffer_append_format(out, "[pair %zu]", index);
    }
}

const char *node_path(const dcp_state *node, char text[NODE_PATH_MAX])
{
    dcp_state *root = &node->root->node;
    struct search search = {.wanted = node, .walk = node_walk_begin(root)};
    struct saved_error error;
    struct buffer out;
    buffer_init(&out, 0);
    error_save(&error); /* the current error, because the search may fail */
    bool found = node != root && find(&search, root);
    for (size_t i = 0; i < search.depth && found; i++) {
        const struct step *step = &search.steps[i];
        size_t index = (step->next - 1) / 2;
        const dcp_state *key = node_children(step->node)->items[index].key;
        if (key)
            put_key(&out, key, index);
        else
            buffer_append_format(&out, "[%zu]", index);
        if (key && step->next % 2 == 1)
            buffer_append_format(&out, ", in its key");
    }
    if (found && buffer_status(&out) == DCP_OK)
        snprintf(text, NODE_PATH_MAX, "%.*s",
                 (int)(out.size < NODE_PATH_MAX ? out.size : NODE_PATH_MAX - 1),
                 (const char *)out.data);
    else
        snprintf(text, NODE_PATH_MAX, "%s",
                 node == root ? "the root" : "a place that was not found");
    error_restore(&error);
    buffer_free(&out);
    memory_release(search.steps);
    return text;
}
