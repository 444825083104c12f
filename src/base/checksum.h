/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32 (the zip one, by libdeflate) and XXH3 (by xxHash). */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32_update(uint32_t crc, const void *bytes, size_t size); /* starts from 0 */
/* The checksum of two adjacent runs of bytes, from the checksum of each. */
uint32_t crc32_join(uint32_t first, uint32_t second, uint64_t second_size);
uint64_t xxh3_64(const void *bytes, size_t size);

struct xxh3_stream;                        /* a running hash */
struct xxh3_stream *xxh3_stream_new(void); /* NULL: no memory */
void xxh3_stream_reset(struct xxh3_stream *stream);
void xxh3_stream_update(struct xxh3_stream *stream, const void *bytes, size_t size);
uint64_t xxh3_stream_digest(const struct xxh3_stream *stream);
void xxh3_stream_free(struct xxh3_stream *stream);

#endif
