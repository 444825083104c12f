/* SPDX-License-Identifier: BSD-3-Clause */
/* One stored piece, opened: its bytes as a source, wherever they have to come from. */
#ifndef STORAGE_STORED_ITEM_H
#define STORAGE_STORED_ITEM_H

#include "storage/checked_source.h"

/* Must stay where it is while it is open. */
struct stored_item {
    struct shard_file *file;
    struct shard_reader *reader;
    const struct metadata_entry *entry;
    const struct metadata_piece *piece;
    struct checked_source checked;
    struct byte_source source; /* what format/ is given: the stream, or the file of a view */
    bool at_hand;              /* all of source is in memory, whose ever */
    void *memory;              /* that holds it, unless a window does */
    void *inflated;            /* the storage of a deflated record */
    struct arena arena;
};

/* Opens the file and checks the piece against its size. whole: all of the piece is wanted, so that
 * a small one is read at once. */
dcp_status stored_item_open(struct stored_item *item, struct shard_reader *reader,
                            const struct metadata_entry *entry, const struct metadata_piece *piece,
                            dcp_verification verification, bool whole);
/* As above, out of a window if that holds the piece; NULL: as above. */
dcp_status stored_item_open_in(struct stored_item *item, struct shard_reader *reader,
                               const struct metadata_entry *entry,
                               const struct metadata_piece *piece, dcp_verification verification,
                               bool whole, const struct read_window *window);
/* The same of a stream that somebody else has read, as it is stored or decompressed. bytes stay the
 * caller's. */
dcp_status stored_item_open_memory(struct stored_item *item, const struct metadata_entry *entry,
                                   const struct metadata_piece *piece, const void *bytes,
                                   size_t size);
/* Says where a tensor's elements lie in item->source, checked against the metadata; deflated ones
 * have been inflated. */
dcp_status stored_item_view(struct stored_item *item, struct tensor_view *view);
/* Where the view's data is in the file, for messages; compressed data has no place of its own. */
uint64_t stored_item_place(const struct stored_item *item, const struct tensor_view *view);
/* Reads the view's record as a whole for the checks alone: its CRC-32, if it has one, and what the
 * source checks. */
dcp_status stored_item_check_record(const struct stored_item *item, const struct tensor_view *view);
void stored_item_close(struct stored_item *item);

#endif
