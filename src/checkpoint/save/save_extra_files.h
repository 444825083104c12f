/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files of a save: what this rank was given, and at the coordinator what all ranks were.
 *
 * Names, sizes and digests of all ranks are gathered after planning, if any rank says in the
 * exchange of the arguments that it has some; then each rank writes its own before its shards. */
#ifndef CHECKPOINT_SAVE_SAVE_EXTRA_FILES_H
#define CHECKPOINT_SAVE_SAVE_EXTRA_FILES_H

#include "base/arena.h"
#include "dcp/save.h"
#include "state/metadata.h"
#include "storage/storage.h"

struct save_extra_file {
    const char *name;
    const void *bytes;
    uint64_t size;
    uint64_t digest;
};

/* Of one rank; all zero: none. What it takes of memory is not the save's. */
struct save_extra_files {
    struct save_extra_file *files;
    size_t count;
    size_t written; /* that were made, by this attempt */
    bool owned;     /* names and bytes are copies */
};

/* Checks names, and takes digests; bytes stay the caller's. On failure there are none. */
dcp_status save_extra_files_take(struct save_extra_files *extra, const dcp_save_options *options);
/* The caller's bytes may change from here on. On failure those that are the caller's stay. */
dcp_status save_extra_files_keep(struct save_extra_files *extra);
void save_extra_files_free(struct save_extra_files *extra);
/* Bytes of all of them. */
uint64_t save_extra_files_size(const struct save_extra_files *extra);

/* Adds some to those that metadata has, which stay where they are, as files of a rank and a
 * generation. arena: of what is added. DCP_ERR_DUPLICATE for a name that it has. */
dcp_status save_extra_files_add(const struct save_extra_files *extra, int rank, uint32_t generation,
                                struct arena *arena, struct metadata *metadata);
/* Writes them to a directory, and takes those that were written away again; the message is kept. */
dcp_status save_extra_files_make(struct save_extra_files *extra,
                                 const struct storage_directory *directory, int rank,
                                 uint32_t generation, bool durable);
void save_extra_files_unmake(struct save_extra_files *extra,
                             const struct storage_directory *directory, int rank,
                             uint32_t generation);
/* Every rank, if any has some: the coordinator's metadata lists them. DCP_ERR_DUPLICATE names both
 * ranks that give the same name. status: how this rank came so far. */
dcp_status save_extra_files_gather(dcp_saving *saving, dcp_status status);
dcp_status save_extra_files_write(dcp_saving *saving);
/* After a failure: those that were made here go; the message is kept. */
void save_extra_files_discard(dcp_saving *saving);

#endif
