/* SPDX-License-Identifier: BSD-3-Clause */
/* model.safetensors.index.json: the files of a directory of safetensors, and the file of each
 * tensor. */
#ifndef FORMAT_SAFETENSORS_SAFETENSORS_INDEX_H
#define FORMAT_SAFETENSORS_SAFETENSORS_INDEX_H

#include "base/arena.h"
#include "state/metadata.h"

#define SAFETENSORS_INDEX_NAME     "model.safetensors.index.json"
#define SAFETENSORS_INDEX_SIZE_MAX ((uint64_t)256 << 20)

struct safetensors_index {
    const char **files; /* sorted, each once */
    size_t file_count;
    struct safetensors_indexed {
        const char *name;
        const char *file;
    } * tensors; /* by name */
    size_t tensor_count;
};

/* Reads the text of an index. Texts live in the arena. Errors: DCP_ERR_FORMAT for a malformed index
 * and for file names that leave the directory, DCP_ERR_DUPLICATE for a tensor in two files. */
dcp_status safetensors_index_read(const void *text, size_t size, struct arena *arena,
                                  struct safetensors_index *index);
/* Checks that the metadata made by safetensors_add() has all tensors in the files that the index
 * names, and no others. DCP_ERR_FORMAT names the first that differs, and the files. */
dcp_status safetensors_index_check(const struct safetensors_index *index,
                                   const struct metadata *metadata);

#endif
