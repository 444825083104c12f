/* SPDX-License-Identifier: BSD-3-Clause */
/* The error message on replicas that differ: each rank describes its replicas, and the coordinator
 * makes the message. */
#ifndef CHECKPOINT_SAVE_REPLICA_MESSAGE_H
#define CHECKPOINT_SAVE_REPLICA_MESSAGE_H

#include "base/error.h"
#include "checkpoint/save/replica_digest.h"
#include "group/group.h"

/* The most keys that the message describes. */
enum { REPLICA_MESSAGE_MOST = 4 };

/* Appends for each of the keys (8 bytes each) name, box and digests of segments of the source with
 * that key, if there is one. own: the keys of all sources. */
dcp_status replica_message_append(const struct shard_source *sources, const struct buffer *own,
                                  const struct buffer *keys, struct buffer *out);
/* Makes the message from what all ranks have appended. text: ERROR_TEXT_MAX bytes. differing: the
 * number of differing keys. *text is empty if the keys belong to different items, which is next to
 * impossible. */
dcp_status replica_message_make(const struct group_messages *messages, size_t key_count,
                                size_t differing, char *text);

#endif
