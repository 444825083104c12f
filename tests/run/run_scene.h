/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs to look at: copies of the reference trees, and checkpoints that this library saves. Whatever
 * goes wrong fails the test. */
#ifndef TESTS_RUN_RUN_SCENE_H
#define TESTS_RUN_RUN_SCENE_H

#include "dcp/run_list.h"

/* A copy of a reference tree's run, in a test's directory; what was a link and is a text there
 * becomes one again if links is true. The path is static. */
const char *scene_tree(void *const *state, const char *tree, bool links);
/* Saves a small checkpoint of several files. */
void scene_save(const dcp_storage *storage, const char *id);
/* Writes a text to a file of a directory, which is made. */
void scene_write(const char *directory, const char *name, const char *text);
void scene_remove(const char *directory, const char *name);
void scene_cut(const char *directory, const char *name, size_t bytes);
/* "directory/name", in a static ring. */
const char *scene_in(const char *directory, const char *name);

dcp_run_list *scene_read(const char *path, const dcp_storage *storage);
/* Lists a run and compares it with lines "PATH STEP KIND", behind which come "whole" or a part of
 * the reason why it is not, in parentheses, and "latest" and "marked". */
void scene_expect(const char *path, const dcp_storage *storage, const char *expected);
/* The latest's path, or a part of the reason why there is none. */
void scene_expect_latest(const char *path, const char *expected);

#endif
