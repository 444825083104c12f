/* SPDX-License-Identifier: BSD-3-Clause */
/* zstd with an allocator. The calls that take one are not part of its stable interface, but
 * unchanged since 1.0. */
#ifndef FORMAT_STREAMS_ZSTD_MEMORY_H
#define FORMAT_STREAMS_ZSTD_MEMORY_H

#define ZSTD_STATIC_LINKING_ONLY
#include <stdbool.h>
#include <zstd.h>
#include <zstd_errors.h>

static inline bool zstd_lacks_memory(size_t result)
{
    return ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation;
}

#endif
