/* SPDX-License-Identifier: BSD-3-Clause */
/* What a checkpoint's directory holds, by the meaning of the names. */
#ifndef STORAGE_OPEN_DIRECTORY_H
#define STORAGE_OPEN_DIRECTORY_H

#include "base/arena.h"
#include "storage/storage.h"

#define METADATA_NAME ".metadata"
#define JSON_NAME     "metadata.json"
#define JSON_LIMIT    ((uint64_t)16 << 20) /* of its bytes */
#define OWNER_NAME    ".dcp_owner"         /* while a save lasts: storage/commit/save_owner.h */

enum { ALL_RANKS = -1, SMALL_NAME_MAX = 32 };
/* __R.metadata and .dcp_owner.R; of ALL_RANKS: .metadata and .dcp_owner. */
void directory_metadata_name(int rank, char name[SMALL_NAME_MAX]);
void directory_owner_name(int rank, char name[SMALL_NAME_MAX]);

enum directory_kind {
    DIRECTORY_METADATA,    /* .metadata */
    DIRECTORY_RANK_LOCAL,  /* __R.metadata */
    DIRECTORY_SHARD,       /* __R_N.distcp and those of later generations */
    DIRECTORY_EXTRA,       /* __R.gG.extra.NAME */
    DIRECTORY_SAFETENSORS, /* *.safetensors */
    DIRECTORY_INDEX,       /* model.safetensors.index.json */
    DIRECTORY_STAGE,       /* ppR: pipeline stages that were saved separately */
    DIRECTORY_OWNER,       /* .dcp_owner */
    DIRECTORY_RANK_OWNER,  /* .dcp_owner.R */
    DIRECTORY_TEMPORARY,   /* what becomes one of the small files, of saves that may have ended */
    DIRECTORY_OTHER,
    DIRECTORY_KINDS
};

struct directory_name {
    enum directory_kind kind;
    const char *name;
    int rank; /* rank-local metadata and owner, shards, extra files; the number of a stage; what is
                 temporary of a rank's files, else ALL_RANKS */
    uint32_t generation; /* shards, extra files */
};

struct directory {
    struct directory_name *names; /* by kind, then rank, then name */
    size_t count;
    size_t first[DIRECTORY_KINDS + 1]; /* names of kind k: first[k] to first[k + 1] - 1 */
    struct arena arena;
};

dcp_status directory_read(const struct storage_directory *of, struct directory *directory);
/* One more than any of its files' of a rank, or of ALL_RANKS; DCP_ERR_UNSUPPORTED if none can
 * follow. */
dcp_status directory_next_generation(const struct directory *directory, const char *path, int rank,
                                     uint32_t *generation);
size_t directory_count(const struct directory *directory, enum directory_kind kind);
void directory_free(struct directory *directory);

#endif
