/* SPDX-License-Identifier: BSD-3-Clause */
/* metadata.pkl of torch_checkpointing: the items of a checkpoint, the files of their ranks, and
 * where ranks' parts of tensors lie. It is read by the closed interpreter of pickles. */
#ifndef CONVERT_SOURCE_GROUPS_H
#define CONVERT_SOURCE_GROUPS_H

#include "base/name_table.h"
#include "convert/source_placed.h"
#include "format/pickle/pickle.h"

struct groups_item {
    const char *name;
    const struct pickle_value *layouts; /* by rank */
    struct name_table paths;            /* names in the item's files -> index of groups */
    const struct pickle_value **groups; /* the list of each path */
    size_t group_count;
};

struct groups_layout {
    int64_t rank;
    uint32_t at; /* of the dict's pairs */
};

struct groups {
    void *bytes;
    size_t size;
    struct pickle_document document;
    struct groups_item *items;
    size_t count;
    size_t world_size;
    bool flat;                        /* version 1.0: layouts are by rank, then by item */
    const struct groups_item *sorted; /* whose layouts follow, by rank; NULL: no item's */
    struct groups_layout *layouts;
    size_t layout_count;
    struct arena *arena;
};

/* Reads DIRECTORY/metadata.pkl. groups_free() also after a failure. */
dcp_status groups_read(struct groups *groups, const char *directory, struct arena *arena);
/* Likewise, from its bytes, which are borrowed. */
dcp_status groups_decode(struct groups *groups, const void *bytes, size_t size,
                         struct arena *arena);
void groups_free(struct groups *groups);
/* The file of a rank of an item; DCP_OK and *name NULL: the rank has none. Best for all ranks of an
 * item, then those of the next. */
dcp_status groups_file(struct groups *groups, const struct groups_item *item, size_t rank,
                       const char **name);
/* The shape of a tensor, from its first group. */
dcp_status groups_shape(const struct pickle_value *list, int64_t shape[DCP_MAX_DIMS],
                        int32_t *ndim);
/* Adds the parts of all groups, until the tensor that was begun is whole. find gives the entry of a
 * rank's file; false: it has none. */
typedef dcp_status (*groups_find)(void *context, size_t rank, size_t *file, size_t *entry,
                                  bool *found);
dcp_status groups_add(const struct pickle_value *list, struct source_parts *parts, groups_find find,
                      void *context);

#endif
