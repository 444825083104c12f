/* SPDX-License-Identifier: BSD-3-Clause */
/* Mirrors of an open run: who copies, and who waits for copies. */
#include "run/run_mirrors.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "run/run_manager.h"

#define WAIT_SECONDS  300.0
#define RETRY_SECONDS 60.0
enum { RETRY_DOUBLINGS = 6 }; /* about an hour */

/* ---- what is known; the mutex is held ---- */

static struct run_copy_entry *find(struct run_mirror_worker *worker, const char *name)
{
    for (size_t i = 0; i < worker->count; i++)
        if (strcmp(worker->entries[i].name, name) == 0)
            return &worker->entries[i];
    return NULL;
}

/* The entry of a name, which is made; NULL: no memory. Those of checkpoints that nobody asks for
 * any more are used again. */
static struct run_copy_entry *enter(struct run_mirror_worker *worker, const char *name)
{
    struct run_copy_entry *entry = find(worker, name);
    if (entry)
        return entry;
    if (worker->count == worker->capacity) {
        size_t capacity = worker->capacity ? 2 * worker->capacity : 32;
        struct run_copy_entry *grown =
            memory_reallocate_array(worker->entries, capacity, sizeof *worker->entries);
        if (!grown)
            return NULL;
        worker->entries = grown;
        worker->capacity = capacity;
    }
    entry = &worker->entries[worker->count++];
    *entry = (struct run_copy_entry){.state = RUN_COPY_PENDING, .until = worker->begun_until};
    snprintf(entry->name, sizeof entry->name, "%s", name);
    return entry;
}

static uint64_t count_pending(const struct run_mirror_worker *worker, bool failed_too)
{
    uint64_t pending = 0;
    for (size_t i = 0; i < worker->count; i++)
        pending += worker->entries[i].state == RUN_COPY_PENDING ||
                   (failed_too && worker->entries[i].state == RUN_COPY_FAILED);
    return pending;
}

/* ---- a round, by the thread ---- */

static bool is_ending(void *context)
{
    struct run_mirror_worker *worker = context;
    pthread_mutex_lock(&worker->mutex);
    bool ending = worker->ending;
    pthread_mutex_unlock(&worker->mutex);
    return ending;
}

static enum run_copy_state state_of(dcp_run_copy_verdict verdict)
{
    return verdict == DCP_RUN_COPY_FAILED ? RUN_COPY_FAILED
           : verdict == DCP_RUN_COPY_LEFT ? RUN_COPY_UNWANTED
                                          : RUN_COPY_DONE;
}

/* What this run has copied is there still. */
static bool is_done(void *context, const char *name)
{
    struct run_mirror_worker *worker = context;
    pthread_mutex_lock(&worker->mutex);
    const struct run_copy_entry *entry = find(worker, name);
    bool done = entry && entry->state == RUN_COPY_DONE;
    pthread_mutex_unlock(&worker->mutex);
    return done;
}

/* A failure is told once, and not each time that it is tried again. */
static void report(const struct run_mirror_worker *worker, const dcp_run_copied *copied,
                   bool failed_before)
{
    bool fails = copied->verdict == DCP_RUN_COPY_FAILED;
    if (copied->verdict == DCP_RUN_COPY_THERE || copied->verdict == DCP_RUN_COPY_LEFT ||
        (fails && failed_before))
        return;
    if (!fails)
        log_line(DCP_LOG_INFO, "copied %s/%s to %s in %.1f s", worker->run->root, copied->name,
                 worker->mirror.path, copied->seconds);
    else
        log_line(DCP_LOG_ERROR, "%s/%s was not copied to %s, and is tried again: %s",
                 worker->run->root, copied->name, worker->mirror.path, copied->why);
    run_figures_mirror(worker->run, worker->mirror.path, copied);
}

static void take_copied(void *context, const dcp_run_copied *copied)
{
    struct run_mirror_worker *worker = context;
    bool failed_before = false, counts = copied->status != DCP_ERR_CANCELLED;
    pthread_mutex_lock(&worker->mutex);
    struct run_copy_entry *entry = counts ? enter(worker, copied->name) : NULL;
    /* One that was saved again meanwhile is not the one that was copied. */
    if (entry && entry->posted <= worker->round_posts) {
        failed_before = entry->state == RUN_COPY_FAILED;
        entry->state = state_of(copied->verdict);
        if (entry->state == RUN_COPY_DONE && copied->step > worker->newest)
            worker->newest = copied->step;
        if (entry->state == RUN_COPY_FAILED)
            snprintf(worker->why, sizeof worker->why, "%.250s", copied->why);
    }
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    if (counts)
        report(worker, copied, failed_before);
}

static void end_round(struct run_mirror_worker *worker, dcp_status status)
{
    struct saved_error error;
    error_save(&error);
    pthread_mutex_lock(&worker->mutex);
    worker->busy = false;
    worker->looked = worker->looked || status != DCP_ERR_CANCELLED;
    worker->failures = status == DCP_OK ? 0 : worker->failures + (status != DCP_ERR_CANCELLED);
    if (status == DCP_OK)
        worker->why[0] = '\0';
    else
        snprintf(worker->why, sizeof worker->why, "%.250s", error.text);
    /* Those that the round has not told of are not there any more, or it could not even look. */
    for (size_t i = 0; i < worker->count && status != DCP_ERR_CANCELLED; i++)
        if (worker->entries[i].state == RUN_COPY_PENDING &&
            worker->entries[i].posted <= worker->round_posts)
            worker->entries[i].state = status == DCP_OK ? RUN_COPY_UNWANTED : RUN_COPY_FAILED;
    bool again = worker->spares && status == DCP_OK;
    worker->spares = worker->spares && !again;
    bool says = status != DCP_OK && status != DCP_ERR_CANCELLED && worker->failures == 1;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    if (again)
        run_background_again(&worker->run->background);
    if (says)
        log_line(DCP_LOG_WARNING, "%s: the mirror %s does not have everything: %s",
                 worker->run->root, worker->mirror.path, error.text);
}

static void copy_round(struct run_mirror_worker *worker)
{
    const dcp_run *run = worker->run;
    const dcp_run_copy_options options = {.source = run->options.storage,
                                          .destination = worker->mirror.storage,
                                          .keep = worker->has_keep    ? &worker->keep
                                                  : run->options.keep ? &run->keep
                                                                      : NULL,
                                          .only_kept = worker->has_keep,
                                          .identity = run->own.identity,
                                          .bytes_per_second = worker->mirror.bytes_per_second,
                                          .is_known = is_done,
                                          .is_known_context = worker,
                                          .told = take_copied,
                                          .told_context = worker,
                                          .stopped = is_ending,
                                          .stopped_context = worker};
    end_round(worker, dcp_run_copy(run->root, worker->mirror.path, &options, NULL));
}

/* False: it is time to end. After a failure it is tried again before something is committed. */
static bool wait_for_work(struct run_mirror_worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    int64_t doublings = worker->failures - 1;
    doublings = doublings < 0 ? 0 : doublings < RETRY_DOUBLINGS ? doublings : RETRY_DOUBLINGS;
    const struct timespec again =
        deadline_timespec(deadline_after(RETRY_SECONDS * (double)(1 << doublings)));
    int code = 0;
    while (!worker->wanted && !worker->ending && code == 0)
        code = worker->failures > 0
                   ? pthread_cond_timedwait(&worker->changed, &worker->mutex, &again)
                   : pthread_cond_wait(&worker->changed, &worker->mutex);
    bool goes_on = !worker->ending;
    worker->wanted = false;
    worker->busy = goes_on;
    worker->round_posts = worker->posts;
    pthread_mutex_unlock(&worker->mutex);
    return goes_on;
}

static void *work(void *argument)
{
    struct run_mirror_worker *worker = argument;
    while (wait_for_work(worker))
        copy_round(worker);
    return NULL;
}

/* ---- those who wait ---- */

static void post(struct run_mirror_worker *worker, const char *name)
{
    int code = 0;
    pthread_mutex_lock(&worker->mutex);
    worker->wanted = true;
    if (name) {
        struct run_copy_entry *entry = enter(worker, name);
        worker->posts++;
        if (entry) {
            entry->state = RUN_COPY_PENDING;
            entry->posted = worker->posts;
            entry->until = deadline_after(worker->mirror.wait_seconds);
        }
    }
    if (!worker->started) {
        code = thread_start(&worker->thread, work, worker);
        worker->started = code == 0;
    }
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    if (code != 0)
        log_line(DCP_LOG_ERROR, "%s: no thread to copy checkpoints to %s: %s", worker->run->root,
                 worker->mirror.path, strerror(code));
}

void run_mirrors_post(struct run_mirrors *mirrors, const char *name)
{
    for (size_t i = 0; i < mirrors->count; i++)
        post(&mirrors->workers[i], name);
}

/* Waits until something changes; false: not beyond the deadline. */
static bool wait_for_change(struct run_mirror_worker *worker, struct deadline until)
{
    const struct timespec time = deadline_timespec(until);
    return !worker->ending && worker->started && !deadline_passed(until) &&
           (pthread_cond_timedwait(&worker->changed, &worker->mutex, &time) == 0 ||
            !deadline_passed(until));
}

static const char *spare(struct run_mirror_worker *worker, const char *name)
{
    const char *why = NULL;
    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        const struct run_copy_entry *entry = find(worker, name);
        bool pending = entry ? entry->state == RUN_COPY_PENDING : !worker->looked;
        if (pending && wait_for_change(worker, entry ? entry->until : worker->begun_until))
            continue;
        if (pending || (entry && entry->state == RUN_COPY_FAILED)) {
            snprintf(worker->spared, sizeof worker->spared, "its copy to %.100s %s%.100s",
                     worker->mirror.path,
                     pending ? "is not made yet" : "has failed: ", pending ? "" : worker->why);
            why = worker->spared;
            worker->spares = true;
        }
        break;
    }
    pthread_mutex_unlock(&worker->mutex);
    return why;
}

const char *run_mirrors_spare(void *context, const char *name)
{
    struct run_mirrors *mirrors = context;
    const char *why = NULL;
    for (size_t i = 0; i < mirrors->count && !why; i++)
        why = spare(&mirrors->workers[i], name);
    return why;
}

void run_mirrors_wait(struct run_mirrors *mirrors)
{
    for (size_t i = 0; i < mirrors->count; i++) {
        struct run_mirror_worker *worker = &mirrors->workers[i];
        struct deadline until = deadline_after(worker->mirror.wait_seconds);
        pthread_mutex_lock(&worker->mutex);
        while ((worker->wanted || worker->busy || count_pending(worker, false) > 0) &&
               wait_for_change(worker, until))
            ;
        uint64_t pending = count_pending(worker, true);
        pthread_mutex_unlock(&worker->mutex);
        if (pending > 0)
            log_line(DCP_LOG_ERROR, "%s: the run ends before all of it was copied to %s",
                     worker->run->root, worker->mirror.path);
    }
}

void run_mirrors_stop(struct run_mirrors *mirrors)
{
    for (size_t i = 0; i < mirrors->count; i++) {
        struct run_mirror_worker *worker = &mirrors->workers[i];
        if (!worker->made)
            continue;
        pthread_mutex_lock(&worker->mutex);
        worker->ending = true;
        pthread_cond_broadcast(&worker->changed);
        pthread_mutex_unlock(&worker->mutex);
    }
    for (size_t i = 0; i < mirrors->count; i++) {
        struct run_mirror_worker *worker = &mirrors->workers[i];
        if (!worker->started)
            continue;
        thread_join(&worker->thread);
        pthread_mutex_lock(&worker->mutex);
        worker->started = false;
        pthread_mutex_unlock(&worker->mutex);
    }
}

/* ---- making and freeing ---- */

dcp_status run_mirrors_read(const dcp_run_options *options, size_t index, dcp_run_mirror *mirror)
{
    const dcp_run_mirror *first = options->mirrors;
    if (!first || first->size_of == 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a mirror of a run needs its size_of and its path");
    const char *at = (const char *)first + index * first->size_of;
    RETURN_IF_ERROR(sized_read(mirror, sizeof *mirror, at, first->size_of, "dcp_run_mirror"));
    if (!mirror->path || !*mirror->path || !(mirror->wait_seconds >= 0))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "mirror %zu of a run has no path, or its wait is negative", index);
    if (mirror->wait_seconds == 0)
        mirror->wait_seconds = WAIT_SECONDS;
    return DCP_OK;
}

static dcp_status make_worker(struct run_mirror_worker *worker, dcp_run *run, size_t index)
{
    pthread_condattr_t monotonic;
    *worker = (struct run_mirror_worker){.run = run, .newest = -1};
    RETURN_IF_ERROR(run_mirrors_read(&run->options, index, &worker->mirror));
    worker->has_keep = worker->mirror.keep != NULL;
    if (worker->has_keep)
        RETURN_IF_ERROR(sized_read(&worker->keep, sizeof worker->keep, worker->mirror.keep,
                                   worker->mirror.keep->size_of, "dcp_run_keep"));
    worker->begun_until = deadline_after(worker->mirror.wait_seconds);
    if (pthread_condattr_init(&monotonic) != 0)
        return error_no_memory(0, "a mirror of a run");
    bool good = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&worker->changed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    if (!good)
        return error_no_memory(0, "a mirror of a run");
    if (pthread_mutex_init(&worker->mutex, NULL) != 0) {
        pthread_cond_destroy(&worker->changed);
        return error_no_memory(0, "a mirror of a run");
    }
    worker->made = true;
    return DCP_OK;
}

dcp_status run_mirrors_init(struct run_mirrors *mirrors, dcp_run *run)
{
    size_t count = run->options.mirror_count;
    *mirrors = (struct run_mirrors){.count = 0};
    if (count == 0)
        return DCP_OK;
    mirrors->workers = memory_allocate_zeroed(count, sizeof *mirrors->workers);
    if (!mirrors->workers)
        return error_no_memory(count * sizeof *mirrors->workers, "mirrors of a run");
    for (size_t i = 0; i < count; i++) {
        mirrors->count = i + 1;
        RETURN_IF_ERROR(make_worker(&mirrors->workers[i], run, i));
    }
    return DCP_OK;
}

void run_mirrors_free(struct run_mirrors *mirrors)
{
    run_mirrors_stop(mirrors);
    for (size_t i = 0; i < mirrors->count; i++) {
        struct run_mirror_worker *worker = &mirrors->workers[i];
        if (!worker->made)
            continue;
        pthread_cond_destroy(&worker->changed);
        pthread_mutex_destroy(&worker->mutex);
        memory_release(worker->entries);
    }
    memory_release(mirrors->workers);
    *mirrors = (struct run_mirrors){.count = 0};
}

dcp_status dcp_run_mirror_status_sized(dcp_run *run, size_t index, dcp_run_mirror_state *state,
                                       size_t state_size)
{
    if (!run || !state || index >= run->options.mirror_count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a mirror %zu was asked for, the run has %zu", index,
                             run ? run->options.mirror_count : 0);
    dcp_run_mirror mirror;
    dcp_run_mirror_state ours = {.step = -1};
    RETURN_IF_ERROR(run_mirrors_read(&run->options, index, &mirror));
    ours.path = mirror.path;
    if (index < run->mirrors.count) {
        struct run_mirror_worker *worker = &run->mirrors.workers[index];
        pthread_mutex_lock(&worker->mutex);
        ours.step = worker->newest;
        ours.pending = count_pending(worker, true);
        ours.failures = worker->failures;
        memcpy(ours.why, worker->why, sizeof ours.why);
        pthread_mutex_unlock(&worker->mutex);
    }
    sized_write(state, state_size, &ours, sizeof ours);
    return DCP_OK;
}
