/* SPDX-License-Identifier: BSD-3-Clause */
/* Text that tells contents apart, such as one .metadata from the one before: the size, and a digest
 * of the content, or of both its ends if it is large. Each save's id is near the end of its
 * metadata. */
#ifndef BASE_CONTENT_IDENTITY_H
#define BASE_CONTENT_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

enum { CONTENT_IDENTITY_SIZE = 64 };

typedef dcp_status (*content_read)(void *context, void *bytes, size_t size, uint64_t offset);

/* Of what can be read; a failure of reading is the result. */
dcp_status content_identify(content_read read, void *context, uint64_t size,
                            char identity[CONTENT_IDENTITY_SIZE]);
/* The same of what is in memory. */
void content_identify_bytes(const void *bytes, size_t size, char identity[CONTENT_IDENTITY_SIZE]);

#endif
