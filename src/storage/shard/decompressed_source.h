/* SPDX-License-Identifier: BSD-3-Clause */
/* A zstd-compressed stream as a byte source of its decompressed bytes, in bounded memory: it is
 * decompressed as it is read. Reading forwards skips the bytes in between. Reading backwards
 * decompresses from the beginning again, except for the first bytes and the latest output, which
 * are kept. For one thread. */
#ifndef STORAGE_SHARD_DECOMPRESSED_SOURCE_H
#define STORAGE_SHARD_DECOMPRESSED_SOURCE_H

#include <stdbool.h>

#include "base/byte_source.h"

struct item_decompressor;

/* Bytes of compressed input that are usually read at a time. */
#define DECOMPRESSED_INPUT ((size_t)256 << 10)

struct decompressed_source {
    struct byte_source packed;
    uint64_t limit; /* the most output */
    struct item_decompressor *decompressor;

    unsigned char *input;
    size_t input_room;
    size_t input_size;
    size_t input_taken;
    uint64_t packed_position; /* input before this has been read */
    uint64_t expected;        /* and before this has been announced */

    unsigned char *window; /* the latest output */
    size_t window_size;
    uint64_t position; /* of the end of the window */
    uint64_t size;     /* of all; UINT64_MAX: not known yet */

    unsigned char *beginning;
    size_t beginning_size;

    uint64_t record_start, record_end; /* the CRC of this range is computed as it passes */
    uint64_t record_position;          /* so far */
    uint32_t crc;
};

/* packed and input_room: what is read, and how much at a time. Until the end is known the source is
 * as large as the limit, and reading beyond the end is DCP_ERR_FORMAT. Must stay where it is. */
dcp_status decompressed_source_open(struct decompressed_source *decompressed,
                                    struct byte_source packed, size_t input_room, uint64_t limit,
                                    struct byte_source *source);
/* The first bytes, up to DECOMPRESSED_BEGINNING of them, as long as nothing else is read. */
#define DECOMPRESSED_BEGINNING ((size_t)80 << 10)
dcp_status decompressed_source_begin(struct decompressed_source *decompressed,
                                     const unsigned char **bytes, size_t *size);
/* Keeps this many of the first bytes for later reads, and computes the CRC of the record that lies
 * there. Called right after decompressed_source_begin(). */
dcp_status decompressed_source_keep(struct decompressed_source *decompressed, size_t size);
void decompressed_source_watch(struct decompressed_source *decompressed, uint64_t offset,
                               uint64_t length);
/* How many bytes must be decompressed before those at an offset. */
uint64_t decompressed_source_way(const struct decompressed_source *decompressed, uint64_t offset);
/* Decompresses what is left; *source then has its size. */
dcp_status decompressed_source_end(struct decompressed_source *decompressed,
                                   struct byte_source *source);
bool decompressed_source_watches(const struct decompressed_source *decompressed, uint64_t offset,
                                 uint64_t length);
/* The CRC-32 of a record: of one that was watched as it passed by, as far as it has; the rest is
 * decompressed for it. */
dcp_status decompressed_source_crc(struct decompressed_source *decompressed, uint64_t offset,
                                   uint64_t length, uint32_t *crc);
void decompressed_source_close(struct decompressed_source *decompressed);

/* Memory that one takes, beside the decompressor's. */
uint64_t decompressed_source_memory(size_t input_room);

#endif
