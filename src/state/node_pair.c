/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/node_pair.h"

#include "state/flatten_key.h"
#include "state/node_children.h"
#include "state/state_build.h"

dcp_state *node_pair_new(struct state_pool *pool, dcp_state *dict)
{
    dcp_state *node = node_new(pool, DCP_KIND_PAIR), **list = &dict->root->open_pairs;
    if (!node)
        return NULL;
    node->as.pair =
        (struct state_pair){.dict = dict, .next = *list, .link = list, .next_in_pool = pool->pairs};
    if (*list)
        (*list)->as.pair.link = &node->as.pair.next;
    *list = node;
    pool->pairs = node;
    return node;
}

void node_pair_close(dcp_state *node)
{
    struct state_pair *pair = &node->as.pair;
    if (!pair->link)
        return;
    *pair->link = pair->next;
    if (pair->next)
        pair->next->as.pair.link = pair->link;
    pair->link = NULL;
}

dcp_status node_pair_check(const dcp_state *node)
{
    if (!node->as.pair.link)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "a pair has its key and its value already: nothing more can be added");
    return DCP_OK;
}

/* That the dict has no such key. Keys with parts are compared when they are complete. */
static dcp_status check_new(const dcp_state *dict, const dcp_state *key)
{
    struct key_form form;
    size_t position;
    key_form(key, &form);
    if (form.class == KEY_COMPOUND || !node_find_form(dict, &form, &position))
        return DCP_OK;
    struct buffer text;
    buffer_init(&text, 0);
    dcp_status status = key_append(&text, key);
    if (status != DCP_ERR_NO_MEMORY)
        status = dcp_error_set(DCP_ERR_DUPLICATE,
                               "the key %.*s is in the dict already, or one that equals it",
                               text.size < 80 ? (int)text.size : 80, (const char *)text.data);
    buffer_free(&text);
    return status;
}

dcp_status node_pair_add(dcp_state *node, dcp_state *added)
{
    struct state_pair *pair = &node->as.pair;
    struct state_pool *pool = build_pool(pair->dict);
    if (!pair->key) {
        RETURN_IF_ERROR(build_check_hash(added, "the key of a dict"));
        RETURN_IF_ERROR(check_new(pair->dict, added));
        pair->key = added;
        return DCP_OK;
    }
    RETURN_IF_ERROR(check_new(pair->dict, pair->key)); /* others may have been added since */
    if (key_is_compound(pair->key))
        RETURN_IF_ERROR(node_watch(pool, pair->dict));
    RETURN_IF_ERROR(node_append(pool, pair->dict, pair->key, added));
    node_pair_close(node);
    return DCP_OK;
}
