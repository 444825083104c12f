/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that stops around the commit: what the others are told is what has happened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "group/collective.h"

enum { RANKS = 3 };

/* Operations get the group's context alone. */
static dcp_group_operations real;
static const char *stopping_phase;
static int stopping_rank;
static dcp_status stopping_status;

static dcp_status stop(void *context, const dcp_collective *call, const void *send, size_t bytes,
                       void *receive)
{
    if (strstr(call->phase, stopping_phase))
        return dcp_error_set(stopping_status, "this rank has stopped");
    return real.all_gather(context, call, send, bytes, receive);
}

static dcp_status save(struct rank *self, int value, const dcp_save_options *given)
{
    dcp_save_options options = *given;
    dcp_state *root = dcp_state_new();
    options.group = self->group;
    dcp_state_int(root, "value", value);
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    return status;
}

static dcp_status save_and_stop(struct rank *self)
{
    const dcp_save_options first = {.timeout_seconds = 30, .skip_sync = true};
    const dcp_save_options second = {
        .timeout_seconds = 0.5, .overwrite = DCP_OVERWRITE_REPLACE, .skip_sync = true};
    must(save(self, 1, &first));
    if (self->rank == stopping_rank) {
        real = self->group->operations;
        self->group->operations.all_gather = stop;
    }
    return save(self, 2, &second);
}

static int64_t stored_value(const char *path)
{
    int64_t value = 0;
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "value", 0);
    must(dcp_load(root, path, NULL, NULL));
    must(dcp_state_as_int(dcp_state_find(root, "value"), &value));
    dcp_state_free(root);
    return value;
}

static void a_commit_without_an_answer_is_no_failure(void **state)
{
    struct rank ranks[RANKS_MAX];
    const char *path = path_in(state, "c");
    stopping_phase = "waiting for the commit";
    stopping_rank = 1;
    stopping_status = DCP_ERR_GROUP;
    ranks_run(ranks, RANKS, path, save_and_stop, NULL);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(ranks[rank].status, DCP_ERR_UNCONFIRMED);
    assert_non_null(strstr(ranks[0].message, "the checkpoint is committed, but not all ranks"));
    assert_non_null(
        strstr(ranks[2].message, "the checkpoint may be committed, but rank 2 could not find out"));
    assert_int_equal(stored_value(path), 2);
}

/* Whatever its group reports. */
static void a_coordinator_that_stops_knows_that_it_has_committed(void **state)
{
    struct rank ranks[RANKS_MAX];
    const char *path = path_in(state, "c");
    stopping_phase = "waiting for the commit";
    stopping_rank = 0;
    stopping_status = DCP_ERR_DEVICE;
    ranks_run(ranks, RANKS, path, save_and_stop, NULL);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(ranks[rank].status, DCP_ERR_UNCONFIRMED);
    assert_int_equal(stored_value(path), 2);
}

static void a_rank_that_stops_before_leaves_the_earlier_one(void **state)
{
    struct rank ranks[RANKS_MAX];
    const char *path = path_in(state, "c");
    stopping_phase = "waiting for all ranks to write";
    stopping_rank = 1;
    stopping_status = DCP_ERR_GROUP;
    ranks_run(ranks, RANKS, path, save_and_stop, NULL);
    for (int rank = 0; rank < RANKS; rank++)
        assert_true(ranks[rank].status == DCP_ERR_TIMEOUT || ranks[rank].status == DCP_ERR_GROUP);
    assert_int_equal(stored_value(path), 1);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(a_commit_without_an_answer_is_no_failure),
        directory_test(a_coordinator_that_stops_knows_that_it_has_committed),
        directory_test(a_rank_that_stops_before_leaves_the_earlier_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
