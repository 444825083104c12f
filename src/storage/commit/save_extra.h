/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files (state/extra_file.h) of a save: each is written under a name of its generation, and
 * counts when .metadata names it. */
#ifndef STORAGE_COMMIT_SAVE_EXTRA_H
#define STORAGE_COMMIT_SAVE_EXTRA_H

#include "storage/shard/shard_writer.h"

/* Makes a file that is not there, durably where the session is; its entry in the directory is
 * durable after storage_directory_sync(). On failure there is none. */
dcp_status save_extra_write(const struct save_session *session, const char *file, const void *bytes,
                            size_t size);

#endif
