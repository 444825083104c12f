/* SPDX-License-Identifier: BSD-3-Clause */
/* The nested dicts and lists that items are in, from their paths. */
#ifndef CONVERT_CONVERT_TREE_H
#define CONVERT_CONVERT_TREE_H

#include "convert/convert_source.h"

/* Adds the leaf of an item to a dict (key) or list (NULL). */
typedef dcp_status (*convert_leaf)(void *context, const struct convert_item *item,
                                   dcp_state *parent, const char *key);

/* Builds the tree below root, an empty dict. Keys keep the order of the items. A list of which
 * elements are missing becomes a dict, and so does one that no tensor would be found in.
 * DCP_ERR_DUPLICATE where a name is both a container and not. */
dcp_status convert_build_tree(const struct convert_source *source, dcp_state *root,
                              convert_leaf leaf, void *context);

#endif
