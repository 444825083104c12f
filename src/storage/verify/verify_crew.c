/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/verify/verify_crew.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/thread.h"

/* Bytes of faults that a job keeps before it waits for its turn to report them. */
#define KEPT_BYTES ((size_t)256 << 10)
/* Jobs that may be done before their turn. */
#define AHEAD ((size_t)256)

struct kept_fault {
    struct kept_fault *next;
    uint64_t offset;
    const char *name, *fault;
    char text[]; /* file, name and fault */
};

struct verify_job {
    struct running *running;
    struct kept_fault *first, **last;
    size_t kept; /* bytes */
    bool done, lost;
};

struct running {
    const struct verify_crew *crew;
    struct verify_job *jobs;
    size_t count;
    bool threaded;
    pthread_mutex_t mutex; /* over what follows */
    pthread_cond_t found;  /* for the calling thread */
    pthread_cond_t told;   /* for the others */
    size_t next, head;     /* job that begins next; and the first one that is not reported */
    size_t working;        /* threads */
    size_t failed;         /* lowest job that failed; count: none */
    bool stopped;          /* by a failure, or the caller */
    struct saved_error error;
};

/* ---- on the threads ---- */

/* Waits until the job's faults have been taken, if they are many. Called with the mutex. */
static void wait_for_turn(struct verify_job *job)
{
    struct running *running = job->running;
    pthread_cond_signal(&running->found);
    while (job->kept > KEPT_BYTES && !running->stopped)
        pthread_cond_wait(&running->told, &running->mutex);
}

void verify_job_fault(struct verify_job *job, const char *file, uint64_t offset, const char *name,
                      const char *fault)
{
    struct running *running = job->running;
    if (!running->threaded) {
        running->crew->report(running->crew->report_context, file, offset, name, fault);
        return;
    }
    size_t file_size = strlen(file) + 1, name_size = strlen(name) + 1, size = strlen(fault) + 1;
    size_t total = sizeof(struct kept_fault) + file_size + name_size + size;
    struct kept_fault *kept = job->lost ? NULL : memory_allocate(total);
    if (!kept) {
        job->lost = true;
        return;
    }
    kept->next = NULL;
    kept->offset = offset;
    memcpy(kept->text, file, file_size);
    memcpy(kept->text + file_size, name, name_size);
    memcpy(kept->text + file_size + name_size, fault, size);
    kept->name = kept->text + file_size;
    kept->fault = kept->name + name_size;
    pthread_mutex_lock(&running->mutex);
    *job->last = kept;
    job->last = &kept->next;
    job->kept += total;
    wait_for_turn(job);
    pthread_mutex_unlock(&running->mutex);
}

bool verify_job_await(struct verify_job *job, const bool *flag)
{
    struct running *running = job->running;
    pthread_mutex_lock(&running->mutex);
    while (!*flag && !running->stopped)
        pthread_cond_wait(&running->told, &running->mutex);
    bool is_set = *flag;
    pthread_mutex_unlock(&running->mutex);
    return is_set;
}

bool verify_job_goes_on(struct verify_job *job)
{
    struct running *running = job->running;
    pthread_mutex_lock(&running->mutex);
    bool goes_on = !running->stopped;
    pthread_mutex_unlock(&running->mutex);
    return goes_on;
}

bool verify_job_is_threaded(const struct verify_job *job)
{
    return job->running->threaded;
}

void verify_job_set(struct verify_job *job, bool *flag)
{
    struct running *running = job->running;
    pthread_mutex_lock(&running->mutex);
    *flag = true;
    pthread_cond_broadcast(&running->told);
    pthread_mutex_unlock(&running->mutex);
}

/* Called with the mutex. */
static bool take_job(struct running *running, size_t *index)
{
    while (running->next < running->count && running->next - running->head >= AHEAD &&
           !running->stopped)
        pthread_cond_wait(&running->told, &running->mutex);
    if (running->stopped || running->next >= running->count)
        return false;
    *index = running->next++;
    return true;
}

static dcp_status do_job(struct running *running, size_t index)
{
    struct verify_job *job = &running->jobs[index];
    dcp_status status = running->crew->work(running->crew->context, job, index);
    return status == DCP_OK && job->lost ? error_no_memory(KEPT_BYTES, "a list of faults") : status;
}

static void *work(void *argument)
{
    struct running *running = argument;
    size_t index;
    pthread_mutex_lock(&running->mutex);
    while (take_job(running, &index)) {
        pthread_mutex_unlock(&running->mutex);
        dcp_status status = do_job(running, index);
        pthread_mutex_lock(&running->mutex);
        if (status != DCP_OK && index < running->failed) {
            running->failed = index;
            error_save(&running->error);
            running->error.status = status;
        }
        running->stopped = running->stopped || status != DCP_OK;
        running->jobs[index].done = status == DCP_OK;
        pthread_cond_signal(&running->found);
        pthread_cond_broadcast(&running->told);
    }
    running->working--;
    pthread_cond_signal(&running->found);
    pthread_mutex_unlock(&running->mutex);
    return NULL;
}

/* ---- on the calling thread ---- */

/* Reports what the job has kept. Called with the mutex, which is free meanwhile. */
static void report_kept(struct running *running, struct verify_job *job)
{
    struct kept_fault *kept = job->first;
    job->first = NULL;
    job->last = &job->first;
    job->kept = 0;
    if (!kept)
        return;
    pthread_cond_broadcast(&running->told);
    pthread_mutex_unlock(&running->mutex);
    while (kept) {
        struct kept_fault *next = kept->next;
        running->crew->report(running->crew->report_context, kept->text, kept->offset, kept->name,
                              kept->fault);
        memory_release(kept);
        kept = next;
    }
    pthread_mutex_lock(&running->mutex);
}

/* Called with the mutex. */
static void tell(struct running *running, bool *cancelled)
{
    pthread_mutex_unlock(&running->mutex);
    bool goes_on = running->crew->tell(running->crew->context);
    pthread_mutex_lock(&running->mutex);
    if (goes_on)
        return;
    *cancelled = true;
    running->stopped = true;
    pthread_cond_broadcast(&running->told);
}

static void wait_a_little(struct running *running)
{
    enum { NANOSECONDS = 10000000 };
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += NANOSECONDS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&running->found, &running->mutex, &until);
}

/* Until all threads have ended and all has been reported. */
static bool attend(struct running *running)
{
    bool cancelled = false;
    pthread_mutex_lock(&running->mutex);
    while (running->head < running->count) {
        struct verify_job *job = &running->jobs[running->head];
        if (!cancelled)
            tell(running, &cancelled);
        bool done = job->done;
        report_kept(running, job);
        if (done) {
            running->head++;
            pthread_cond_broadcast(&running->told);
            continue;
        }
        if (job->done || job->first)
            continue; /* since the mutex was free */
        if (running->working == 0)
            break;
        wait_a_little(running);
    }
    pthread_mutex_unlock(&running->mutex);
    return !cancelled;
}

static dcp_status run_here(struct running *running)
{
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < running->count && status == DCP_OK; i++)
        status = do_job(running, i);
    return status;
}

static dcp_status run_threads(struct running *running, size_t thread_count)
{
    bool finished = true;
    struct thread *threads = memory_allocate_array(thread_count, sizeof *threads);
    if (!threads)
        return error_no_memory(thread_count * sizeof *threads, "threads");
    size_t started = 0;
    running->working = thread_count;
    while (started < thread_count && thread_start(&threads[started], work, running) == 0)
        started++;
    pthread_mutex_lock(&running->mutex);
    running->working -= thread_count - started;
    pthread_mutex_unlock(&running->mutex);
    if (started > 0)
        finished = attend(running);
    for (size_t i = 0; i < started; i++)
        thread_join(&threads[i]);
    memory_release(threads);
    running->threaded = started > 0;
    if (started == 0)
        return run_here(running);
    if (running->failed < running->count && finished)
        return error_restore(&running->error);
    return finished && running->crew->tell(running->crew->context)
               ? DCP_OK
               : dcp_error_set(DCP_ERR_CANCELLED,
                               "the check was cancelled by its progress function");
}

static void free_jobs(struct running *running)
{
    for (size_t i = 0; i < running->count; i++) {
        struct kept_fault *kept = running->jobs[i].first;
        while (kept) {
            struct kept_fault *next = kept->next;
            memory_release(kept);
            kept = next;
        }
    }
    memory_release(running->jobs);
}

dcp_status verify_crew_run(const struct verify_crew *crew, size_t count, size_t thread_count)
{
    pthread_condattr_t attributes;
    struct running running = {
        .crew = crew, .count = count, .failed = count, .threaded = thread_count > 1};
    running.jobs = memory_allocate_zeroed(count, sizeof *running.jobs);
    if (!running.jobs)
        return error_no_memory(count * sizeof *running.jobs, "a list of what is checked");
    for (size_t i = 0; i < count; i++) {
        running.jobs[i].running = &running;
        running.jobs[i].last = &running.jobs[i].first;
    }
    pthread_mutex_init(&running.mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&running.found, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_cond_init(&running.told, NULL);
    dcp_status status = thread_count > 1 ? run_threads(&running, thread_count) : run_here(&running);
    pthread_cond_destroy(&running.told);
    pthread_cond_destroy(&running.found);
    pthread_mutex_destroy(&running.mutex);
    free_jobs(&running);
    return status;
}
