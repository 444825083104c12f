/* SPDX-License-Identifier: BSD-3-Clause */
/* One region to read: separately, together with its neighbours, or in parts. */
#ifndef STORAGE_SHARD_SHARD_REQUEST_H
#define STORAGE_SHARD_SHARD_REQUEST_H

#include "state/box.h"
#include "storage/shard/shard_file.h"

struct read_batch;

/* Neighbours up to so much together are read at once. */
#define SHARD_WINDOW_MOST ((uint64_t)256 << 10)

/* What has been read of a file for several pieces. */
struct read_window {
    struct shard_reader *reader;
    struct shard_file *file;  /* NULL: nothing but the batch, of any files */
    struct read_batch *batch; /* NULL, or what is read ahead of the pieces */
    uint64_t start;           /* a range that has been read, and checked; it may be empty */
    size_t size;
    struct window_room *room;   /* NULL: it is in the batch */
    const unsigned char *bytes; /* of the range */
    bool trusted; /* of a file with a good footer: its blocks were checked, unless nothing is */
    struct shard_tally tally; /* of its pieces: threads that count each would wait for each other */
};

/* batch: borrowed; may be NULL. */
dcp_status read_window_open(struct read_window *window, struct shard_reader *reader, uint32_t file,
                            uint64_t start, uint64_t end, dcp_verification verification,
                            struct read_batch *batch);
/* Adds its tally to the figures. Leaves its memory for the next one: the pages of new memory cost
 * as much as the reading. */
void read_window_close(struct read_window *window);
/* Frees what windows have left. */
void read_window_free_rooms(struct shard_reader *reader);
/* Memory of a window of so many bytes of pieces. */
uint64_t read_window_memory(uint64_t size);

/* A region that is read in parts: slabs of one dimension. The CRC of a record that they make up is
 * joined by the part that is read last. */
struct shard_parts;

/* sum: NULL, or gets what the parts are joined to, as the region is a part itself. */
dcp_status shard_parts_new(struct box region, size_t count, struct shard_part_sum *sum,
                           struct shard_parts **parts);
/* Memory for this many parts. */
uint64_t shard_parts_memory(uint64_t count);
void shard_parts_free(struct shard_parts *parts);
/* The whole region; its arrays are borrowed. */
struct box shard_parts_whole(const struct shard_parts *parts);
size_t shard_parts_count(const struct shard_parts *parts);
/* The outermost dimension that can be divided; -1: none. */
int32_t shard_parts_dim(struct box region);
struct box shard_parts_region(const struct shard_parts *parts, size_t part, struct box region,
                              struct box_storage *slab);
/* The part's bytes have this CRC; expected: what the record's shall be. */
dcp_status shard_parts_add(struct shard_parts *parts, size_t part, uint32_t crc, uint64_t size,
                           uint64_t place, uint32_t expected);

/* Bytes of the region as they are stored, unless that is compressed. */
uint64_t shard_request_bytes(const struct shard_request *request);
/* Where these lie in the file, with what is around the elements in their stream, since it is not
 * known which part of that comes first; false: not in one place, or compressed. */
bool shard_request_range(const struct shard_request *request, struct shard_range *range);
/* Makes the range that of the elements, if the stream has the size of one of ours. */
void shard_request_lay_out(const struct shard_request *request, struct shard_range *range);
/* The same of elements from to end - 1 of a piece. */
bool shard_span_range(const struct metadata_entry *entry, const struct metadata_piece *piece,
                      int64_t from, int64_t end, struct shard_range *range);
/* Parts that a region may be read in, if enough threads share them; 1: it is read by one. */
uint64_t shard_request_most_parts(const struct shard_request *request);
/* Memory that lists of requests and parts take, if `divided` of these are read in parts. */
uint64_t shard_read_list_memory(size_t requests, size_t divided, size_t thread_count);

/* window: NULL, or one that may hold the piece. parts: NULL, or request->region is one of them.
 * next: as in shard_file_read_ahead(). */
dcp_status shard_read_request(struct shard_reader *reader, const struct shard_request *request,
                              dcp_verification verification, struct read_window *window,
                              struct shard_parts *parts, size_t part,
                              const struct shard_range *next);
/* Reads requests for one compressed piece with the same results as separate reads: it is
 * decompressed once. */
dcp_status shard_read_together(struct shard_reader *reader, const struct shard_request *requests,
                               size_t count, dcp_verification verification);

/* Whether the request is one of those that shard_read_kept() is for. */
bool shard_reader_keeps(const struct shard_reader *reader, const struct shard_request *request);
/* Reads one request through the open stream, which stays open. */
dcp_status shard_read_kept(struct shard_reader *reader, const struct shard_request *request,
                           dcp_verification verification);
/* In one of these two ways. */
dcp_status shard_read_one(struct shard_reader *reader, const struct shard_request *request,
                          dcp_verification verification, struct read_window *window,
                          const struct shard_range *next);
/* There must be no reads during the call. */
void shard_reader_drop_kept(struct shard_reader *reader);

#endif
