/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/checksum.h"

#include <libdeflate.h>

/* Its stream state is a plain struct only under this macro; we allocate it ourselves. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/memory.h"

uint32_t crc32_update(uint32_t crc, const void *bytes, size_t size)
{
    return size != 0 ? libdeflate_crc32(crc, bytes, size) : crc;
}

uint64_t xxh3_64(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

struct xxh3_stream {
    XXH3_state_t state;
};

struct xxh3_stream *xxh3_stream_new(void)
{
    struct xxh3_stream *stream =
        memory_allocate_aligned(_Alignof(struct xxh3_stream), sizeof *stream);
    if (stream != NULL) {
        XXH3_INITSTATE(&stream->state);
        xxh3_stream_reset(stream);
    }
    return stream;
}

void xxh3_stream_reset(struct xxh3_stream *stream)
{
    XXH3_64bits_reset(&stream->state);
}

void xxh3_stream_update(struct xxh3_stream *stream, const void *bytes, size_t size)
{
    XXH3_64bits_update(&stream->state, bytes, size);
}

uint64_t xxh3_stream_digest(const struct xxh3_stream *stream)
{
    return XXH3_64bits_digest(&stream->state);
}

void xxh3_stream_free(struct xxh3_stream *stream)
{
    memory_release_aligned(stream);
}
