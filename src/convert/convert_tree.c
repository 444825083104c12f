/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/name_table.h"

/* A container or leaf. Parents come before what is in them. */
struct tree_node {
    size_t parent;
    dcp_path_part part;
    const struct convert_item *item; /* NULL: a container */
    bool by_position;                /* its children are elements of a list */
    bool by_key;
    bool is_list;
    bool is_entered; /* flattening enters it, or it is a tensor */
    int64_t last;    /* the highest position in it */
    size_t child_count;
    size_t *children; /* of a list, by position */
    dcp_state *state;
};

struct tree {
    struct arena arena;
    struct name_table places; /* bytes of a path -> node */
    struct tree_node *nodes;
    size_t count, capacity;
    struct buffer place; /* of the node that is looked for */
};

static dcp_status add_node(struct tree *tree, size_t parent, dcp_path_part part)
{
    if (tree->count == tree->capacity) {
        size_t capacity = 2 * tree->capacity + 64;
        struct tree_node *nodes = arena_allocate_array(&tree->arena, capacity, sizeof *nodes);
        if (!nodes)
            return error_no_memory(capacity * sizeof *nodes, "nested names");
        if (tree->count > 0)
            memcpy(nodes, tree->nodes, tree->count * sizeof *nodes);
        tree->nodes = nodes;
        tree->capacity = capacity;
    }
    tree->nodes[tree->count++] = (struct tree_node){.parent = parent, .part = part, .last = -1};
    return DCP_OK;
}

/* The node of a part in a container, which is made if it is not there. */
static dcp_status take_node(struct tree *tree, size_t parent, dcp_path_part part,
                            const struct convert_item *item, size_t *node)
{
    uint64_t index = tree->count;
    bool existing;
    buffer_clear(&tree->place);
    buffer_append_u64(&tree->place, parent);
    if (part.key)
        buffer_append_text(&tree->place, part.key, strlen(part.key));
    else
        buffer_append_u64(&tree->place, (uint64_t)part.position);
    buffer_append_u8(&tree->place, part.key != NULL);
    RETURN_IF_ERROR(buffer_status(&tree->place));
    char *place = arena_copy(&tree->arena, tree->place.data, tree->place.size);
    if (!place)
        return error_no_memory(tree->place.size, "a name");
    RETURN_IF_ERROR(name_table_add(&tree->places, place, tree->place.size, &index, &existing));
    *node = (size_t)index;
    if (existing)
        return DCP_OK;
    RETURN_IF_ERROR(add_node(tree, parent, part));
    struct tree_node *container = &tree->nodes[parent];
    container->child_count++;
    container->by_key |= part.key != NULL;
    container->by_position |= part.key == NULL;
    if (!part.key && part.position > container->last)
        container->last = part.position;
    return container->item
               ? dcp_error_set(DCP_ERR_DUPLICATE,
                               "\"%s\" is below \"%s\", which is no dict: rename one of them",
                               item->name, container->item->name)
               : DCP_OK;
}

static dcp_status add_item(struct tree *tree, const struct convert_item *item)
{
    size_t node = 0;
    for (size_t i = 0; i < item->path_length; i++)
        RETURN_IF_ERROR(take_node(tree, node, item->path[i], item, &node));
    struct tree_node *leaf = &tree->nodes[node];
    if (node == 0 || leaf->item || leaf->child_count > 0)
        return dcp_error_set(DCP_ERR_DUPLICATE,
                             "\"%s\" has the place of other names: rename one of them", item->name);
    leaf->item = item;
    leaf->is_entered = item->is_tensor;
    return DCP_OK;
}

/* Says what each container is: from the innermost ones outwards. */
static void decide(struct tree *tree)
{
    for (size_t i = tree->count; i-- > 0;) {
        struct tree_node *node = &tree->nodes[i];
        bool complete = node->last >= 0 && (uint64_t)node->last + 1 == node->child_count;
        if (!node->item) {
            node->is_list = i > 0 && !node->by_key && complete && node->is_entered;
            node->is_entered = true;
        }
        if (i > 0)
            tree->nodes[node->parent].is_entered |= node->is_entered;
    }
}

/* Puts the children of lists in order. */
static dcp_status arrange(struct tree *tree)
{
    for (size_t i = 1; i < tree->count; i++) {
        struct tree_node *node = &tree->nodes[i], *parent = &tree->nodes[node->parent];
        if (node->is_list) {
            node->children =
                arena_allocate_array(&tree->arena, node->child_count, sizeof *node->children);
            if (!node->children)
                return error_no_memory(node->child_count * sizeof(size_t), "a list");
        }
        if (parent->is_list)
            parent->children[node->part.position] = i;
    }
    return DCP_OK;
}

static dcp_status emit(struct tree *tree, size_t index, dcp_state *root, convert_leaf leaf,
                       void *context)
{
    struct tree_node *node = &tree->nodes[index], *parent = &tree->nodes[node->parent];
    dcp_state *container = node->parent == 0 ? root : parent->state;
    const char *key = parent->is_list ? NULL : node->part.key;
    char text[24];
    if (!key && !parent->is_list) {
        snprintf(text, sizeof text, "%" PRId64, node->part.position);
        key = text;
    }
    if (node->item)
        return leaf(context, node->item, container, key);
    node->state = node->is_list ? dcp_state_list(container, key) : dcp_state_dict(container, key);
    return dcp_state_status(root);
}

static dcp_status emit_all(struct tree *tree, dcp_state *root, convert_leaf leaf, void *context)
{
    for (size_t i = 1; i < tree->count; i++) {
        const struct tree_node *node = &tree->nodes[i], *parent = &tree->nodes[node->parent];
        if (!parent->is_list) {
            RETURN_IF_ERROR(emit(tree, i, root, leaf, context));
            continue;
        }
        /* All of a list at the first of its elements. */
        struct tree_node *list = &tree->nodes[node->parent];
        for (size_t k = 0; k < list->child_count; k++)
            RETURN_IF_ERROR(emit(tree, list->children[k], root, leaf, context));
        list->child_count = 0;
    }
    return DCP_OK;
}

dcp_status convert_build_tree(const struct convert_source *source, dcp_state *root,
                              convert_leaf leaf, void *context)
{
    struct tree tree = {0};
    arena_init(&tree.arena, 0);
    name_table_init(&tree.places);
    buffer_init(&tree.place, 0);
    dcp_status status = add_node(&tree, 0, (dcp_path_part){0});
    for (size_t i = 0; i < source->count && status == DCP_OK; i++)
        status = add_item(&tree, &source->items[i]);
    if (status == DCP_OK) {
        decide(&tree);
        status = arrange(&tree);
    }
    if (status == DCP_OK)
        status = emit_all(&tree, root, leaf, context);
    name_table_free(&tree.places);
    buffer_free(&tree.place);
    arena_free(&tree.arena);
    return status;
}
