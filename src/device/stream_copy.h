/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of what will not be used soon. */
#ifndef DEVICE_STREAM_COPY_H
#define DEVICE_STREAM_COPY_H

#include <stddef.h>

/* As memcpy(), but, where the machine can, around the cache: memory that is overwritten as a whole
 * need not be read first, and what the caller computes with stays in the cache. */
void stream_copy(void *to, const void *from, size_t size);

#endif
