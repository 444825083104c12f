/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding out what a path is, and decoding the parts that a checkpoint's metadata consists of. */
#ifndef STORAGE_STORAGE_OPEN_H
#define STORAGE_STORAGE_OPEN_H

#include "storage/directory.h"
#include "storage/shard_reader.h"

/* Where a checkpoint is and in which form. */
struct storage_place {
    enum storage_form form;
    char *directory;
    struct directory listing; /* of a directory without .metadata */
    const char *const *parts; /* names of the files that hold the metadata, in order */
    size_t part_count;
    struct arena arena;
};

dcp_status storage_place_find(const struct file_ops *ops, const char *path,
                              struct storage_place *place);
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

#endif
