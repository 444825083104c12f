/* SPDX-License-Identifier: BSD-3-Clause */
/* What is behind the pickle of a .metadata file, where Python's unpickler does not read: the same
 * metadata in compact form, if it has one, and a checksum of all in front of it. Files of PyTorch
 * have neither.
 *
 *   the pickle
 *   magic, the compact form, its length in bytes, the magic again
 *   magic, the XXH3 of all that is in front of this line */
#ifndef FORMAT_METADATA_METADATA_TRAILER_H
#define FORMAT_METADATA_METADATA_TRAILER_H

#include "base/buffer.h"
#include "state/metadata.h"

struct metadata_trailer {
    size_t pickle_size;  /* all of the file, if it has no trailer */
    const void *compact; /* in the file; NULL: it has no compact form */
    size_t compact_size;
};

/* start: where the pickle of the metadata begins; it ends at the end of the buffer. */
dcp_status metadata_trailer_append(const struct metadata *metadata, size_t start,
                                   struct buffer *out);
/* Compares the checksum, if there is one. Errors: DCP_ERR_CHECKSUM. */
dcp_status metadata_trailer_read(const void *bytes, size_t size, struct metadata_trailer *trailer);
/* What is behind a pickle that ends at `length`, by metadata_trailer_read() not a trailer:
 * DCP_ERR_FORMAT if it was one before it was damaged or cut. */
dcp_status metadata_trailer_refuse_damaged(const void *bytes, size_t length, size_t size);

#endif
