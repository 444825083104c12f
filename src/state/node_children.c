/* SPDX-License-Identifier: BSD-3-Clause */
/* Giving containers their children, and finding those of dicts and sets. */
#include "state/node_children.h"

#include <string.h>

/* Dicts and sets up to this size are searched from end to end. */
#define SMALL_CONTAINER 8

bool node_is_set(const dcp_state *node)
{
    return node->kind == DCP_KIND_SET || node->kind == DCP_KIND_FROZENSET;
}

const dcp_state *child_key(const struct state_child *child)
{
    return child->key ? child->key : child->value;
}

static bool has_form(const dcp_state *key, const struct key_form *form)
{
    struct key_form own;
    if (key->kind == DCP_KIND_STRING) /* most are */
        return form->class == KEY_TEXT && form->length == key->as.text.length &&
               memcmp(form->bytes, key->as.text.bytes, form->length) == 0;
    key_form(key, &own);
    return key_form_equal(&own, form);
}

bool node_find_form(const dcp_state *container, const struct key_form *form, size_t *position)
{
    const struct state_children *children = &container->as.children;
    if (children->index) {
        uint64_t found;
        if (!name_table_find(&children->index->tables[form->class], form->bytes, form->length,
                             &found))
            return false;
        *position = (size_t)found;
        return true;
    }
    for (size_t i = 0; i < children->count; i++)
        if (has_form(child_key(&children->items[i]), form)) {
            *position = i;
            return true;
        }
    return false;
}

bool node_find(const dcp_state *dict, const char *key, size_t length, size_t *position)
{
    struct key_form form;
    form.class = KEY_TEXT;
    form.bytes = key;
    form.length = length;
    form.is_made = false;
    return node_find_form(dict, &form, position);
}

static dcp_status index_add(struct state_pool *pool, struct state_index *index,
                            const struct key_form *form, size_t position)
{
    bool existing;
    uint64_t value = position;
    const char *bytes = form->bytes;
    if (form->class == KEY_COMPOUND)
        return DCP_OK;
    if (form->is_made) {
        bytes = arena_copy(&pool->arena, form->bytes, form->length);
        if (!bytes)
            return error_no_memory(form->length, "a dict's index");
    }
    return name_table_add(&index->tables[form->class], bytes, form->length, &value, &existing);
}

static dcp_status index_fill(struct state_pool *pool, struct state_index *index,
                             const struct state_children *children)
{
    for (size_t c = 0; c < KEY_CLASS_COUNT; c++)
        name_table_init(&index->tables[c]);
    for (size_t i = 0; i < children->count; i++) {
        struct key_form form;
        key_form(child_key(&children->items[i]), &form);
        RETURN_IF_ERROR(index_add(pool, index, &form, i));
    }
    return DCP_OK;
}

static void index_clear(struct state_index *index)
{
    for (size_t c = 0; c < KEY_CLASS_COUNT; c++)
        name_table_free(&index->tables[c]);
}

/* Makes the index of a container; a failure leaves it without one. */
static dcp_status index_make(struct state_pool *pool, struct state_children *children)
{
    struct state_index *index = arena_allocate(&pool->arena, sizeof *index);
    if (!index)
        return error_no_memory(sizeof *index, "a dict's index");
    *index = (struct state_index){.next = pool->indexes};
    dcp_status status = index_fill(pool, index, children);
    if (status != DCP_OK) {
        index_clear(index);
        return status;
    }
    pool->indexes = index;
    children->index = index;
    return DCP_OK;
}

dcp_status node_index_again(struct state_pool *pool, dcp_state *container)
{
    struct state_index *index = container->as.children.index;
    if (!index)
        return DCP_OK;
    index_clear(index);
    return index_fill(pool, index, &container->as.children);
}

static dcp_status reserve_child(struct state_pool *pool, struct state_children *children)
{
    if (children->count < children->capacity)
        return DCP_OK;
    size_t capacity = children->capacity ? children->capacity * 2 : 4;
    struct state_child *items = arena_allocate_array(&pool->arena, capacity, sizeof *items);
    if (!items)
        return error_no_memory(capacity * sizeof *items, "children");
    if (children->count > 0)
        memcpy(items, children->items, children->count * sizeof *items);
    children->items = items;
    children->capacity = capacity;
    return DCP_OK;
}

/* Appends a child whose key is new, or which is a new element of a set. */
static dcp_status append_unique(struct state_pool *pool, struct state_children *children,
                                const struct key_form *form, struct state_child child)
{
    RETURN_IF_ERROR(reserve_child(pool, children));
    if (!children->index && children->count >= SMALL_CONTAINER)
        RETURN_IF_ERROR(index_make(pool, children));
    if (children->index)
        RETURN_IF_ERROR(index_add(pool, children->index, form, children->count));
    children->items[children->count++] = child;
    return DCP_OK;
}

dcp_status node_append(struct state_pool *pool, dcp_state *container, dcp_state *key,
                       dcp_state *value)
{
    struct state_children *children = container->kind == DCP_KIND_OPAQUE
                                          ? &container->as.opaque->children
                                          : &container->as.children;
    struct state_child child = {key, value};
    struct key_form form;
    size_t position;
    if (!key && !node_is_set(container)) {
        RETURN_IF_ERROR(reserve_child(pool, children));
        children->items[children->count++] = child;
        return DCP_OK;
    }
    key_form(child_key(&child), &form);
    if (form.class == KEY_COMPOUND || !node_find_form(container, &form, &position))
        return append_unique(pool, children, &form, child);
    if (key)
        children->items[position].value = value;
    return DCP_OK;
}

dcp_status node_watch(struct state_pool *pool, dcp_state *container)
{
    struct state_children *children = &container->as.children;
    if (!children->index)
        RETURN_IF_ERROR(index_make(pool, children));
    struct state_index *index = children->index, **list = &container->root->watched;
    index->container = container;
    if (index->watched_link)
        return DCP_OK;
    index->next_watched = *list;
    index->watched_link = list;
    if (index->next_watched)
        index->next_watched->watched_link = &index->next_watched;
    *list = index;
    return DCP_OK;
}

static void index_unwatch(struct state_index *index)
{
    if (!index->watched_link)
        return;
    *index->watched_link = index->next_watched;
    if (index->next_watched)
        index->next_watched->watched_link = index->watched_link;
    index->watched_link = NULL;
}

static struct state_index *index_of(const dcp_state *node)
{
    return node_is_dict(node) || node_is_set(node) ? node->as.children.index : NULL;
}

bool node_is_watched(const dcp_state *container)
{
    const struct state_index *index = index_of(container);
    return index && index->watched_link;
}

void node_unwatch(dcp_state *container)
{
    struct state_index *index = index_of(container);
    if (index)
        index_unwatch(index);
}

void node_moved(dcp_state *to)
{
    struct state_index *index = index_of(to);
    if (index)
        index->container = to;
}

void index_free(struct state_index *index)
{
    index_unwatch(index);
    index_clear(index);
}
