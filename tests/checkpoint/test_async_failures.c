/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous saves that fail: told once, tried again, put elsewhere, cancelled, refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "checkpoint/async_model.h"
#include "checkpoint/ranks.h"
#include "fault/over_files.h"

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
    must_fail(dcp_future_wait(future, WAIT), DCP_ERR_CANCELLED, "cancelled by dcp_future_cancel()");
    assert_int_equal(dcp_future_poll(future), DCP_FUTURE_FAILED);
    assert_non_null(strstr(dcp_future_message(future), "cancelled"));
    assert_int_not_equal(stat(path_in(state, "a"), &found), 0);
    dcp_future_free(future);
    free(model.shard);
}

/* The system's files, of which creating shard files fails for a while. */
static atomic_int failures_left;
static int failure_number = EIO;
static struct file_ops failing_ops;

static int failing_open(void *context, int within, const char *path, unsigned flags,
                        int *descriptor)
{
    if ((flags & FILE_CREATE_NEW) && strstr(path, ".distcp") && failures_left > 0) {
        failures_left--;
        return failure_number;
    }
    return file_ops_system.open(context, within, path, flags, descriptor);
}

static dcp_status begin_failing(struct model *model, const char *path, int failures,
                                const dcp_save_options *options, dcp_future **future)
{
    failures_left = failures;
    failing_ops = file_ops_system;
    failing_ops.open = failing_open;
    dcp_state *root = tree_of(model, 1);
    dcp_status status = save_async_over(&failing_ops, root, path, options, future);
    dcp_state_free(root);
    return status;
}

static void failures_are_reported_once(void **state)
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

/* Rank 0 asks how the first save ended, the others do not: the next one has one answer for all. */
static dcp_status hear_apart(struct rank *self)
{
    dcp_save_chain_options how = {.group = self->group};
    dcp_save_options options = {.timeout_seconds = 20};
    struct model model;
    dcp_future *future = NULL, *next = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", self->path, "second");
    dcp_status status = dcp_save_chain_new(&how, &options.chain);
    make_model(&model, self->rank, self->size, 1);
    if (status == DCP_OK) {
        dcp_state *root = tree_of(&model, 1);
        status = save_async_over(&failing_ops, root, self->path, &options, &future);
        dcp_state_free(root);
    }
    if (status == DCP_OK && self->rank == 0)
        dcp_future_wait(future, WAIT);
    dcp_future_free(future);
    if (status == DCP_OK)
        status = begin(&model, 1, path, &options, &next);
    dcp_future_free(next);
    dcp_save_chain_free(options.chain);
    free(model.shard);
    return status;
}

static void ranks_that_know_more_than_others_agree(void **state)
{
    struct rank ranks[RANKS_MAX];
    failures_left = 1000;
    failing_ops = file_ops_system;
    failing_ops.open = failing_open;
    ranks_run(ranks, 3, path_in(state, "c"), hear_apart, NULL);
    failures_left = 0;
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(ranks[rank].status, DCP_ERR_IO);
        assert_string_equal(ranks[rank].message, ranks[0].message);
    }
}

struct room {
    int rank, asked;
};

/* Twice, and on rank 1 alone. */
static bool make_room(void *context)
{
    struct room *room = context;
    return ++room->asked <= 2 && room->rank == 1;
}

static void saves_are_tried_again(void **state)
{
    needs_files();
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

/* Rank 1 has what others wait for, some rank's files do not fit, and each asks once. */
static dcp_status make_room_on_rank_1(struct rank *self)
{
    struct room room = {.rank = self->rank, .asked = 0};
    dcp_save_chain_options how = {
        .group = self->group, .make_room = make_room, .make_room_context = &room};
    dcp_save_options options = {.timeout_seconds = 20};
    struct model model;
    dcp_future *future = NULL;
    dcp_status status = dcp_save_chain_new(&how, &options.chain);
    make_model(&model, self->rank, self->size, 1);
    if (status == DCP_OK) {
        dcp_state *root = tree_of(&model, 1);
        status = save_async_over(&failing_ops, root, self->path, &options, &future);
        dcp_state_free(root);
    }
    fill(&model, 2);
    if (status == DCP_OK)
        status = dcp_future_wait(future, WAIT);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
    if (room.asked != *(int *)self->context)
        return dcp_error_set(DCP_ERR_STATE, "asked %d times", room.asked);
    return status;
}

static void what_has_no_room_is_tried_again_when_some_is_made(void **state)
{
    needs_files();
    struct rank ranks[RANKS_MAX];
    int asked = 1;
    failing_ops = file_ops_system;
    failing_ops.open = failing_open;
    failure_number = ENOSPC;
    failures_left = 1;
    ranks_must(3, path_in(state, "a"), make_room_on_rank_1, &asked);
    must(check(path_in(state, "a"), 1));

    /* No rank has any more: the failure stays. */
    failures_left = 1000;
    asked = 3;
    ranks_run(ranks, 3, path_in(state, "b"), make_room_on_rank_1, &asked);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(ranks[rank].status, DCP_ERR_NO_SPACE);
        assert_string_equal(ranks[rank].message, ranks[0].message);
    }

    /* Other failures are no matter of room. */
    failure_number = EIO;
    failures_left = 1;
    asked = 0;
    ranks_run(ranks, 3, path_in(state, "c"), make_room_on_rank_1, &asked);
    assert_int_equal(ranks[0].status, DCP_ERR_IO);
    failures_left = 0;
}

static void saves_fall_back(void **state)
{
    needs_files();
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
    must_fail(dcp_future_wait_staged(future, 0.01), DCP_ERR_TIMEOUT, "pieces are staged");
    assert_int_equal(dcp_future_poll(future), DCP_FUTURE_STAGING);
    model.shard[ROWS * COLUMNS - 1]++;
    hold(false);
    must_fail(dcp_future_wait(future, WAIT), DCP_ERR_STATE,
              "model.w: changed before it was staged");
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
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
    REFUSED("need the whole copy", .retries = 1, .staging_limit = 1 << 20);
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
        TEST(a_save_can_be_cancelled),
        TEST(failures_are_reported_once),
        TEST(ranks_that_know_more_than_others_agree),
        TEST(saves_are_tried_again),
        TEST(what_has_no_room_is_tried_again_when_some_is_made),
        TEST(saves_fall_back),
        TEST(changed_tensors_are_named),
        TEST(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
