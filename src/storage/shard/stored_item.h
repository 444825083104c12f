/* SPDX-License-Identifier: BSD-3-Clause */
/* An open stored piece: its bytes as a source, from a file, a window or memory. */
#ifndef STORAGE_SHARD_STORED_ITEM_H
#define STORAGE_SHARD_STORED_ITEM_H

#include "storage/shard/checked_source.h"
#include "storage/shard/decompressed_source.h"

/* Streams up to here are read at once if all of them is wanted, and along with their neighbours. */
#define STORED_ITEM_SMALL ((uint64_t)64 << 10)
/* Compressed tensors of no more bytes are decompressed at once. */
#define STORED_ITEM_WHOLE ((uint64_t)192 << 10)
/* Compressed input that is read at a time where it is to go around the page cache. */
#define STORED_ITEM_DIRECT_INPUT ((size_t)4 << 20)
/* The maximum, regardless of the storage's request size. */
#define STORED_ITEM_INPUT_MOST ((size_t)64 << 20)

/* Compressed input per read, if there is enough memory: more without the page cache, or over a
 * network. io: flags of dcp_io; request: the storage's request_size. */
size_t stored_item_input(uint32_t io, size_t request);

/* Must stay where it is while it is open. */
struct stored_item {
    struct shard_file *file;
    bool borrowed; /* the file, from a window */
    struct shard_reader *reader;
    const struct metadata_entry *entry;
    const struct metadata_piece *piece;
    struct checked_source checked;
    struct decompressed_source decompressed;
    struct byte_source source;     /* what format/ is given: the stream, or the file of a view */
    bool listed;                   /* the file's footer has the piece */
    bool in_memory;                /* all of source is in memory; the item need not own it */
    bool trusted;                  /* and of a window that needs no further check */
    bool passing;                  /* source is decompressed as it is read */
    bool foreseen;                 /* a view of it is to be compared with what its end says */
    bool ended;                    /* that was done, and the CRC was right */
    bool crc_held;                 /* there was one */
    void *memory;                  /* that holds it, unless a window does */
    void *inflated;                /* the storage of a deflated record */
    int64_t strides[DCP_MAX_DIMS]; /* of a view of a range, or one that was laid out: no allocation
                                      for each piece */
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
/* Its source gives the bytes as they are stored, compressed or not. */
dcp_status stored_item_open_raw(struct stored_item *item, struct shard_reader *reader,
                                const struct metadata_entry *entry,
                                const struct metadata_piece *piece, dcp_verification verification);
/* The same for a stream that other code has read, as it is stored or decompressed. The caller keeps
 * bytes. */
dcp_status stored_item_open_memory(struct stored_item *item, const struct metadata_entry *entry,
                                   const struct metadata_piece *piece, const void *bytes,
                                   size_t size);
/* Compares what was found in item->source with the metadata, and makes a view of a stream's tensor
 * that of the piece, which may be a range of it. */
dcp_status stored_item_check_view(struct stored_item *item, struct tensor_view *view);
/* Says where a tensor's elements lie in item->source, checked against the metadata; deflated ones
 * have been inflated. */
dcp_status stored_item_view(struct stored_item *item, struct tensor_view *view);
/* The same. For a stream that is decompressed as it is read, the view is taken from its beginning
 * alone if that is possible, so that it is decompressed only once. Then view has no CRC, and the
 * data must not be trusted until stored_item_end() has checked that the rest of the stream agrees
 * and, unless the verification is DCP_VERIFY_NONE, that the CRC of the record is right. No effect
 * on other items. */
dcp_status stored_item_foresee(struct stored_item *item, dcp_verification verification,
                               struct tensor_view *view);
dcp_status stored_item_end(struct stored_item *item, const struct tensor_view *view,
                           dcp_verification verification);
/* Decompresses the whole of such a stream. Then the size of item->source is known, the view from
 * its beginning, if any, has been checked, and the CRC of that record is available. */
dcp_status stored_item_pass(struct stored_item *item);
/* Reads all of such a stream into memory. */
dcp_status stored_item_hold(struct stored_item *item);
/* The same by the footer, where that has the piece as our writer lays it out: nothing is read, and
 * no CRC known. *known: view was filled. */
dcp_status stored_item_lay_out(struct stored_item *item, struct tensor_view *view, bool *known);
/* Where the view's data is in the file, for messages; compressed data has no such position. */
uint64_t stored_item_place(const struct stored_item *item, const struct tensor_view *view);
/* Reads the view's record as a whole for the checks alone: its CRC-32, if it has one, and what the
 * source checks. */
dcp_status stored_item_check_record(const struct stored_item *item, const struct tensor_view *view);
/* Reads the record into memory and checks its CRC. */
dcp_status stored_item_hold_record(struct stored_item *item, struct tensor_view *view);
/* Reads a stream that is in memory again, checked by the blocks of its file, and replaces it.
 */
dcp_status stored_item_load_again(struct stored_item *item);
/* Decodes an object of this metadata into a tree, and discards it. */
dcp_status stored_item_check_object(const struct stored_item *item,
                                    const struct metadata *metadata);
void stored_item_close(struct stored_item *item);

/* Whether a compressed piece is decompressed at once, into memory, when it is opened. */
bool stored_item_is_whole(const struct metadata_entry *entry, const struct metadata_piece *piece);

#endif
