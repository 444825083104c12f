/* SPDX-License-Identifier: BSD-3-Clause */
/* A training job that a run keeps: a model and an optimizer of 64 rows for each rank, whose values
 * tell the step. Whatever goes wrong fails the test. */
#ifndef TESTS_RUN_JOB_SCENE_H
#define TESTS_RUN_JOB_SCENE_H

#include "checkpoint/ranks.h"
#include "dcp.h"

enum { JOB_ROWS = 64 };

struct job {
    float weights[JOB_ROWS], moments[JOB_ROWS];
    int64_t step;
    dcp_state *state;
    dcp_run *run;
};

/* state: the job's tree; a group's rank holds its rows. */
void job_make(struct job *job, int rank, int size);
/* Without optimizer. */
void job_make_model(struct job *job);
void job_free(struct job *job);
/* Sets all values to those of a step. */
void job_train_to(struct job *job, int64_t step);
/* Fails unless the values are those of a step. */
void job_expect(const struct job *job, int64_t step);

/* Opens a run of the job in a directory, alone. NULL: default options. */
void job_open(struct job *job, const char *path, const dcp_run_options *options);
/* Trains to a step and saves it. */
void job_save(struct job *job, int64_t step);
void job_close(struct job *job);
/* A run with these steps, from its beginning to its end. */
void job_run(const char *path, const dcp_run_options *options, const int64_t *steps, size_t count);
/* Resumes a new job and fails unless it is at this step; -1: nothing was found. The line is static.
 */
const char *job_resumes(const char *path, const dcp_run_options *options, int64_t step);
/* How a resume of a new job fails. */
void job_resume_fails(const char *path, const dcp_run_options *options, dcp_status status,
                      const char *words);

/* Log lines since then, as one text; static. */
void job_log_begin(void);
const char *job_log(void);
void job_log_end(void);

#endif
