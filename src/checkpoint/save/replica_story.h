/* SPDX-License-Identifier: BSD-3-Clause */
/* What is said of replicas that differ: what each rank has of them, and at the coordinator the
 * message. */
#ifndef CHECKPOINT_SAVE_REPLICA_STORY_H
#define CHECKPOINT_SAVE_REPLICA_STORY_H

#include "base/error.h"
#include "checkpoint/save/replica_digest.h"
#include "group/group.h"

/* Keys that are told of, at most. */
enum { REPLICA_STORY_MOST = 4 };

/* For each of the keys, 8 bytes each, name, box and digests of the segments of the source that has
 * it, if there is one. own: the keys of all sources. */
dcp_status replica_story_append(const struct shard_source *sources, const struct buffer *own,
                                const struct buffer *keys, struct buffer *out);
/* From what all ranks have appended: writes text, of ERROR_TEXT_MAX bytes. differing: how many keys
 * do. *text is empty if the keys were of different things, which is next to impossible. */
dcp_status replica_story_make(const struct group_messages *told, size_t key_count, size_t differing,
                              char *text);

#endif
