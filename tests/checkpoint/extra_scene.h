/* SPDX-License-Identifier: BSD-3-Clause */
/* Small checkpoints with extra files, and looking at these. Whatever goes wrong in what says
 * nothing of a status fails the test. */
#ifndef TESTS_CHECKPOINT_EXTRA_SCENE_H
#define TESTS_CHECKPOINT_EXTRA_SCENE_H

#include "dcp.h"

#define FILE_OF(text_name, text)                                                                   \
    {                                                                                              \
        .size_of = sizeof(dcp_extra_file), .name = (text_name), .bytes = (text),                   \
        .size = sizeof(text) - 1                                                                   \
    }

/* Saves a number. */
dcp_status extra_scene_save(const char *path, int64_t value, const dcp_save_options *options);
/* The same, with files, over what is there. */
dcp_status extra_scene_save_files(const char *path, const dcp_extra_file *files, size_t count);
/* Reads one of less than 1 KiB. */
dcp_status extra_scene_read(dcp_checkpoint *checkpoint, const char *name, char text[1024]);
void extra_scene_expect(dcp_checkpoint *checkpoint, const char *name, const char *expected);
/* All that a checkpoint has: "name=text name=text". */
void extra_scene_expect_all(const char *path, const char *expected);
/* How many files of a checkpoint's directory are extra ones. */
int extra_scene_count_stored(const char *path);
/* The number of faults that dcp_verify() finds, which extra_scene_faults tells: "file: name:
 * fault\n". */
uint64_t extra_scene_verify(const char *path);
extern char extra_scene_faults[4096];

#endif
