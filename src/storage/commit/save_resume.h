/* SPDX-License-Identifier: BSD-3-Clause */
/* A save of one process for several ranks that goes on where an interrupted one of the same plan
 * has ended: the files of the ranks that were finished stay, and with them the save's id. */
#ifndef STORAGE_COMMIT_SAVE_RESUME_H
#define STORAGE_COMMIT_SAVE_RESUME_H

#include "storage/shard/shard_writer.h"

/* Begins a session in a directory that no other save uses, as the caller knows: a mark there is
 * stale. kept[r]: the file of rank r is there, whole and durable. If some are, the session has
 * their save id and generation; all other files of saves are removed. DCP_ERR_FORMAT: a kept file
 * is missing, damaged, or of another save than the others. */
dcp_status save_session_resume(struct save_session *session, const dcp_storage *storage,
                               const char *path, bool sync, const bool *kept, uint32_t rank_count);
/* That a kept file of the session holds what a rank's orders say; DCP_ERR_FORMAT if not. results:
 * as shard_files_write() gives them. */
dcp_status shard_file_check_kept(const struct save_session *session, int rank,
                                 const struct write_orders *orders,
                                 const struct shard_source *sources, bool zstd,
                                 struct write_results *results);

#endif
