/* SPDX-License-Identifier: BSD-3-Clause */
/* Text that distinguishes contents, such as one .metadata from the previous one: the size, and a
 * digest of the whole content, or of both ends if it is large. That is enough for metadata, which
 * has its save's id near the end. */
#ifndef BASE_CONTENT_IDENTITY_H
#define BASE_CONTENT_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

enum { CONTENT_IDENTITY_SIZE = 64 };

typedef dcp_status (*content_read)(void *context, void *bytes, size_t size, uint64_t offset);

/* Identifies contents through a read function, whose failure it returns. */
dcp_status content_identify(content_read read, void *context, uint64_t size,
                            char identity[CONTENT_IDENTITY_SIZE]);
/* The same for bytes in memory. */
void content_identify_bytes(const void *bytes, size_t size, char identity[CONTENT_IDENTITY_SIZE]);

#endif
