/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of parts of large data, which will not be used soon. */
#ifndef BASE_STREAM_COPY_H
#define BASE_STREAM_COPY_H

#include <stddef.h>

/* As memcpy(), but bypasses the cache where the machine can: memory that is overwritten as a whole
 * need not be read first, and the caller's working set stays in the cache. */
void stream_copy(void *to, const void *from, size_t size);
/* For a copy that is made soon: has the cache get the lines that it overwrites if it does not
 * bypass it, while what is to be copied is read. */
void stream_copy_prepare(void *to, size_t size);

#endif
