/* SPDX-License-Identifier: BSD-3-Clause */
/* Saving while training goes on: what is saved is what was there when the save began, and chains
 * have one save at a time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/async_model.h"
#include "checkpoint/ranks.h"
#include "group/collective.h"

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

/* ---- one at a time ---- */

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
              "has not ended");
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

/* What does not end keeps no other save waiting for ever, and is as good as before. */
static void waiting_for_the_save_before_has_a_deadline(void **state)
{
    struct model model;
    dcp_save_chain_options how = {.timeout_seconds = 0.1};
    dcp_save_options options = {.progress = wait_while_held};
    dcp_future *first, *second;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    hold(true);
    must(begin(&model, 1, path_in(state, "a"), &options, &first));
    must_fail(begin(&model, 2, path_in(state, "b"), &options, &second), DCP_ERR_TIMEOUT,
              "the previous save");
    assert_null(second);
    hold(false);
    must(dcp_future_wait(first, WAIT));
    fill(&model, 2);
    must(begin(&model, 2, path_in(state, "b"), &options, &second));
    dcp_future_free(first);
    dcp_future_free(second);
    dcp_save_chain_free(options.chain);
    must(check(path_in(state, "a"), 1));
    must(check(path_in(state, "b"), 2));
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
    dcp_state_copy(staged, "model", dcp_state_find(tree, "model"));
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

/* ---- what else a save can have ---- */

static int64_t counter;

static dcp_status give_counter(void *context, dcp_state *into)
{
    dcp_tensor tensor = {.dtype = DCP_I64, .data = context};
    dcp_state_int(into, "plain", counter);
    dcp_state_tensor(into, "tensor", &tensor);
    return dcp_state_status(into);
}

static void stateful_entries_are_asked_once(void **state)
{
    dcp_stateful stateful = {.state_dict = give_counter, .context = &counter};
    dcp_state *root = dcp_state_new();
    dcp_future *future;
    int64_t plain = 0, tensor_value = 0;
    counter = 41;
    must(dcp_state_stateful(root, "counter", &stateful));
    must(dcp_save_async(root, path_in(state, "c"), NULL, &future));
    dcp_state_free(root);
    counter = 42;
    must(dcp_future_wait(future, WAIT));
    dcp_future_free(future);
    root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_I64, .data = &tensor_value};
    dcp_state *dict = dcp_state_dict(root, "counter");
    dcp_state_none(dict, "plain");
    dcp_state_tensor(dict, "tensor", &tensor);
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    must(dcp_state_as_int(dcp_state_find(dict, "plain"), &plain));
    assert_int_equal(plain, 41);
    assert_int_equal(tensor_value, 41);
    dcp_state_free(root);
}

static dcp_status train_with_cache(struct rank *self)
{
    dcp_save_chain_options how = {.group = self->group, .staging = DCP_STAGING_OVERLAPPED};
    dcp_save_options options = {0};
    struct model model;
    dcp_status status = dcp_save_chain_new(&how, &options.chain);
    if (status == DCP_OK)
        status = dcp_save_plan_cache_new(&options.plan_cache);
    make_model(&model, self->rank, self->size, 0);
    for (int64_t step = 0; step < 3 && status == DCP_OK; step++) {
        char path[512];
        dcp_future *future = NULL;
        dcp_figures figures = {.size_of = sizeof figures};
        snprintf(path, sizeof path, "%s/step_%d", self->path, (int)step);
        fill(&model, step);
        status = begin(&model, step, path, &options, &future);
        if (status == DCP_OK)
            status = dcp_future_wait_staged(future, WAIT);
        fill(&model, 999);
        if (status == DCP_OK)
            status = dcp_future_wait(future, WAIT);
        if (status == DCP_OK)
            status = dcp_future_figures(future, &figures);
        if (status == DCP_OK && figures.plan_reused != (step > 0))
            status = dcp_error_set(DCP_ERR_INTERNAL, "step %d: the plan was %s", (int)step,
                                   figures.plan_reused ? "reused" : "made");
        dcp_future_free(future);
    }
    dcp_save_chain_free(options.chain);
    dcp_save_plan_cache_free(options.plan_cache);
    free(model.shard);
    return status;
}

static void plans_are_reused(void **state)
{
    for (int size = 1; size <= 3; size++) {
        char path[512];
        snprintf(path, sizeof path, "%s_%d", path_in(state, "run"), size);
        ranks_must(size, path, train_with_cache, NULL);
        for (int step = 0; step < 3; step++) {
            char step_path[600];
            snprintf(step_path, sizeof step_path, "%s/step_%d", path, step);
            must(check(step_path, step));
        }
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
    needs_files();
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

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_state_may_change_at_once),
        TEST(overlapped_staging_returns_first),
        TEST(without_a_chain),
        TEST(a_chain_has_one_save_at_a_time),
        TEST(waiting_for_the_save_before_has_a_deadline),
        TEST(a_stager_of_ones_own),
        TEST(stateful_entries_are_asked_once),
        TEST(plans_are_reused),
        TEST(ranks_save_together),
        TEST(commits_wait_for_the_caller_without_threads),
        TEST(the_end_of_the_program_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
