/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage of the caller's as files: what is read of them goes through a storage reader's hooks
 * stored_size and read_range. Everything that reads files then reads there, and no more of it than
 * it would of a file. */
#ifndef CHECKPOINT_RANGE_FILES_H
#define CHECKPOINT_RANGE_FILES_H

#include "base/file.h"
#include "dcp/storage_reader.h"

struct range_files;

/* reader: is copied. id: stands before the names of files, as a directory's path would. Several
 * threads may read. */
dcp_status range_files_new(const dcp_storage_reader *reader, const char *id,
                           struct range_files **made);
const struct file_ops *range_files_ops(const struct range_files *files);
/* When no file of it is open. NULL is allowed. */
void range_files_free(struct range_files *files);

#endif
