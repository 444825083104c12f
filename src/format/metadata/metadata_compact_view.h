/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of the compact form that says where in a file the elements of a piece lie, of pieces
 * that are no streams: flags, offset in the storage, bytes of the storage, its CRC, strides. Of
 * ranges of streams: the number of dimensions of the tensor there, its shape, the first element. */
#ifndef FORMAT_METADATA_METADATA_COMPACT_VIEW_H
#define FORMAT_METADATA_METADATA_COMPACT_VIEW_H

#include "base/buffer.h"
#include "state/metadata.h"

void metadata_compact_append_view(const struct metadata_piece *piece, struct buffer *out);
/* Sets the piece's view; all else of it is known. DCP_ERR_FORMAT: elements outside of the
 * storage. */
dcp_status metadata_compact_read_view(struct reader *reader, struct arena *arena,
                                      const struct metadata_entry *entry,
                                      struct metadata_piece *piece);
void metadata_compact_append_range(const struct metadata_piece *piece, struct buffer *out);
/* Sets the piece's range; all else of it is known. DCP_ERR_FORMAT: elements that the tensor in the
 * stream has not, or more of them than the stream has bytes. */
dcp_status metadata_compact_read_range(struct reader *reader, struct arena *arena,
                                       const struct metadata_entry *entry,
                                       struct metadata_piece *piece);

#endif
