/* SPDX-License-Identifier: BSD-3-Clause */
/* The children of containers: dicts by their keys and sets by their elements. */
#ifndef STATE_NODE_CHILDREN_H
#define STATE_NODE_CHILDREN_H

#include "base/name_table.h"
#include "state/node_key.h"

/* The keys of a dict, or the elements of a set, that has grown beyond a few. Those with parts are
 * in no table. */
struct state_index {
    struct name_table tables[KEY_CLASS_COUNT]; /* form -> position */
    struct state_index *next;                  /* in the pool */
    /* Of a container to which keys with parts were added by building calls: */
    dcp_state *container;
    struct state_index *next_watched;
    struct state_index **watched_link; /* what points to this one there; NULL: not watched */
};

/* What is unique in a container: a pair's key, a set's element. */
const dcp_state *child_key(const struct state_child *child);
/* The position of the key, or element, of that form, which is not of KEY_COMPOUND. */
bool node_find_form(const dcp_state *container, const struct key_form *form, size_t *position);
/* After children have moved to other positions. */
dcp_status node_index_again(struct state_pool *pool, dcp_state *container);

/* Has dcp_state_status() look at the keys of a dict, or the elements of a set, from now on. */
dcp_status node_watch(struct state_pool *pool, dcp_state *container);
bool node_is_watched(const dcp_state *container);
/* No longer. */
void node_unwatch(dcp_state *container);
/* The contents of a container are now another node's. */
void node_moved(dcp_state *to);
void index_free(struct state_index *index);

#endif
