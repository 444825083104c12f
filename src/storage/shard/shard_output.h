/* SPDX-License-Identifier: BSD-3-Clause */
/* A new shard file, written from its beginning to its end. Small data is gathered into large
 * writes, and the checksums of blocks are computed while the bytes are in the processor's cache.
 * With the page cache, large data is written straight from its memory. Without it, all data is
 * copied to buffers in large pages, because it costs a device far more to gather ordinary pages
 * than the copy does. Writes run in the background. */
#ifndef STORAGE_SHARD_SHARD_OUTPUT_H
#define STORAGE_SHARD_SHARD_OUTPUT_H

#include "base/checksum.h"
#include "base/progress.h"
#include "storage/storage_queue.h"

/* Buffers of a file, and transfers from the caller's memory that are under way at a time. */
#define SHARD_OUTPUT_BUFFERS  8
#define SHARD_OUTPUT_STRAIGHT (STORAGE_QUEUE_DEPTH - SHARD_OUTPUT_BUFFERS)

struct shard_output_options {
    uint64_t content_length; /* bytes that will be appended, no more */
    bool estimated;          /* it may be far less, so that no space is taken beforehand */
    size_t buffer_bytes;     /* that may be taken, if more than SHARD_OUTPUT_LEAST */
    uint32_t io;             /* flags of dcp_io */
    dcp_page_cache page_cache;
    struct storage_manners manners;
    uint32_t threads; /* for a record of 16 MiB or more, written directly; 0 is 1 */
    bool sync;
    bool plain;                /* small things take no queue, unless io demands one */
    struct progress *progress; /* NULL: not reported */
};

/* The smallest buffer_bytes that makes a difference. */
#define SHARD_OUTPUT_LEAST ((size_t)128 << 10)

/* Most bytes that are brought into a file's buffers at a time. */
size_t shard_output_piece(const struct shard_output_options *options);
/* Memory that a file takes from being created until it is freed, at most. */
uint64_t shard_output_memory(const struct shard_output_options *options);

struct shard_output {
    struct storage_file file;
    struct storage_queue *queue;
    uint32_t io;
    dcp_page_cache page_cache;
    uint64_t length; /* of the content, at most */
    struct storage_manners manners;
    uint32_t threads;
    bool sync;
    uint32_t ways;         /* by which bytes went, known when the file is finished */
    unsigned char *memory; /* the buffers, one behind the other */
    size_t buffer_count;
    size_t capacity; /* of a buffer */
    size_t piece;    /* bytes that are checksummed and then passed on at a time */
    size_t current;  /* the buffer that is being filled */
    size_t filled;
    uint64_t start; /* of the current buffer in the file, at a page */
    struct storage_transfer buffered[SHARD_OUTPUT_BUFFERS];
    struct storage_transfer straight[SHARD_OUTPUT_STRAIGHT];
    size_t next_straight;
    uint64_t position; /* bytes appended */
    uint64_t reported; /* of these */
    struct progress *progress;
    struct xxh3_stream *hash;
    uint64_t *blocks; /* XXH3-64 of each finished block of FOOTER_BLOCK_SIZE bytes */
    size_t block_count;
    int64_t sync_ns; /* that waiting for the disk took */
};

/* Creates the file (DCP_ERR_EXISTS if there is one), with space for its content. */
dcp_status shard_output_create(struct shard_output *output,
                               const struct storage_directory *directory, const char *name,
                               const struct shard_output_options *options);
/* Bytes of more than 64 KiB must stay until the end. crc may be NULL; else it is carried on over
 * the bytes. */
dcp_status shard_output_append(struct shard_output *output, const void *bytes, uint64_t size,
                               uint32_t *crc);
/* Bytes of any size that need not stay. */
dcp_status shard_output_append_copy(struct shard_output *output, const void *bytes, uint64_t size);
/* Space for up to output->piece bytes, to be filled and then appended with shard_output_commit().
 */
dcp_status shard_output_reserve(struct shard_output *output, size_t size, unsigned char **space);
void shard_output_commit(struct shard_output *output, size_t size, uint32_t *crc);
/* Zeros up to a position. */
dcp_status shard_output_skip(struct shard_output *output, uint64_t position);
/* Ends the content: the last block is finished. */
void shard_output_end(struct shard_output *output);
/* Adds the sums of blocks, sealed by footer_seal_sums(), and the rest of the footer, which no block
 * covers, and makes the file durable. May be called once: a file whose sync failed is abandoned. */
dcp_status shard_output_finish(struct shard_output *output, const void *footer, size_t size);
/* Bytes in the file so far, footer included. */
uint64_t shard_output_size(const struct shard_output *output);
/* A further queue for the file, for one more thread. */
dcp_status shard_output_queue(const struct shard_output *output, struct storage_queue **queue);
/* Memory that appending blocks takes, at most; queue: that of a queue. */
uint64_t shard_record_memory(uint64_t size, uint32_t threads, uint64_t queue);
/* Appends whole blocks, at the beginning of a block and with empty buffers, with output->threads
 * threads, each with 4 MiB of buffers. The bytes are not used after the call. */
dcp_status shard_output_append_blocks(struct shard_output *output, const unsigned char *bytes,
                                      size_t size, uint32_t *crc);
/* Waits for what is under way, closes the file if it is open, and frees. The message is kept. */
void shard_output_free(struct shard_output *output);

#endif
