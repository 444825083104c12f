/* SPDX-License-Identifier: BSD-3-Clause */
/* The coordinator's side of a save: from all ranks' plans to all ranks' orders, and the commit. */
#ifndef CHECKPOINT_SAVE_COORDINATOR_H
#define CHECKPOINT_SAVE_COORDINATOR_H

#include "dcp/save.h"
#include "group/group.h"
#include "state/metadata.h"
#include "storage/shard_writer.h"

struct save_coordinator {
    struct metadata metadata;
    struct buffer *assignments; /* one per rank: where to write what */
    int rank_count;
};

/* Begins the session and decides who writes what. On failure *coordinator and *session are safe to
 * free. */
dcp_status save_coordinator_plan(const struct file_ops *ops, const char *path,
                                 const dcp_save_options *options,
                                 const struct group_messages *plans, struct save_session *session,
                                 struct save_coordinator *coordinator);

/* When all ranks have written, and only then it is known where everything lies: takes their write
 * results over into the metadata. */
dcp_status save_coordinator_place(struct save_coordinator *coordinator,
                                  const struct group_messages *results);

/* Makes the checkpoint visible. *visible: whether .metadata was renamed into place, also when that
 * was followed by a failure; then the files must stay. */
dcp_status save_coordinator_commit(struct save_coordinator *coordinator,
                                   const struct save_session *session,
                                   const dcp_save_options *options, bool *visible);
void save_coordinator_free(struct save_coordinator *coordinator);

/* Every rank: unpacks an assignment. A session that was not begun here (path is NULL) gets what the
 * coordinator decided. */
dcp_status save_assignment_decode(const struct file_ops *ops, const struct buffer *assignment,
                                  const struct save_plan *plan, struct save_session *session,
                                  struct write_orders *orders);

#endif
