/* SPDX-License-Identifier: BSD-3-Clause */
/* The coordinator's side of a save: makes all ranks' orders from their plans, and commits. */
#ifndef CHECKPOINT_SAVE_SAVE_COORDINATOR_H
#define CHECKPOINT_SAVE_SAVE_COORDINATOR_H

#include "dcp/save.h"
#include "group/group.h"
#include "plan/save/save_plan.h"
#include "state/metadata.h"
#include "storage/shard/shard_writer.h"

struct save_coordinator {
    struct metadata metadata;
    struct buffer *assignments; /* one per rank: its orders */
    int rank_count;
    const bool *kept; /* by rank: whose files are there already; NULL: none */
    uint64_t content; /* bytes of data in all ranks' files but those */
    struct save_commit commit;
    struct arena extra_names; /* what the metadata says of extra files */
};

/* Begins the session and makes all ranks' assignments. On failure coordinator and session are safe
 * to free, here and below. */
dcp_status save_coordinator_plan(dcp_saving *saving, const struct joint_plan *joint);
/* The parts of it. */
dcp_status save_coordinator_init(struct save_coordinator *coordinator, int rank_count);
/* Begins the session, or, for a dry run, finds out what it would be. Refuses a save without a
 * path. */
dcp_status save_coordinator_begin(dcp_saving *saving);
dcp_status save_coordinator_imagine(dcp_saving *saving);
/* Begins it, unless it is beginning beside: then waits for that. */
dcp_status save_coordinator_await(dcp_saving *saving);
/* A session without a place, for planning without one. */
dcp_status save_coordinator_stay(dcp_saving *saving);
struct save_plan_options save_coordinator_options(const dcp_saving *saving);
/* Adds a rank's orders to what all ranks together will write, without footers and metadata, which
 * are small. The second function returns DCP_ERR_NO_SPACE if that is more than the free space, as
 * far as known. */
void save_coordinator_count(struct save_coordinator *coordinator,
                            const struct write_orders *orders);
dcp_status save_coordinator_check_space(const dcp_saving *saving);
dcp_status save_assignment_encode(const struct save_session *session,
                                  const struct write_orders *orders, struct buffer *assignment);

/* Bytes of the files beside the shards. */
dcp_status save_coordinator_measure(const struct save_coordinator *coordinator,
                                    const dcp_save_options *options, uint64_t *bytes);

/* If places are known only after writing: puts the write results of all ranks into the metadata. */
dcp_status save_coordinator_place(struct save_coordinator *coordinator,
                                  const struct group_messages *results);

/* Writes the metadata under a temporary name, once it has all places. */
dcp_status save_coordinator_prepare(struct save_coordinator *coordinator,
                                    const struct save_session *session,
                                    const dcp_save_options *options);
/* Makes the checkpoint visible, prepared or not. saving->visible: whether .metadata was renamed
 * into place, even if a failure followed; then the files must stay. */
dcp_status save_coordinator_commit(dcp_saving *saving);
void save_coordinator_free(struct save_coordinator *coordinator);

/* The message with what every rank must know about a session. A session that was not begun here
 * (path is NULL) takes over the coordinator's decisions. */
void save_session_append(const struct save_session *session, struct buffer *out);
dcp_status save_session_read(dcp_saving *saving, struct reader *reader);
#endif
