/* SPDX-License-Identifier: BSD-3-Clause */
/* What differs between the metadata of two checkpoints that have the same structure, such as two
 * saves of one training run: what they and their files are called, and where their pieces lie. */
#ifndef FORMAT_METADATA_METADATA_CHANGES_H
#define FORMAT_METADATA_METADATA_CHANGES_H

#include "base/buffer.h"
#include "state/metadata.h"

/* Whether both have the same names of the same kinds, dtypes, shapes and pieces, in the same order,
 * and the same members. What planners have stored, and paths, are not looked at. */
bool metadata_structure_equal(const struct metadata *a, const struct metadata *b);
/* Appends what turns `before` into `now`, which has the same structure. *moved: some piece lies
 * elsewhere; that objects have other lengths does not count. */
dcp_status metadata_changes_append(const struct metadata *before, const struct metadata *now,
                                   struct buffer *out, bool *moved);
/* The same for another save id alone. */
dcp_status metadata_changes_append_id(const struct metadata *before, const char *save_id,
                                      struct buffer *out);
/* Changes metadata. What the bytes say is checked as by metadata_decode(); after a failure metadata
 * can only be freed. Replicas are dropped. texts: takes over names and ids, so that those of a
 * change before can go. */
dcp_status metadata_changes_apply(const void *bytes, size_t size, struct metadata *metadata,
                                  struct arena *texts, bool *moved);

enum { METADATA_ID_LENGTH = 36 };
/* Whether two .metadata of the same size are the same but for a save id that is a UUID, as a string
 * that is there once: then both decode to the same but for it, and *now_id is the second one's.
 * before_id: that of the first. */
bool metadata_bytes_differ_by_id(const unsigned char *before, const unsigned char *now, size_t size,
                                 const char *before_id, char now_id[METADATA_ID_LENGTH + 1]);

#endif
