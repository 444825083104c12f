/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/job_scene.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- the job ---- */

static void add_rows(dcp_state *parent, const char *key, float *rows, int rank, int size)
{
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 1,
                               .sharded = true,
                               .global_shape = {(int64_t)JOB_ROWS * size},
                               .offsets = {(int64_t)JOB_ROWS * rank},
                               .sizes = {JOB_ROWS},
                               .data = rows};
    dcp_state_tensor(parent, key, &tensor);
}

static dcp_status save_step(void *context, dcp_state *into)
{
    const struct job *job = context;
    return dcp_state_int(into, "step", job->step);
}

static dcp_status load_step(void *context, const dcp_state *filled)
{
    struct job *job = context;
    return dcp_state_as_int(dcp_state_find(filled, "step"), &job->step);
}

void job_make(struct job *job, int rank, int size)
{
    *job = (struct job){.state = dcp_state_new()};
    add_rows(dcp_state_dict(job->state, "model"), "w", job->weights, rank, size);
    add_rows(dcp_state_dict(job->state, "optimizer"), "m", job->moments, rank, size);
    dcp_state_stateful(job->state, "train", &(dcp_stateful){save_step, load_step, job});
    must(dcp_state_status(job->state));
}

void job_make_model(struct job *job)
{
    *job = (struct job){.state = dcp_state_new()};
    add_rows(dcp_state_dict(job->state, "model"), "w", job->weights, 0, 1);
    dcp_state_stateful(job->state, "train", &(dcp_stateful){save_step, load_step, job});
    must(dcp_state_status(job->state));
}

void job_free(struct job *job)
{
    dcp_state_free(job->state);
    job->state = NULL;
}

void job_train_to(struct job *job, int64_t step)
{
    for (int i = 0; i < JOB_ROWS; i++) {
        job->weights[i] = (float)step + (float)i / 64;
        job->moments[i] = -(float)step - (float)i / 64;
    }
    job->step = step;
}

void job_expect(const struct job *job, int64_t step)
{
    struct job other;
    memset(&other, 0, sizeof other);
    job_train_to(&other, step);
    assert_int_equal(job->step, step);
    assert_memory_equal(job->weights, other.weights, sizeof other.weights);
    assert_memory_equal(job->moments, other.moments, sizeof other.moments);
}

/* ---- its run ---- */

void job_open(struct job *job, const char *path, const dcp_run_options *options)
{
    dcp_run_options ours = options ? *options : (dcp_run_options){0};
    ours.state = job->state;
    must(dcp_run_open(path, &ours, &job->run));
}

void job_save(struct job *job, int64_t step)
{
    job_train_to(job, step);
    must(dcp_run_save(job->run, step));
}

void job_close(struct job *job)
{
    must(dcp_run_close(job->run));
    job_free(job);
}

void job_run(const char *path, const dcp_run_options *options, const int64_t *steps, size_t count)
{
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, path, options);
    for (size_t i = 0; i < count; i++)
        job_save(&job, steps[i]);
    job_close(&job);
}

const char *job_resumes(const char *path, const dcp_run_options *options, int64_t step)
{
    static char line[4096];
    dcp_run_resumed resumed;
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, path, options);
    must(dcp_run_resume(job.run, &resumed));
    snprintf(line, sizeof line, "%s", resumed.reason);
    if (resumed.found != (step >= 0) || (step >= 0 && resumed.step != step))
        fail_msg("expected step %d, found %d: %s", (int)step,
                 resumed.found ? (int)resumed.step : -1, line);
    if (step >= 0)
        job_expect(&job, step);
    job_close(&job);
    return line;
}

void job_resume_fails(const char *path, const dcp_run_options *options, dcp_status status,
                      const char *words)
{
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, path, options);
    must_fail(dcp_run_resume(job.run, NULL), status, words);
    job_close(&job);
}

/* ---- the log ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char lines[16384];

static void take_line(void *context, dcp_log_level level, const char *line)
{
    (void)context, (void)level;
    pthread_mutex_lock(&mutex);
    size_t length = strlen(lines);
    snprintf(lines + length, sizeof lines - length, "%s\n", line);
    pthread_mutex_unlock(&mutex);
}

void job_log_begin(void)
{
    lines[0] = '\0';
    dcp_set_log(take_line, NULL, DCP_LOG_INFO);
}

const char *job_log(void)
{
    static char copy[sizeof lines];
    pthread_mutex_lock(&mutex);
    memcpy(copy, lines, sizeof copy);
    pthread_mutex_unlock(&mutex);
    return copy;
}

void job_log_end(void)
{
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
}
