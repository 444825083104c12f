/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of a view: dcp_checkpoint_open() makes one that reads files, and planners are shown
 * the metadata of the save or load that they are part of, as one without a reader. */
#ifndef CHECKPOINT_VIEW_VIEW_H
#define CHECKPOINT_VIEW_VIEW_H

#include "dcp/checkpoint.h"
#include "storage/shard/shard_reader.h"
#include "storage/storage.h"

struct view_records; /* view_records.h */

struct dcp_checkpoint {
    const struct metadata *metadata;
    struct shard_reader *reader;  /* NULL: nothing can be read */
    dcp_storage storage;          /* that the reader reads */
    struct metadata own;          /* what metadata points to, unless it is somebody else's */
    struct view_records *records; /* NULL: parts of records are not joined */
};

/* A stored piece by its numbers. */
dcp_status view_find_piece(const dcp_checkpoint *checkpoint, size_t entry, size_t chunk,
                           const struct metadata_entry **found,
                           const struct metadata_piece **piece);
/* Reads the options of a call that converts no elements. name: what is read, for the message. */
dcp_status view_read_options(const char *name, const dcp_read_options *given, size_t size,
                             dcp_read_options *options);
/* DCP_ERR_STATE without a reader. */
dcp_status view_check_readable(const dcp_checkpoint *checkpoint,
                               const struct metadata_entry *entry);

#endif
