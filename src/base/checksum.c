/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/checksum.h"

#include <libdeflate.h>

/* Its stream state is a plain struct only under this macro; we allocate it ourselves. */
#define XXH_STATIC_LINKING_ONLY
#if DCP_HAVE_XXHASH_DISPATCH
/* Selects the widest vector instructions of the processor on first use. */
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "base/crc32_wide.h"
#include "base/memory.h"

uint32_t crc32_update(uint32_t crc, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    size_t vector = size >= CRC32_WIDE_LEAST ? crc32_wide_vector() : 0;
    if (vector != 0) {
        unsigned char rest[16];
        size_t folded = crc32_wide_fold(vector, crc, at, size, rest);
        crc = libdeflate_crc32(UINT32_MAX, rest, sizeof rest);
        at += folded;
        size -= folded;
    }
    return size != 0 ? libdeflate_crc32(crc, at, size) : crc;
}

/* Polynomials over GF(2), reflected: the highest bit stands for 1. */
#define CRC32_POLYNOMIAL 0xedb88320u
#define CRC32_ONE        0x80000000u

static uint32_t crc32_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = CRC32_ONE; bit != 0; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b >> 1 ^ (b & 1 ? CRC32_POLYNOMIAL : 0);
    }
    return product;
}

uint32_t crc32_join(uint32_t first, uint32_t second, uint64_t second_size)
{
    /* The effect of appending second_size zero bytes to the first: x^(8 * second_size), by
     * squaring. */
    uint32_t power = CRC32_ONE >> 8, shift = CRC32_ONE;
    for (uint64_t left = second_size; left != 0; left >>= 1) {
        if (left & 1)
            shift = crc32_multiply(shift, power);
        power = crc32_multiply(power, power);
    }
    return crc32_multiply(shift, first) ^ second;
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
