/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files (state/extra_file.h) of a save: each is written under a name of its generation, and
 * counts when .metadata names it. */
#ifndef STORAGE_COMMIT_SAVE_EXTRA_H
#define STORAGE_COMMIT_SAVE_EXTRA_H

#include "storage/storage.h"

/* Makes a file that is not there, durably or not; its entry in the directory is durable after
 * storage_directory_sync(). On failure there is none. */
dcp_status save_extra_write(const struct storage_directory *directory, const char *file,
                            const void *bytes, size_t size, bool durable);

#endif
