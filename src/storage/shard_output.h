/* SPDX-License-Identifier: BSD-3-Clause */
/* A new shard file, written from its beginning to its end: small things are gathered into large
 * writes, large ones go straight from where they are, and the checksums of the file's blocks are
 * computed while the bytes are in the cache. */
#ifndef STORAGE_SHARD_OUTPUT_H
#define STORAGE_SHARD_OUTPUT_H

#include "base/checksum.h"
#include "base/file.h"

/* Bytes that are checksummed and then written at a time: stay in a core's cache in between. */
#define SHARD_OUTPUT_PIECE ((size_t)256 << 10)

struct shard_output {
    struct file file;
    unsigned char *buffer;
    size_t capacity;
    size_t filled;
    uint64_t position; /* bytes appended */
    struct xxh3_stream *hash;
    uint64_t *blocks; /* XXH3-64 of each finished block of FOOTER_BLOCK_SIZE bytes */
    size_t block_count;
};

/* Creates the file (DCP_ERR_EXISTS if there is one). content_length: bytes that will be appended,
 * no more. */
dcp_status shard_output_create(struct shard_output *output, const struct file_ops *ops,
                               const char *path, uint64_t content_length);
/* crc may be NULL; else it is carried on over the bytes. */
dcp_status shard_output_append(struct shard_output *output, const void *bytes, uint64_t size,
                               uint32_t *crc);
/* Space for up to SHARD_OUTPUT_PIECE bytes, to be filled and then appended with
 * shard_output_commit(). */
dcp_status shard_output_reserve(struct shard_output *output, size_t size, unsigned char **space);
void shard_output_commit(struct shard_output *output, size_t size, uint32_t *crc);
/* Zeros up to a position. */
dcp_status shard_output_skip(struct shard_output *output, uint64_t position);
/* Ends the content: the last block is finished. */
void shard_output_end(struct shard_output *output);
/* Adds the footer, which no block covers, and makes the file durable. Only once: a file whose sync
 * failed is given up. */
dcp_status shard_output_finish(struct shard_output *output, const void *footer, size_t size,
                               bool sync);
/* Closes the file if it is open, and frees. The story is kept. */
void shard_output_free(struct shard_output *output);

#endif
