/* SPDX-License-Identifier: BSD-3-Clause */
/* The differences between the metadata of two checkpoints of the same structure, such as two saves
 * of one training run: their ids, names of files, and places of pieces. */
#ifndef FORMAT_METADATA_METADATA_CHANGES_H
#define FORMAT_METADATA_METADATA_CHANGES_H

#include "base/buffer.h"
#include "state/metadata.h"

/* Whether both have the same names of the same kinds, dtypes, shapes and pieces, in the same order,
 * and the same members. Planner data and paths are ignored. */
bool metadata_structure_equal(const struct metadata *a, const struct metadata *b);
/* Appends the changes from `before` to `now`, which have the same structure. *moved: whether any
 * piece has another place; lengths of objects do not count. */
dcp_status metadata_changes_append(const struct metadata *before, const struct metadata *now,
                                   struct buffer *out, bool *moved);
/* The same if only the save id differs. */
dcp_status metadata_changes_append_id(const struct metadata *before, const char *save_id,
                                      struct buffer *out);
/* Applies changes to metadata, with the checks of metadata_decode(). After a failure, metadata can
 * only be freed. Drops replicas. texts: receives names and ids, so that those of the previous
 * change can be freed. */
dcp_status metadata_changes_apply(const void *bytes, size_t size, struct metadata *metadata,
                                  struct arena *texts, bool *moved);

enum { METADATA_ID_LENGTH = 36 };
/* Whether two .metadata of the same size differ only in the save id, a UUID that occurs once as a
 * string, and in their checksums, which match. Then both decode to the same except for the id.
 * before_id: the first one's; *now_id: the second one's. */
bool metadata_bytes_differ_by_id(const unsigned char *before, const unsigned char *now, size_t size,
                                 const char *before_id, char now_id[METADATA_ID_LENGTH + 1]);

#endif
