/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of the public calls that build a tree. */
#ifndef STATE_STATE_BUILD_H
#define STATE_STATE_BUILD_H

#include "state/node.h"

/* Where children of a node are made: they go when the node's contents go. */
struct state_pool *build_pool(const dcp_state *node);
/* That a text is UTF-8; what: it is, in words. */
dcp_status build_check_text(const char *what, const char *text, size_t length);
/* That a child may be added to the parent under the key. */
dcp_status build_check_place(const dcp_state *parent, const char *key);
/* That a node may be a key, or an element of a set; what: in words. */
dcp_status build_check_hash(const dcp_state *node, const char *what);
/* Keeps the failure whose message is set, if it is the first of the tree. node may be NULL. */
dcp_status build_keep_failure(const dcp_state *node, dcp_status status);
/* Puts a node into its place, which was checked. node may be NULL (a failure whose message is set).
 */
dcp_state *build_place(dcp_state *parent, const char *key, dcp_state *node);
/* Ends a building call whose place was checked: places the node, or keeps the failure if it is
 * NULL. */
dcp_status build_finish(dcp_state *parent, const char *key, dcp_state *node);

#endif
