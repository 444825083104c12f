/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors that are gathered from parts of other tensors, in one file or many: how training
 * checkpoints of other frameworks become what a conversion reads.
 *
 * A tensor is described with its dtype and shape, then its parts, then ended, which checks that the
 * parts hold every element exactly once. Reading a range of elements reads just the ranges of the
 * parts that it lies in. */
#ifndef CONVERT_SOURCE_PARTS_H
#define CONVERT_SOURCE_PARTS_H

#include "base/name_table.h"
#include "convert/source_files.h"
#include "state/box.h"

/* Where elements of a tensor lie. */
struct source_part {
    size_t file;  /* of the first of `times` parts, which are in as many files, one after another */
    size_t entry; /* in each of them */
    size_t times;
    const int64_t *offsets; /* the box of the tensor; NULL: consecutive elements, row-major */
    const int64_t *sizes;
    int64_t count;                /* elements of each part */
    int64_t first;                /* of the first of them in the entry, row-major */
    const int64_t *entry_offsets; /* of boxes: of the box in the entry; NULL: they lie row-major */
};

struct source_tensor {
    const char *name;
    const dcp_path_part *path;
    size_t path_length;
    bool is_tensor; /* else an object: entry of file */
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    struct source_part *parts;
    size_t part_count;
    size_t file, entry;
    const char *text; /* an object that is no entry of a file: JSON, or bytes; NULL: it is one */
    size_t text_size;
    bool is_json;
};

struct source_parts {
    struct source_files files;
    struct source_tensor *tensors;
    size_t count, capacity;
    struct source_part *parts; /* of the tensor that is being described */
    size_t part_count, part_capacity;
    struct name_table names;
    struct name_table boxes; /* of that tensor: those that were added once */
    struct arena *arena;
};

void source_parts_init(struct source_parts *parts, struct arena *arena);
void source_parts_free(struct source_parts *parts);

/* Begins a tensor. Its path is copied; its name is the path's parts, joined by dots.
 * DCP_ERR_DUPLICATE. */
dcp_status source_parts_tensor(struct source_parts *parts, const dcp_path_part *path,
                               size_t path_length, dcp_dtype dtype, int32_t ndim,
                               const int64_t *shape);
/* Its next elements, row-major: `count` of an entry, from its element `first` on. */
dcp_status source_parts_add(struct source_parts *parts, size_t file, size_t entry, int64_t first,
                            int64_t count);
/* A box of it: entry_offsets: as such in an entry of as many dimensions; NULL: row-major in the
 * entry, from its element `first` on. */
dcp_status source_parts_add_box(struct source_parts *parts, size_t file, size_t entry,
                                struct box box, const int64_t *entry_offsets, int64_t first);
/* Whether every element has been added, exactly once. */
dcp_status source_parts_end(struct source_parts *parts);
/* An entry as it is, tensor or object. dtype: of tensors, that elements are converted to. */
dcp_status source_parts_copy(struct source_parts *parts, const dcp_path_part *path,
                             size_t path_length, size_t file, size_t entry, dcp_dtype dtype);

/* An object that is in no checkpoint's file: the text is borrowed, and is JSON or else bytes. */
dcp_status source_parts_text(struct source_parts *parts, const dcp_path_part *path,
                             size_t path_length, const char *text, size_t size, bool is_json);

/* Elements of a tensor, row-major, as another dtype: by way of the tensor's own. Any thread. */
dcp_status source_parts_read(struct source_parts *parts, size_t tensor, int64_t first,
                             int64_t count, dcp_dtype dtype, void *elements);

#endif
