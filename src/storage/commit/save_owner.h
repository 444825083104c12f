/* SPDX-License-Identifier: BSD-3-Clause */
/* One owner of a directory at a time: the mark (OWNER_NAME, save_mark.h), which the coordinator of
 * a save puts there before anything is written, and takes away when the save has ended.
 *
 * Because of the mark, other saves are refused, with a message. The integrity of checkpoints does
 * not depend on it: a save whose mark was taken over, for whatever reason, fails in its commit,
 * which replaces only the .metadata that was there when the save began
 * (storage_publication_publish_over).
 *
 * A mark is stale, and taken over, if
 *   - its process is of this machine (the same boot) and counts its pid alike, and has ended,
 *   - it is of this process, and none of its saves left it,
 *   - a host of the same name, neither side in a container, was started anew since,
 *   - or nothing of that can be known, and it is older than the seconds that the save allows; or as
 *     far in the future, which shows that a clock was wrong,
 *   - or it is not readable: marks are not synced, so that a power cut may leave a torn one, and
 *     nothing else does. */
#ifndef STORAGE_COMMIT_SAVE_OWNER_H
#define STORAGE_COMMIT_SAVE_OWNER_H

#include "storage/commit/save_live.h"
#include "storage/open/directory.h"
#include "storage/storage.h"

/* The mark of a save in its directory. */
struct save_owner {
    struct save_live live;
    char name[SMALL_NAME_MAX]; /* of the mark */
    bool marked;               /* the mark exists, as far as this save knows */
};

/* Puts the mark of a rank, or ALL_RANKS, into an open directory. If there is another save's mark
 * that is not stale, DCP_ERR_BUSY names that save. taken_over: a stale mark was replaced. On
 * failure *made is NULL. */
dcp_status save_owner_take(const struct storage_directory *directory, int rank, const char *save_id,
                           double takeover_seconds, struct save_owner **made, bool *taken_over);
/* Looks for the mark of a save of the other kind (of all ranks, or of one), while this save's own
 * mark exists, so that of two saves at least one sees the other. DCP_ERR_BUSY names the save if its
 * mark is not stale. Removes a stale mark, so that its save cannot commit any more. */
dcp_status save_owner_expel(const struct storage_directory *directory, const char *name,
                            double takeover_seconds);
/* As save_owner_take() of ALL_RANKS, but also excludes saves of single ranks: for operations other
 * than saves that concern all files of a directory. */
dcp_status save_owner_take_all(const struct storage_directory *directory, const char *save_id,
                               double takeover_seconds, struct save_owner **made);
/* For messages. */
const char *save_owner_name(const struct save_owner *owner);
/* DCP_ERR_BUSY if the mark no longer exists. The directory struct may have moved in memory. */
dcp_status save_owner_check(const struct save_owner *owner,
                            const struct storage_directory *directory);
/* Removes the mark if it still exists; keeps the current error. May be called with NULL, and
 * repeatedly. */
void save_owner_release(struct save_owner *owner, const struct storage_directory *directory);
/* Releases as well. */
void save_owner_free(struct save_owner *owner, const struct storage_directory *directory);

#endif
