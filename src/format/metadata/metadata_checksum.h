/* SPDX-License-Identifier: BSD-3-Clause */
/* The checksum behind the pickle of a .metadata file, which Python's unpickler does not read: a
 * magic and the XXH3 of the pickle. Files of PyTorch have none. */
#ifndef FORMAT_METADATA_METADATA_CHECKSUM_H
#define FORMAT_METADATA_METADATA_CHECKSUM_H

#include "base/buffer.h"

/* start: where the pickle begins; it ends at the end of the buffer. */
void metadata_checksum_append(struct buffer *out, size_t start);
/* Compares the checksum, if there is one, and takes it off the size. Errors: DCP_ERR_CHECKSUM. */
dcp_status metadata_checksum_compare(const void *bytes, size_t *size);
/* What is behind a pickle that ends at `length`, by metadata_checksum_compare() not a checksum:
 * DCP_ERR_FORMAT if it was one before it was damaged or cut. */
dcp_status metadata_checksum_refuse_damaged(const void *bytes, size_t length, size_t size);

#endif
