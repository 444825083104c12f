/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/node_unique.h"

#include "base/memory.h"
#include "state/node_children.h"
#include "state/node_path.h"

/* The keys with parts that were met. */
struct unique_keys {
    struct name_table forms; /* -> position */
    struct arena arena;      /* of the forms */
    struct buffer form;
};

static void unique_init(struct unique_keys *keys)
{
    name_table_init(&keys->forms);
    arena_init(&keys->arena, 0);
    buffer_init(&keys->form, 0);
}

static void unique_free(struct unique_keys *keys)
{
    name_table_free(&keys->forms);
    arena_free(&keys->arena);
    buffer_free(&keys->form);
}

/* Adds the key whose form was written, with its position, or returns the position of an equal
 * key. */
static dcp_status unique_add(struct unique_keys *keys, uint64_t *position, bool *existing)
{
    const char *form = arena_copy(&keys->arena, keys->form.data, keys->form.size);
    if (!form)
        return error_no_memory(keys->form.size, "the keys of a dict");
    return name_table_add(&keys->forms, form, keys->form.size, position, existing);
}

/* Within the allowance. One of 0 is refused here, as a buffer takes it for no maximum. */
static dcp_status write_within(struct unique_keys *keys, const dcp_state *key, uint64_t *allowance)
{
    dcp_status status = DCP_ERR_UNSUPPORTED;
    buffer_clear(&keys->form);
    buffer_set_maximum(&keys->form, *allowance < SIZE_MAX ? (size_t)*allowance : SIZE_MAX);
    if (*allowance > 0)
        status = key_write(key, DCP_ERR_FORMAT, &keys->form);
    if (status == DCP_ERR_UNSUPPORTED)
        return dcp_error_set(DCP_ERR_FORMAT, "an object that repeats its values without end");
    RETURN_IF_ERROR(status);
    *allowance -= keys->form.size;
    return DCP_OK;
}

static dcp_status settle(struct unique_keys *keys, dcp_state *container, uint64_t *allowance)
{
    struct state_children *children = &container->as.children;
    size_t kept = 0;
    for (size_t i = 0; i < children->count; i++) {
        const struct state_child child = children->items[i];
        uint64_t position = kept;
        bool existing = false;
        if (key_is_compound(child_key(&child))) {
            RETURN_IF_ERROR(write_within(keys, child_key(&child), allowance));
            RETURN_IF_ERROR(unique_add(keys, &position, &existing));
        }
        if (!existing)
            children->items[kept++] = child;
        else if (child.key)
            children->items[position].value = child.value;
    }
    children->count = kept;
    return DCP_OK;
}

dcp_status node_settle(struct state_pool *pool, dcp_state *container, uint64_t *allowance)
{
    struct unique_keys keys;
    size_t count = container->as.children.count;
    unique_init(&keys);
    dcp_status status = settle(&keys, container, allowance);
    unique_free(&keys);
    if (status == DCP_OK && container->as.children.count < count)
        status = node_index_again(pool, container);
    return status;
}

/* Puts the place of a node in front of the message of its failure. */
static dcp_status name_place(const dcp_state *container, dcp_status status)
{
    char place[NODE_PATH_MAX];
    return error_prefix(status, "the %s at %s", node_kind_name(container->kind),
                        node_path(container, place));
}

static dcp_status check(struct unique_keys *keys, const dcp_state *container)
{
    const struct state_children *children = &container->as.children;
    for (size_t i = 0; i < children->count; i++) {
        const dcp_state *key = child_key(&children->items[i]);
        uint64_t position = i;
        bool existing;
        if (!key_is_compound(key))
            continue;
        buffer_clear(&keys->form);
        RETURN_IF_ERROR(key_write(key, DCP_ERR_ARGUMENT, &keys->form));
        RETURN_IF_ERROR(unique_add(keys, &position, &existing));
        if (existing)
            return dcp_error_set(
                DCP_ERR_DUPLICATE, "%s %zu and %zu are equal: each may be there once",
                children->items[i].key ? "the keys of pairs" : "elements", (size_t)position, i);
    }
    return DCP_OK;
}

dcp_status node_check_unique(const dcp_state *container)
{
    struct unique_keys keys;
    unique_init(&keys);
    dcp_status status = check(&keys, container);
    unique_free(&keys);
    if (status == DCP_ERR_DUPLICATE || status == DCP_ERR_ARGUMENT)
        return name_place(container, status);
    return status;
}

/* Adds the elements with parts. */
static dcp_status add_elements(struct unique_keys *keys, const struct state_children *elements)
{
    for (size_t i = 0; i < elements->count; i++) {
        uint64_t position = i;
        bool existing;
        if (!key_is_compound(elements->items[i].value))
            continue;
        buffer_clear(&keys->form);
        RETURN_IF_ERROR(key_write(elements->items[i].value, DCP_ERR_ARGUMENT, &keys->form));
        RETURN_IF_ERROR(unique_add(keys, &position, &existing));
    }
    return DCP_OK;
}

static dcp_status match(struct unique_keys *keys, const dcp_state *element, const dcp_state *other,
                        size_t *position)
{
    struct key_form form;
    uint64_t found;
    *position = SIZE_MAX;
    key_form(element, &form);
    if (form.class != KEY_COMPOUND) {
        if (!node_find_form(other, &form, position))
            *position = SIZE_MAX;
        return DCP_OK;
    }
    buffer_clear(&keys->form);
    RETURN_IF_ERROR(key_write(element, DCP_ERR_ARGUMENT, &keys->form));
    if (name_table_find(&keys->forms, (const char *)keys->form.data, keys->form.size, &found))
        *position = (size_t)found;
    return DCP_OK;
}

dcp_status node_match(const dcp_state *set, const dcp_state *other, size_t *positions)
{
    struct unique_keys keys;
    unique_init(&keys);
    dcp_status status = add_elements(&keys, &other->as.children);
    for (size_t i = 0; i < set->as.children.count && status == DCP_OK; i++)
        status = match(&keys, set->as.children.items[i].value, other, &positions[i]);
    unique_free(&keys);
    return status;
}

dcp_status state_check_complete(struct state_root *root)
{
    if (root->open_pairs) {
        const struct state_pair *pair = &root->open_pairs->as.pair;
        dcp_status status = dcp_error_set(
            DCP_ERR_ARGUMENT, "a pair has %s: add what is missing, with NULL for its key",
            pair->key ? "a key but no value" : "neither key nor value");
        return name_place(pair->dict, status);
    }
    for (struct state_index *index = root->watched; index; index = index->next_watched)
        RETURN_IF_ERROR(node_check_unique(index->container));
    return DCP_OK;
}
