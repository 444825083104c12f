/* SPDX-License-Identifier: BSD-3-Clause */
/* A place far away over the file system, on whose way things go wrong, one for each program; and
 * runs with mirrors. */
#ifndef TESTS_RUN_MIRROR_SCENE_H
#define TESTS_RUN_MIRROR_SCENE_H

#include "dcp.h"

/* What goes wrong from now on. All zero: nothing. */
struct far_manner {
    bool unreachable;       /* nothing can be opened */
    bool held;              /* writes wait until this is false again */
    long flip_write;        /* the n-th write has a bit turned, from 1; 0: none */
    long fail_write;        /* from the n-th on they fail */
    dcp_status fail_status; /* so */
    long exit_write;        /* the process ends in the n-th */
};

/* Starts counting anew. */
const dcp_storage *far_storage(const struct far_manner *manner);
void far_release(void);
/* Writes since then, of any file. */
long far_writes(void);
/* Waits until so many writes are held. */
void far_wait_held(long count);

/* ---- runs ---- */

/* Of a test's directory. */
const char *mirror_run(void **state);
dcp_run_mirror mirror_at(const char *path, const dcp_storage *storage);
/* Saves blocking. */
dcp_run_options mirror_options(const dcp_run_mirror *mirrors, size_t count,
                               const dcp_run_keep *keep);
/* Whether a run has a checkpoint that is committed. */
bool mirror_has(const char *run, const char *name);
/* And all of it is right. */
void mirror_expect_whole(const char *run, const char *name);
void mirror_pause(void);
void mirror_wait_gone(const char *run, const char *name);
void mirror_wait_there(const char *run, const char *name);

#endif
