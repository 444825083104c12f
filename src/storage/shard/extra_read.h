/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files (state/extra_file.h) of a checkpoint, read and checked. */
#ifndef STORAGE_SHARD_EXTRA_READ_H
#define STORAGE_SHARD_EXTRA_READ_H

#include "storage/shard/shard_reader.h"

/* All of it, into extra->size bytes. DCP_ERR_CHECKSUM, DCP_ERR_FORMAT for another size. */
dcp_status extra_read(struct shard_reader *reader, const struct extra_file *extra,
                      dcp_verification verification, void *bytes);
/* The same, in a small buffer: checks it without keeping the bytes. */
dcp_status extra_check(struct shard_reader *reader, const struct extra_file *extra);

#endif
