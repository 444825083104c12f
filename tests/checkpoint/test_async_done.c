/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that are called when an asynchronous save has ended. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "checkpoint/async_model.h"
#include "checkpoint/ranks.h"
#include "group/collective.h"

/* What a function was called with. */
struct call {
    dcp_future *future;
    bool frees;
    bool waits;
    int *order; /* of several functions; NULL: not asked */
    int position;
    dcp_status status, waited;
    char message[1024];
    pthread_t thread;
    atomic_int count;
};

static void note(void *context, dcp_status status, const char *message)
{
    struct call *call = context;
    call->status = status;
    snprintf(call->message, sizeof call->message, "%s", message);
    call->thread = pthread_self();
    if (call->order)
        call->position = (*call->order)++;
    if (call->waits)
        call->waited = dcp_future_wait(call->future, -1);
    if (call->frees)
        dcp_future_free(call->future);
    atomic_fetch_add(&call->count, 1);
}

static void await(struct call *call)
{
    while (atomic_load(&call->count) == 0)
        clock_sleep_ns(1000000);
}

static void each_is_called_once_in_order(void **state)
{
    struct model model;
    dcp_save_options options = {.progress = wait_while_held};
    dcp_future *future;
    int order = 0;
    struct call first = {.order = &order}, second = {.order = &order}, late = {.order = &order};
    make_model(&model, 0, 1, 1);
    hold(true);
    must(begin(&model, 1, path_in(state, "a"), &options, &future));
    first.future = future;
    first.waits = true;
    must(dcp_future_on_done(future, note, &first));
    must(dcp_future_on_done(future, note, &second));
    assert_int_equal(first.count, 0);
    hold(false);
    must(dcp_future_wait(future, WAIT));
    await(&second);
    must(dcp_future_on_done(future, note, &late));
    assert_int_equal(late.count, 1);
    assert_true(pthread_equal(late.thread, pthread_self()));
    dcp_future_free(future);
    assert_int_equal(first.count, 1);
    assert_int_equal(second.count, 1);
    assert_int_equal(first.position, 0);
    assert_int_equal(second.position, 1);
    assert_int_equal(late.position, 2);
    assert_false(pthread_equal(first.thread, pthread_self()));
    assert_int_equal(first.status, DCP_OK);
    assert_int_equal(first.waited, DCP_OK);
    assert_string_equal(first.message, "");
    must(check(path_in(state, "a"), 1));
    free(model.shard);
}

static void a_failure_comes_with_its_message(void **state)
{
    struct model model;
    dcp_save_options options = {.progress = wait_while_held};
    dcp_future *future, *next;
    struct call call = {0}, late = {0};
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(NULL, &options.chain));
    hold(true);
    must(begin(&model, 1, path_in(state, "a"), &options, &future));
    must(dcp_future_on_done(future, note, &call));
    dcp_future_cancel(future);
    hold(false);
    await(&call);
    assert_int_equal(call.status, DCP_ERR_CANCELLED);
    assert_non_null(strstr(call.message, "cancelled by dcp_future_cancel()"));
    must(dcp_future_on_done(future, note, &late));
    assert_int_equal(late.status, DCP_ERR_CANCELLED);
    assert_string_equal(late.message, call.message);
    /* It was noticed, so the next save does not return it. */
    must(begin(&model, 1, path_in(state, "b"), &options, &next));
    must(dcp_future_wait(next, WAIT));
    dcp_future_free(next);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

/* With a chain, which holds the future as well, and without one. */
static void the_future_may_be_freed_in_it(void **state)
{
    for (int chained = 0; chained < 2; chained++) {
        struct model model;
        dcp_save_options options = {.progress = wait_while_held,
                                    .overwrite = DCP_OVERWRITE_REPLACE};
        struct call call = {.frees = true, .waits = true}, late = {.frees = true};
        make_model(&model, 0, 1, 1);
        if (chained)
            must(dcp_save_chain_new(NULL, &options.chain));
        hold(true);
        must(begin(&model, 1, path_in(state, "a"), &options, &call.future));
        must(dcp_future_on_done(call.future, note, &call));
        hold(false);
        await(&call);
        assert_int_equal(call.status, DCP_OK);
        must(check(path_in(state, "a"), 1));
        must(begin(&model, 1, path_in(state, "a"), &options, &late.future));
        must(dcp_future_wait(late.future, WAIT));
        must(dcp_future_on_done(late.future, note, &late));
        assert_int_equal(late.count, 1);
        dcp_save_chain_free(options.chain);
        free(model.shard);
    }
}

static void the_future_may_be_freed_before_it(void **state)
{
    struct model model;
    struct call call = {0};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must(begin(&model, 1, path_in(state, "a"), NULL, &future));
    must(dcp_future_on_done(future, note, &call));
    dcp_future_free(future); /* waits */
    assert_int_equal(call.count, 1);
    assert_int_equal(call.status, DCP_OK);
    free(model.shard);
}

/* Whether it is added before the save ends or after that, it is called once. */
static void it_may_be_added_while_the_save_ends(void **state)
{
    for (int i = 0; i < 30; i++) {
        dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .skip_sync = true};
        struct call calls[20] = {0};
        dcp_future *future;
        dcp_state *root = dcp_state_new();
        dcp_state_int(root, "step", i);
        must(dcp_save_async(root, path_in(state, "a"), &options, &future));
        dcp_state_free(root);
        for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
            must(dcp_future_on_done(future, note, &calls[c]));
            clock_sleep_ns(20000);
        }
        dcp_future_free(future);
        for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
            assert_int_equal(calls[c].count, 1);
            assert_int_equal(calls[c].status, DCP_OK);
        }
    }
}

/* ---- groups whose ranks have one thread each ---- */

enum ending { BY_WAIT, BY_POLL, BY_FREE, BY_CHAIN };

static dcp_status end_in_foreground(struct rank *self)
{
    enum ending ending = *(enum ending *)self->context;
    dcp_save_options options = {.group = self->group, .timeout_seconds = 20};
    struct call call = {.frees = ending == BY_WAIT || ending == BY_POLL};
    struct model model;
    self->group->operations.duplicate = NULL;
    dcp_save_chain_options how = {.group = self->group};
    dcp_status status = dcp_save_chain_new(&how, &options.chain);
    make_model(&model, self->rank, self->size, 1);
    if (status == DCP_OK)
        status = begin(&model, 1, self->path, &options, &call.future);
    if (status == DCP_OK) {
        dcp_future *future = call.future;
        status = dcp_future_on_done(future, note, &call);
        if (ending == BY_WAIT)
            status = dcp_future_wait(future, -1);
        while (ending == BY_POLL && call.count == 0)
            dcp_future_poll(future);
        if (ending == BY_FREE)
            dcp_future_free(future);
    }
    dcp_save_chain_free(options.chain);
    if (ending == BY_CHAIN)
        dcp_future_free(call.future);
    if (status == DCP_OK && (call.count != 1 || !pthread_equal(call.thread, pthread_self())))
        status = dcp_error_set(DCP_ERR_INTERNAL, "called %d times", (int)call.count);
    free(model.shard);
    return status == DCP_OK ? call.status : status;
}

static void without_threads_the_call_that_commits_calls_it(void **state)
{
    static const char *const names[] = {"wait", "poll", "free", "chain"};
    for (enum ending ending = BY_WAIT; ending <= BY_CHAIN; ending++) {
        ranks_must(3, path_in(state, names[ending]), end_in_foreground, &ending);
        must(check(path_in(state, names[ending]), 1));
    }
}

static void nonsense_is_refused(void **state)
{
    struct model model;
    struct call call = {0};
    dcp_future *future;
    must_fail(dcp_future_on_done(NULL, note, &call), DCP_ERR_ARGUMENT, "future is NULL");
    make_model(&model, 0, 1, 1);
    must(begin(&model, 1, path_in(state, "a"), NULL, &future));
    must_fail(dcp_future_on_done(future, NULL, &call), DCP_ERR_ARGUMENT, "function is NULL");
    dcp_future_free(future);
    assert_int_equal(call.count, 0);
    free(model.shard);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_is_called_once_in_order),
        TEST(a_failure_comes_with_its_message),
        TEST(the_future_may_be_freed_in_it),
        TEST(the_future_may_be_freed_before_it),
        TEST(it_may_be_added_while_the_save_ends),
        TEST(without_threads_the_call_that_commits_calls_it),
        TEST(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
