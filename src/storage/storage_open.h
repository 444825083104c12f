/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding out what a path is, and decoding the parts that a checkpoint's metadata consists of. */
#ifndef STORAGE_STORAGE_OPEN_H
#define STORAGE_STORAGE_OPEN_H

#include "storage/directory.h"
#include "storage/shard_reader.h"

/* Most members of a union. */
#define STORAGE_MEMBERS_MAX 4096

/* Where a checkpoint is and in which form. */
struct storage_place {
    enum storage_form form;
    char *directory;
    struct directory listing; /* of a directory without .metadata */
    const char *const *parts; /* names of the files that hold the metadata, or members; in order */
    size_t part_count;
    bool chosen; /* the members were named by the caller */
    struct arena arena;
};

dcp_status storage_place_find(const struct file_ops *ops, struct storage_location location,
                              struct storage_place *place);
/* A member of a union: a directory of the first two forms. */
dcp_status storage_place_member(const struct file_ops *ops, const char *directory, const char *name,
                                bool chosen, struct storage_place *place);
void storage_place_free(struct storage_place *place);

/* As storage_read_metadata(), of a place. lenient: how chunks fit their tensors and each other is
 * not checked where the form allows for it. */
dcp_status storage_open_place(const struct file_ops *ops, const struct storage_place *place,
                              bool lenient, struct metadata *metadata,
                              struct shard_reader **reader);
/* Reads and decodes one part by itself: of .metadata and rank-local metadata a whole struct
 * metadata, leniently; of safetensors an addition to it. */
dcp_status storage_decode_part(const struct file_ops *ops, const struct storage_place *place,
                               const char *part, struct metadata *metadata);
/* All of a place of the first two forms, leniently. */
dcp_status storage_decode_directory(const struct file_ops *ops, const struct storage_place *place,
                                    struct metadata *metadata);
/* Appends the bytes of a directory's .metadata. */
dcp_status storage_append_pickle(const struct file_ops *ops, const char *directory,
                                 struct buffer *bytes);

#endif
