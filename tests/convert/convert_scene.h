/* SPDX-License-Identifier: BSD-3-Clause */
/* A state to convert, and looking at what came of it. Whatever goes wrong fails the test. */
#ifndef TESTS_CONVERT_CONVERT_SCENE_H
#define TESTS_CONVERT_CONVERT_SCENE_H

#include "dcp.h"

/* Saves a DCP directory: below "model" tensors of many dtypes and shapes, empty ones and one of
 * several blocks, and lists; below "optimizer" tensors and objects. objects: else tensors alone. */
void scene_save(const char *path, bool objects);
/* That two checkpoints of any form have the same names, dtypes, shapes, bytes and objects. */
void scene_equal(const char *left, const char *right);
/* That two DCP directories have the same chunks at the same places of files of the same names. */
void scene_same_places(const char *left, const char *right);
/* The elements of a tensor in the dtype and shape of an entry, which may be another checkpoint's;
 * free() them. */
void *scene_elements(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *as);
/* An object as JSON; dcp_text_free() it. */
char *scene_object_text(dcp_checkpoint *checkpoint, size_t index);
/* That ranks load all tensors of a checkpoint, each its share of dimension `dim` (or the last one
 * of a tensor's, if it has fewer), with the values that another checkpoint has. */
void scene_ranks_load(int ranks, const char *path, const char *converted,
                      const dcp_load_options *options, int32_t dim);
/* Which allocations fail: each first-th up to one, and each then-th after it. */
struct scene_trials {
    long first, until, then;
};
/* That a conversion of which an allocation fails is out of memory and leaves no file. extension: of
 * the files that come of it, in the test's directory. */
void scene_allocations_fail(void *const *state, const char *from, const char *extension,
                            const dcp_convert_options *options, struct scene_trials trials);
/* That a file has so many bytes; -1: that there is no such file. */
void scene_expect_size(const char *path, long size);
/* That a directory has so many names. */
void scene_expect_names(const char *path, size_t count);
/* Writes a text to a file; its directory is made. */
void scene_write(const char *directory, const char *name, const char *text);
/* Reads a file as a whole; free() it. */
char *scene_read(const char *path, size_t *size);
/* That two files have the same bytes. */
void scene_same_file(const char *left, const char *right);
/* A dcp_progress_function that ends a conversion at the first block that it writes. */
bool scene_end_at_first(void *context, const dcp_progress *told);

#endif
