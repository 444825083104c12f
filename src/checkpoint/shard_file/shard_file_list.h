/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to a list of shard files. */
#ifndef CHECKPOINT_SHARD_FILE_SHARD_FILE_LIST_H
#define CHECKPOINT_SHARD_FILE_SHARD_FILE_LIST_H

#include "dcp/shard_file.h"
#include "format/footer/footer.h"
#include "format/streams/stream_scan.h"
#include "storage/open/directory.h"

struct listed_item {
    const struct metadata_entry *entry;
    const struct metadata_piece *piece;
};

struct listed_file {
    const char *name; /* as the footer's text, borrowed from the listing */
    bool is_numbered; /* "__R_N.distcp" and those of later generations */
    int rank;
    uint32_t number;
    uint32_t generation;
    uint64_t size;
    dcp_status status;
    char *problem;        /* NULL: none */
    struct footer footer; /* with DCP_OK */
    struct listed_item *items;
    size_t item_count;
    struct found_streams streams; /* without a footer, if they are wanted */
};

struct dcp_shard_list {
    dcp_storage storage;
    const dcp_storage *chosen;
    char *id; /* of the directory, in a form that means the same later */
    struct directory directory;
    struct listed_file *files; /* by rank, then name */
    size_t count;
    bool streams;       /* are wanted */
    struct arena arena; /* of their shapes */
};

/* Makes metadata of what the streams of the list's files agree with in options->like. The list must
 * have no file with a footer. *metadata is initialized by the call, and empty after a failure. */
dcp_status shard_list_rebuild_like(const dcp_shard_list *list, const dcp_rebuild_options *options,
                                   struct metadata *metadata);

#endif
