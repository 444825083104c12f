/* SPDX-License-Identifier: BSD-3-Clause */
/* Saving while training goes on: what is saved is what was there when the save began, chains have
 * one save at a time, and failures are told, retried or worked around. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/conductor.h"
#include "checkpoint/ranks.h"
#include "group/collective.h"

enum { ROWS = 512, COLUMNS = 1024, WAIT = 60 };

static float value_of(int64_t row, int64_t column, int64_t step)
{
    return (float)(row * 3 + column * 7 + step * 1000);
}

/* Rows of a matrix that all ranks share, and a replica that each has. */
struct model {
    int64_t first, rows;
    float *shard;
    float replica[COLUMNS];
};

static void fill(struct model *model, int64_t step)
{
    for (int64_t i = 0; i < model->rows; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            model->shard[i * COLUMNS + j] = value_of(model->first + i, j, step);
    for (int64_t j = 0; j < COLUMNS; j++)
        model->replica[j] = value_of(-1, j, step);
}

static void make_model(struct model *model, int rank, int size, int64_t step)
{
    model->first = (int64_t)ROWS * rank / size;
    model->rows = (int64_t)ROWS * (rank + 1) / size - model->first;
    model->shard = malloc((size_t)(model->rows * COLUMNS) * sizeof(float));
    fill(model, step);
}

static dcp_state *tree_of(struct model *model, int64_t step)
{
    dcp_tensor shard = {.dtype = DCP_F32,
                        .ndim = 2,
                        .global_shape = {ROWS, COLUMNS},
                        .sharded = true,
                        .offsets = {model->first, 0},
                        .sizes = {model->rows, COLUMNS},
                        .data = model->shard};
    dcp_tensor replica = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {COLUMNS}, .data = model->replica};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(dcp_state_dict(root, "model"), "w", &shard);
    dcp_state_tensor(dcp_state_get(root, "model"), "bias", &replica);
    dcp_state_int(root, "step", step);
    return root;
}

/* Whether the checkpoint holds what a step had. */
static dcp_status check(const char *path, int64_t step)
{
    struct model all = {.first = 0, .rows = ROWS};
    int64_t found = -1;
    all.shard = calloc((size_t)ROWS * COLUMNS, sizeof(float));
    dcp_state *root = tree_of(&all, 0);
    dcp_status status = dcp_load(root, path, NULL, NULL);
    dcp_state_as_int(dcp_state_get(root, "step"), &found);
    if (status == DCP_OK && found != step)
        status = dcp_error_set(DCP_ERR_INTERNAL, "step %d instead of %d", (int)found, (int)step);
    for (int64_t i = 0; i < ROWS && status == DCP_OK; i++)
        for (int64_t j = 0; j < COLUMNS && status == DCP_OK; j++)
            if (all.shard[i * COLUMNS + j] != value_of(i, j, step) ||
                all.replica[j] != value_of(-1, j, step))
                status = dcp_error_set(DCP_ERR_INTERNAL, "another value at %d, %d", (int)i, (int)j);
    dcp_state_free(root);
    free(all.shard);
    return status;
}

static dcp_status begin(struct model *model, int64_t step, const char *path,
                        const dcp_save_options *options, dcp_future **future)
{
    dcp_state *root = tree_of(model, step);
    dcp_status status = dcp_save_async(root, path, options, future);
    dcp_state_free(root);
    return status;
}

/* ---- one process ---- */

static void the_state_may_change_at_once(void **state)
{
    static const dcp_compression compressions[] = {DCP_COMPRESSION_NONE, DCP_COMPRESSION_ZSTD};
    struct model model;
    make_model(&model, 0, 1, 1);
    for (int c = 0; c < 2; c++) {
        for (uint64_t limit = 0; limit < 2; limit++) {
            dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                        .compression = compressions[c]};
            dcp_save_chain_options how = {.staging_limit = limit * 300000, .staging_threads = 2};
            dcp_future *future;
            must(dcp_save_chain_new(&how, &options.chain));
            assert_true(dcp_save_chain_in_background(options.chain));
            fill(&model, 7);
            dcp_status status = begin(&model, 7, path_in(state, "c"), &options, &future);
            if (status == DCP_ERR_UNSUPPORTED && c == 1) {
                dcp_save_chain_free(options.chain);
                continue;
            }
            must(status);
            must(dcp_future_wait_staged(future, 0));
            fill(&model, 8);
            must(dcp_future_wait(future, WAIT));
            assert_int_equal(dcp_future_poll(future), DCP_FUTURE_DONE);
            assert_string_equal(dcp_future_message(future), "");
            dcp_figures figures = {.size_of = sizeof figures};
            must(dcp_future_figures(future, &figures));
            assert_true(figures.total_seconds > 0);
            assert_int_equal(figures.bytes_wanted > ROWS * COLUMNS * 4, 1);
            uint64_t done, total;
            dcp_future_progress(future, &done, &total);
            assert_true(done == total && total > ROWS * COLUMNS * 4);
            must(check(path_in(state, "c"), 7));
            dcp_future_free(future);
            dcp_save_chain_free(options.chain);
        }
    }
    free(model.shard);
}

static void overlapped_staging_returns_first(void **state)
{
    struct model model;
    dcp_save_chain_options how = {.staging = DCP_STAGING_OVERLAPPED};
    dcp_save_options options = {0};
    dcp_future *future;
    make_model(&model, 0, 1, 3);
    must(dcp_save_chain_new(&how, &options.chain));
    must(dcp_save_chain_reserve(options.chain, (uint64_t)ROWS * COLUMNS * 4 + 100000, NULL));
    must(begin(&model, 3, path_in(state, "c"), &options, &future));
    must(dcp_future_wait_staged(future, -1));
    assert_true(dcp_future_poll(future) >= DCP_FUTURE_WRITING);
    fill(&model, 4);
    must(dcp_future_wait(future, -1));
    must(check(path_in(state, "c"), 3));
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

static void without_a_chain(void **state)
{
    struct model model;
    dcp_future *future;
    make_model(&model, 0, 1, 5);
    must(begin(&model, 5, path_in(state, "c"), NULL, &future));
    fill(&model, 6);
    dcp_future_free(future); /* waits */
    must(check(path_in(state, "c"), 5));
    must_fail(begin(&model, 5, path_in(state, "c"), NULL, &future), DCP_ERR_EXISTS, "");
    assert_null(future);
    free(model.shard);
}

/* ---- a writer that takes its time ---- */

struct slow {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool held;
};

static struct slow slow = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

static void hold(bool held)
{
    pthread_mutex_lock(&slow.mutex);
    slow.held = held;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.mutex);
}

/* A progress function that keeps the writing thread until it is let go. */
static bool wait_while_held(void *context, const dcp_progress *progress)
{
    (void)context;
    pthread_mutex_lock(&slow.mutex);
    while (slow.held && progress->phase == DCP_PHASE_WRITING)
        pthread_cond_wait(&slow.changed, &slow.mutex);
    pthread_mutex_unlock(&slow.mutex);
    return true;
}

static void *let_go_soon(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    hold(false);
    return NULL;
}

static void a_chain_has_one_save_at_a_time(void **state)
{
    struct model model;
    dcp_save_chain_options how = {.when_busy = DCP_BUSY_REFUSE};
    dcp_save_options options = {.progress = wait_while_held};
    dcp_future *first, *second;
    pthread_t thread;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    hold(true);
    must(begin(&model, 1, path_in(state, "a"), &options, &first));
    must_fail(dcp_future_wait(first, 0.02), DCP_ERR_TIMEOUT, "is not over yet");
    must_fail(begin(&model, 2, path_in(state, "b"), &options, &second), DCP_ERR_STATE,
              "is not over");
    hold(false);
    must(dcp_future_wait(first, WAIT));
    must(begin(&model, 1, path_in(state, "b"), &options, &second));
    dcp_future_free(second);
    dcp_future_free(first);
    dcp_save_chain_free(options.chain);

    how.when_busy = DCP_BUSY_WAIT;
    must(dcp_save_chain_new(&how, &options.chain));
    hold(true);
    must(begin(&model, 1, path_in(state, "c"), &options, &first));
    assert_int_equal(pthread_create(&thread, NULL, let_go_soon, NULL), 0);
    fill(&model, 2);
    must(begin(&model, 2, path_in(state, "d"), &options, &second));
    assert_int_equal(dcp_future_poll(first), DCP_FUTURE_DONE);
    pthread_join(thread, NULL);
    dcp_save_chain_free(options.chain); /* waits */
    assert_int_equal(dcp_future_poll(second), DCP_FUTURE_DONE);
    dcp_future_free(first);
    dcp_future_free(second);
    must(check(path_in(state, "c"), 1));
    must(check(path_in(state, "d"), 2));
    free(model.shard);
}

static void a_save_can_be_cancelled(void **state)
{
    struct model model;
    struct stat found;
    dcp_save_options options = {.progress = wait_while_held};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    hold(true);
    must(begin(&model, 1, path_in(state, "a"), &options, &future));
    dcp_future_cancel(future);
    hold(false);
    must_fail(dcp_future_wait(future, WAIT), DCP_ERR_CANCELLED, "cancelled");
    assert_int_equal(dcp_future_poll(future), DCP_FUTURE_FAILED);
    assert_non_null(strstr(dcp_future_message(future), "cancelled"));
    assert_int_not_equal(stat(path_in(state, "a"), &found), 0);
    dcp_future_free(future);
    free(model.shard);
}

/* ---- failures ---- */

/* The system's files, of which creating shard files fails for a while. */
static int failures_left;
static struct file_ops failing_ops;

static int failing_open(void *context, const char *path, unsigned flags, int *descriptor)
{
    if ((flags & FILE_CREATE_NEW) && strstr(path, ".distcp") && failures_left > 0) {
        failures_left--;
        return 5; /* EIO */
    }
    return file_ops_system.open(context, path, flags, descriptor);
}

static dcp_status begin_failing(struct model *model, const char *path, int failures,
                                const dcp_save_options *options, dcp_future **future)
{
    failures_left = failures;
    failing_ops = file_ops_system;
    failing_ops.open = failing_open;
    dcp_state *root = tree_of(model, 1);
    dcp_status status = checkpoint_save_async(&failing_ops, root, path, options, future);
    dcp_state_free(root);
    return status;
}

static void failures_are_told_once(void **state)
{
    struct model model;
    dcp_save_chain_options how = {0};
    dcp_save_options options = {0};
    dcp_future *future, *next;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    must(begin_failing(&model, path_in(state, "a"), 1, &options, &future));
    dcp_future_free(future);
    /* Nobody has heard of it. */
    must_fail(begin(&model, 1, path_in(state, "b"), &options, &next), DCP_ERR_IO, "cannot");
    must(begin(&model, 1, path_in(state, "b"), &options, &next));
    must(dcp_future_wait(next, WAIT));
    dcp_future_free(next);
    must(begin_failing(&model, path_in(state, "c"), 1, &options, &future));
    must_fail(dcp_future_wait(future, WAIT), DCP_ERR_IO, "cannot");
    must(begin(&model, 1, path_in(state, "d"), &options, &next));
    dcp_future_free(next);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);

    how.log_failures = true;
    must(dcp_save_chain_new(&how, &options.chain));
    must(begin_failing(&model, path_in(state, "e"), 1, &options, &future));
    dcp_future_free(future);
    must(begin(&model, 1, path_in(state, "f"), &options, &next));
    dcp_future_free(next);
    dcp_save_chain_free(options.chain);
    must(check(path_in(state, "f"), 1));
    free(model.shard);
}

static void saves_are_tried_again(void **state)
{
    struct model model;
    dcp_save_chain_options how = {.retries = 3, .retry_seconds = 0.001};
    dcp_save_options options = {0};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    must(begin_failing(&model, path_in(state, "a"), 3, &options, &future));
    fill(&model, 2);
    must(dcp_future_wait(future, WAIT));
    must(check(path_in(state, "a"), 1));
    dcp_future_free(future);
    fill(&model, 1);
    must(begin_failing(&model, path_in(state, "b"), 4, &options, &future));
    must_fail(dcp_future_wait(future, WAIT), DCP_ERR_IO, "cannot");
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

static void saves_fall_back(void **state)
{
    struct model model;
    struct stat found;
    dcp_save_chain_options how = {
        .retries = 1, .retry_seconds = 0.001, .fallback_path = path_in(state, "elsewhere")};
    dcp_save_options options = {0};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    must(begin_failing(&model, path_in(state, "step_1"), 2, &options, &future));
    must(dcp_future_wait(future, WAIT));
    assert_int_not_equal(stat(path_in(state, "step_1"), &found), 0);
    must(check(path_in(state, "elsewhere/step_1"), 1));
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

static void changed_tensors_are_named(void **state)
{
    struct model model;
    dcp_save_chain_options how = {
        .staging = DCP_STAGING_OVERLAPPED, .staging_limit = 256 << 10, .detect_changes = true};
    dcp_save_options options = {.progress = wait_while_held};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    hold(true);
    must(begin(&model, 1, path_in(state, "a"), &options, &future));
    must_fail(dcp_future_wait_staged(future, 0.01), DCP_ERR_TIMEOUT, "staged so far");
    assert_int_equal(dcp_future_poll(future), DCP_FUTURE_STAGING);
    model.shard[ROWS * COLUMNS - 1]++;
    hold(false);
    must_fail(dcp_future_wait(future, WAIT), DCP_ERR_STATE,
              "model.w: changed before staging was over");
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

/* ---- stagers of the caller's ---- */

struct stager {
    struct model *model;
    struct model copy;
    int staged, synchronized, released;
    dcp_status fails;
};

static dcp_status stage(void *context, const dcp_state *state, dcp_state *staged)
{
    struct stager *stager = context;
    (void)state;
    stager->staged++;
    if (stager->fails != DCP_OK)
        return dcp_error_set(stager->fails, "no room to stage in");
    stager->copy.first = stager->model->first;
    stager->copy.rows = stager->model->rows;
    dcp_state *tree = tree_of(&stager->copy, 9);
    dcp_state_copy(staged, "model", dcp_state_get(tree, "model"));
    dcp_state_int(staged, "step", 9);
    dcp_state_free(tree);
    return DCP_OK;
}

static dcp_status synchronize(void *context)
{
    struct stager *stager = context;
    stager->synchronized++;
    memcpy(stager->copy.shard, stager->model->shard,
           (size_t)(stager->copy.rows * COLUMNS) * sizeof(float));
    memcpy(stager->copy.replica, stager->model->replica, sizeof stager->copy.replica);
    return DCP_OK;
}

static void release(void *context)
{
    ((struct stager *)context)->released++;
}

static void a_stager_of_ones_own(void **state)
{
    for (int at_once = 0; at_once < 2; at_once++) {
        struct model model;
        struct stager own = {.model = &model};
        dcp_stager stager = {.size_of = sizeof stager,
                             .stage = stage,
                             .synchronize = synchronize,
                             .synchronize_at_once = at_once,
                             .release = release,
                             .context = &own};
        dcp_save_chain_options how = {.stager = &stager};
        dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
        dcp_future *future;
        make_model(&model, 0, 1, 9);
        make_model(&own.copy, 0, 1, 0);
        must(dcp_save_chain_new(&how, &options.chain));
        must(begin(&model, 9, path_in(state, "c"), &options, &future));
        if (at_once)
            assert_int_equal(own.synchronized, 1);
        must(dcp_future_wait_staged(future, WAIT));
        assert_int_equal(own.synchronized, 1);
        fill(&model, 10);
        must(dcp_future_wait(future, WAIT));
        dcp_save_chain_free(options.chain);
        dcp_future_free(future);
        assert_int_equal(own.staged, 1);
        assert_int_equal(own.synchronized, 1);
        assert_int_equal(own.released, 1);
        must(check(path_in(state, "c"), 9));

        own.fails = DCP_ERR_NO_MEMORY;
        must(dcp_save_chain_new(&how, &options.chain));
        must_fail(begin(&model, 9, path_in(state, "d"), &options, &future), DCP_ERR_NO_MEMORY,
                  "no room to stage in");
        dcp_save_chain_free(options.chain);
        free(own.copy.shard);
        free(model.shard);
    }
}

/* ---- ranks ---- */

struct training {
    bool foreground;
    dcp_staging_kind staging;
    bool fails;
    int64_t steps;
};

static dcp_status train(struct rank *self)
{
    const struct training *training = self->context;
    dcp_save_chain_options how = {.group = self->group, .staging = training->staging};
    dcp_save_options options = {.group = self->group, .timeout_seconds = 20};
    struct model model;
    dcp_status status = dcp_save_chain_new(&how, &options.chain);
    if (status != DCP_OK)
        return status;
    make_model(&model, self->rank, self->size, 0);
    for (int64_t step = 0; step < training->steps && status == DCP_OK; step++) {
        char path[512];
        dcp_future *future = NULL;
        snprintf(path, sizeof path, "%s/step_%d", self->path, (int)step);
        fill(&model, step);
        status = begin(&model, step, path, &options, &future);
        if (status == DCP_OK)
            status = dcp_future_wait_staged(future, WAIT);
        fill(&model, 12345);
        if (status == DCP_OK && step % 2 == 0) {
            dcp_future_state found = DCP_FUTURE_STAGING;
            while (training->foreground && found < DCP_FUTURE_DONE)
                found = dcp_future_poll(future);
            status = dcp_future_wait(future, WAIT);
        }
        dcp_future_free(future);
    }
    dcp_save_chain_free(options.chain);
    free(model.shard);
    return status;
}

static void ranks_save_together(void **state)
{
    for (int staging = 0; staging < 3; staging++) {
        for (int size = 1; size <= 4; size++) {
            struct training training = {.staging = (dcp_staging_kind)staging, .steps = 4};
            char path[512];
            snprintf(path, sizeof path, "%s", path_in(state, "run"));
            snprintf(path + strlen(path), 32, "_%d_%d", staging, size);
            ranks_must(size, path, train, &training);
            for (int step = 0; step < training.steps; step++) {
                char step_path[600];
                snprintf(step_path, sizeof step_path, "%s/step_%d", path, step);
                must(check(step_path, step));
            }
        }
    }
}

/* Groups whose ranks have one thread each. */
static dcp_status train_in_foreground(struct rank *self)
{
    self->group->operations.duplicate = NULL;
    return train(self);
}

static void commits_wait_for_the_caller_without_threads(void **state)
{
    for (int size = 2; size <= 4; size++) {
        struct training training = {.foreground = true, .steps = 4};
        char path[512];
        snprintf(path, sizeof path, "%s_%d", path_in(state, "run"), size);
        ranks_must(size, path, train_in_foreground, &training);
        for (int step = 0; step < training.steps; step++) {
            char step_path[600];
            snprintf(step_path, sizeof step_path, "%s/step_%d", path, step);
            must(check(step_path, step));
        }
    }
}

/* ---- the end of the program ---- */

static void the_end_of_the_program_waits(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* a program that ends without freeing its future leaks a thread, and that is the point
             */
#endif
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct model model;
        dcp_future *future;
        make_model(&model, 0, 1, 6);
        if (begin(&model, 6, path_in(state, "c"), NULL, &future) != DCP_OK)
            _exit(1);
        exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    must(check(path_in(state, "c"), 6));
}

static void arguments_are_checked(void **state)
{
    dcp_save_chain *chain;
    dcp_future *future;
    dcp_state *root = dcp_state_new();
    dcp_stager stager = {.size_of = sizeof stager};
#define REFUSED(text, ...)                                                                         \
    must_fail(dcp_save_chain_new(&(dcp_save_chain_options){__VA_ARGS__}, &chain),                  \
              DCP_ERR_ARGUMENT, text)
    REFUSED("staging is 7", .staging = (dcp_staging_kind)7);
    REFUSED("staging_limit is 5", .staging_limit = 5);
    REFUSED("staging_threads", .staging_threads = -1);
    REFUSED("when_busy", .when_busy = (dcp_when_busy)9);
    REFUSED("retries is -1", .retries = -1);
    REFUSED("needs the whole copy", .retries = 1, .staging_limit = 1 << 20);
    REFUSED("exit_seconds", .exit_seconds = -1);
    REFUSED("lacks stage", .stager = &stager);
    must_fail(dcp_save_chain_new(NULL, NULL), DCP_ERR_ARGUMENT, "chain is NULL");
    must_fail(dcp_save_async(root, path_in(state, "c"), NULL, NULL), DCP_ERR_ARGUMENT,
              "future is NULL");
    must_fail(dcp_save_async(NULL, path_in(state, "c"), NULL, &future), DCP_ERR_ARGUMENT, "NULL");
    must_fail(dcp_save_async(root, "", NULL, &future), DCP_ERR_ARGUMENT, "no path");
    must_fail(dcp_future_wait(NULL, 0), DCP_ERR_ARGUMENT, "NULL");
    dcp_future_free(NULL);
    dcp_save_chain_free(NULL);
    must(dcp_save_async(root, path_in(state, "empty"), NULL, &future));
    must(dcp_future_wait(future, WAIT));
    dcp_future_free(future);
    dcp_state_free(root);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_state_may_change_at_once),
        TEST(overlapped_staging_returns_first),
        TEST(without_a_chain),
        TEST(a_chain_has_one_save_at_a_time),
        TEST(a_save_can_be_cancelled),
        TEST(failures_are_told_once),
        TEST(saves_are_tried_again),
        TEST(saves_fall_back),
        TEST(changed_tensors_are_named),
        TEST(a_stager_of_ones_own),
        TEST(ranks_save_together),
        TEST(commits_wait_for_the_caller_without_threads),
        TEST(the_end_of_the_program_waits),
        TEST(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
