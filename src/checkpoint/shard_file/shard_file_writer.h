/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to a shard writer: items are collected as in a save, and written by the same code. */
#ifndef CHECKPOINT_SHARD_FILE_SHARD_FILE_WRITER_H
#define CHECKPOINT_SHARD_FILE_SHARD_FILE_WRITER_H

#include "checkpoint/save/save_local.h"
#include "dcp/shard_file.h"

enum shard_writer_stage { SHARD_WRITER_OPEN, SHARD_WRITER_SEALED, SHARD_WRITER_ENDED };

struct dcp_shard_writer {
    enum shard_writer_stage stage;
    dcp_storage storage;
    dcp_save_options options; /* those fields that a shard writer has */
    char *file;
    struct save_session session;
    struct save_local local; /* one item for each entry of local.flat */
    size_t capacity;         /* of the arrays by entry */
    dcp_state *object;       /* the node of entries that are objects, whose streams are encoded */
    dcp_state **trees;       /* those that tensors are in */
    size_t tree_count;
    size_t tree_capacity;
    dcp_storage_location *locations;
    uint64_t file_size;
};

/* Makes the writer the owner of a tree, whose nodes are to be added. After a failure it is freed.
 */
dcp_status shard_writer_own(struct dcp_shard_writer *writer, dcp_state *tree);
/* Adds a tensor of one chunk, a stored stream or bytes, which are taken for a stream; its tree is
 * the writer's. */
dcp_status shard_writer_add_node(struct dcp_shard_writer *writer, const dcp_shard_name *name,
                                 dcp_state *node);
/* Orders for all items of the plan, all of file 0. */
dcp_status shard_writer_order(struct dcp_shard_writer *writer, struct write_orders *orders);
/* DCP_ERR_DUPLICATE if items of the plan contradict each other, or are the same. */
dcp_status shard_writer_check_items(const struct dcp_shard_writer *writer);

#endif
