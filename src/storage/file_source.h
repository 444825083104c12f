/* SPDX-License-Identifier: BSD-3-Clause */
/* A whole file of a storage as a byte source. */
#ifndef STORAGE_FILE_SOURCE_H
#define STORAGE_FILE_SOURCE_H

#include "base/byte_source.h"
#include "storage/storage.h"

/* Must stay where it is while the source is used. */
struct file_source {
    struct storage_file file;
    struct byte_source source;
};

/* The name is trusted: it comes from a listing or from the caller. */
dcp_status file_source_open(struct file_source *source, const struct storage_directory *directory,
                            const char *name);
void file_source_close(struct file_source *source);

#endif
