/* SPDX-License-Identifier: BSD-3-Clause */
/* What a checkpoint's directory holds, by the meaning of the names. */
#ifndef STORAGE_DIRECTORY_H
#define STORAGE_DIRECTORY_H

#include "base/arena.h"
#include "base/file.h"

#define METADATA_NAME           ".metadata"
#define METADATA_TEMPORARY_NAME ".metadata.tmp"
#define JSON_NAME               "metadata.json"
#define JSON_TEMPORARY_NAME     "metadata.json.tmp"

enum directory_kind {
    DIRECTORY_METADATA,    /* .metadata */
    DIRECTORY_RANK_LOCAL,  /* __R.metadata */
    DIRECTORY_SHARD,       /* __R_N.distcp and those of later generations */
    DIRECTORY_SAFETENSORS, /* *.safetensors */
    DIRECTORY_STAGE,       /* ppR, as pipeline stages are saved by themselves */
    DIRECTORY_OTHER,
    DIRECTORY_KINDS
};

struct directory_name {
    enum directory_kind kind;
    const char *name;
    int rank;            /* rank-local metadata, shards; the number of a stage */
    uint32_t generation; /* shards */
};

struct directory {
    struct directory_name *names; /* by kind, then rank, then name */
    size_t count;
    size_t first[DIRECTORY_KINDS + 1]; /* names of kind k: first[k] to first[k + 1] - 1 */
    struct arena arena;
};

/* Lists path. A directory that is not there is DCP_ERR_NOT_FOUND. */
dcp_status directory_read(const struct file_ops *ops, const char *path,
                          struct directory *directory);
size_t directory_count(const struct directory *directory, enum directory_kind kind);
void directory_free(struct directory *directory);
/* That path is a directory by itself: a symbolic link could lead anywhere. */
dcp_status directory_check(const struct file_ops *ops, const char *path);

#endif
