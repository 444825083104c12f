/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/stream_copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__

#include <emmintrin.h>

/* A cache line, which must be written as a whole. */
enum { LINE = 64 };
/* Below, memcpy() is faster: what follows need not wait until the memory has all of the bytes. */
#define WORTHWHILE ((size_t)8 << 10)

void stream_copy_prepare(void *to, size_t size)
{
    for (size_t at = 0; size < WORTHWHILE && at < size; at += LINE)
        __builtin_prefetch((unsigned char *)to + at, 1);
}

void stream_copy(void *to, const void *from, size_t size)
{
    unsigned char *destination = to;
    const unsigned char *source = from;
    size_t before = (size_t)(-(uintptr_t)destination % LINE);
    if (size < WORTHWHILE) {
        memcpy(to, from, size);
        return;
    }
    memcpy(destination, source, before);
    size_t end = before + (size - before) / LINE * LINE;
    for (size_t at = before; at < end; at += LINE) {
        const __m128i *line = (const void *)(source + at);
        __m128i *place = (void *)(destination + at);
        __m128i first = _mm_loadu_si128(line), second = _mm_loadu_si128(line + 1);
        __m128i third = _mm_loadu_si128(line + 2), fourth = _mm_loadu_si128(line + 3);
        _mm_stream_si128(place, first);
        _mm_stream_si128(place + 1, second);
        _mm_stream_si128(place + 2, third);
        _mm_stream_si128(place + 3, fourth);
    }
    /* Makes the copy visible to other threads before anything that announces it. */
    _mm_sfence();
    memcpy(destination + end, source + end, size - end);
}

#else

void stream_copy_prepare(void *to, size_t size)
{
    (void)to;
    (void)size;
}

void stream_copy(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
}

#endif
