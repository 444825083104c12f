/* SPDX-License-Identifier: BSD-3-Clause */
/* A whole file as a byte source. */
#ifndef STORAGE_FILE_SOURCE_H
#define STORAGE_FILE_SOURCE_H

#include "base/byte_source.h"
#include "base/file.h"

/* Must stay where it is while the source is used. */
struct file_source {
    struct file file;
    struct byte_source source;
};

/* Opens a regular file for reading. */
dcp_status file_source_open(struct file_source *source, const struct file_ops *ops,
                            const char *path);
void file_source_close(struct file_source *source);

#endif
