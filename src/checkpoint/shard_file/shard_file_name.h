/* SPDX-License-Identifier: BSD-3-Clause */
/* The names that shard files have when they are written and listed one by one. */
#ifndef CHECKPOINT_SHARD_FILE_SHARD_FILE_NAME_H
#define CHECKPOINT_SHARD_FILE_SHARD_FILE_NAME_H

#include <stdbool.h>
#include <string.h>

#define SHARD_FILE_SUFFIX ".distcp"

static inline bool shard_file_has_suffix(const char *name)
{
    const size_t suffix = sizeof SHARD_FILE_SUFFIX - 1;
    size_t length = strlen(name);
    return length > suffix && strcmp(name + length - suffix, SHARD_FILE_SUFFIX) == 0;
}

#endif
