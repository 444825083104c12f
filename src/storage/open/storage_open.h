/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding out what a path is, and decoding the parts that a checkpoint's metadata consists of. */
#ifndef STORAGE_OPEN_STORAGE_OPEN_H
#define STORAGE_OPEN_STORAGE_OPEN_H

#include "format/safetensors/safetensors_index.h"
#include "storage/open/directory.h"
#include "storage/shard/shard_reader.h"

/* Most members of a union. */
#define STORAGE_MEMBERS_MAX 4096

/* Where a checkpoint is and in which form. */
struct storage_place {
    const dcp_storage *storage;
    enum storage_form form;
    char *id;
    struct storage_directory directory; /* not open for a union whose members were chosen, or after
                                           a reader took ownership */
    struct directory listing;           /* of a directory without .metadata */
    const char *const *parts; /* names of the files that hold the metadata, or members; in order */
    size_t part_count;
    bool chosen;                     /* the members were named by the caller */
    struct safetensors_index *index; /* of safetensors; NULL: none, all files count */
    bool local_parts;                /* of .pt files: dcp_open_options::local_parts */
    dcp_take take;                   /* of training checkpoints: dcp_open_options::take */
    struct arena arena;
};

dcp_status storage_place_find(const dcp_storage *storage, struct storage_location location,
                              struct storage_place *place);
/* A member of a union: a directory of the first three forms. */
dcp_status storage_place_member(const dcp_storage *storage, const char *id, const char *name,
                                bool chosen, struct storage_place *place);
/* The id of a member that the caller names: relative to that of the union, or absolute. NULL: no
 * memory.
 */
char *storage_member_id(const char *id, const char *name);
void storage_place_free(struct storage_place *place);

/* As storage_read_metadata(), for a place; the reader takes ownership of its directory. lenient: if
 * the form allows it, chunks are not checked against their tensors and each other. */
dcp_status storage_open_place(struct storage_place *place, bool lenient, struct metadata *metadata,
                              struct shard_reader **reader);
/* Reads and decodes one part: .metadata and rank-local metadata give a whole struct metadata,
 * leniently; safetensors are added to it. */
dcp_status storage_decode_part(const struct storage_place *place, const char *part,
                               struct metadata *metadata);
/* Of one that is a pickle: metadata_compare_forms(). id: the directory's, for messages. */
dcp_status storage_compare_forms(const struct storage_directory *directory, const char *id,
                                 const char *part);
/* All of a place of the first three forms, leniently. */
dcp_status storage_decode_directory(const struct storage_place *place, struct metadata *metadata);
/* Appends the bytes of a directory's .metadata. */
dcp_status storage_append_pickle(const struct storage_directory *directory, struct buffer *bytes);

#endif
