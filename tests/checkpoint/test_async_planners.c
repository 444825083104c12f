/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous saves with planners: they plan on the caller's thread, and what is saved are copies
 * of the state that they are set up with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/async_model.h"
#include "checkpoint/ranks.h"

static int finished;

static dcp_status note_plan(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context, (void)saving, (void)plan;
    finished++;
    return DCP_OK;
}

/* A state of the planner's own, which goes when the call returns, with tensors of its own: those of
 * the caller's, negated; and it sees the stager's copy if there is one. */
struct negating {
    dcp_state *state;
    float shard[ROWS * COLUMNS], replica[COLUMNS];
    const void *seen;
};

static dcp_status negate(void *context, dcp_saving *saving, dcp_state *state,
                         const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    struct negating *negating = context;
    dcp_tensor shard, replica;
    int64_t step = 0;
    (void)storage_meta, (void)is_coordinator;
    dcp_state *model = dcp_state_get(state, "model");
    must(dcp_state_chunk(dcp_state_get(model, "w"), 0, &shard));
    must(dcp_state_chunk(dcp_state_get(model, "bias"), 0, &replica));
    must(dcp_state_as_int(dcp_state_get(state, "step"), &step));
    negating->seen = shard.data;
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        negating->shard[i] = -((const float *)shard.data)[i];
    for (int64_t i = 0; i < COLUMNS; i++)
        negating->replica[i] = -((const float *)replica.data)[i];
    shard.data = negating->shard;
    replica.data = negating->replica;
    negating->state = dcp_state_new();
    dcp_state *negative = dcp_state_dict(negating->state, "model");
    dcp_state_tensor(negative, "w", &shard);
    dcp_state_tensor(negative, "bias", &replica);
    dcp_state_int(negating->state, "step", -step);
    return dcp_default_set_up_planner(saving, negating->state);
}

static void negating_forget(struct negating *negating)
{
    dcp_state_free(negating->state);
    negating->state = NULL;
    memset(negating->shard, 0, sizeof negating->shard);
    memset(negating->replica, 0, sizeof negating->replica);
}

static void negate_model(struct model *model)
{
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        model->shard[i] = -model->shard[i];
    for (int64_t i = 0; i < COLUMNS; i++)
        model->replica[i] = -model->replica[i];
}

static void planners_may_save_another_state(void **state)
{
    static struct negating negating;
    const dcp_save_planner planner = {
        .size_of = sizeof planner, .context = &negating, .set_up_planner = negate};
    for (int staging = DCP_STAGING_BLOCKING; staging <= DCP_STAGING_OVERLAPPED; staging++) {
        dcp_save_chain_options how = {.staging = (dcp_staging_kind)staging};
        dcp_save_options options = {
            .planner = &planner, .progress = wait_while_held, .overwrite = DCP_OVERWRITE_REPLACE};
        struct model model;
        dcp_future *future;
        make_model(&model, 0, 1, 5);
        negate_model(&model);
        must(dcp_save_chain_new(&how, &options.chain));
        hold(true);
        must(begin(&model, -5, path_in(state, "a"), &options, &future));
        assert_ptr_equal(negating.seen, model.shard);
        must(dcp_future_wait_staged(future, WAIT));
        negating_forget(&negating);
        fill(&model, 6);
        hold(false);
        must(dcp_future_wait(future, WAIT));
        must(check(path_in(state, "a"), 5));
        dcp_future_free(future);
        dcp_save_chain_free(options.chain);
        free(model.shard);
    }
}

/* The stager's copy is the state that is saved, so it is what the planner is set up with. */
struct copying {
    struct model copy;
    int released;
};

static dcp_status copy_state(void *context, const dcp_state *state, dcp_state *staged)
{
    struct copying *copying = context;
    struct model *copy = &copying->copy;
    dcp_tensor shard, replica;
    int64_t step = 0;
    dcp_state *model = dcp_state_get(state, "model");
    must(dcp_state_chunk(dcp_state_get(model, "w"), 0, &shard));
    must(dcp_state_chunk(dcp_state_get(model, "bias"), 0, &replica));
    must(dcp_state_as_int(dcp_state_get(state, "step"), &step));
    memcpy(copy->shard, shard.data, sizeof(float) * ROWS * COLUMNS);
    memcpy(copy->replica, replica.data, sizeof copy->replica);
    dcp_state *tree = tree_of(copy, step);
    dcp_state_copy(staged, "model", dcp_state_get(tree, "model"));
    dcp_state_copy(staged, "step", dcp_state_get(tree, "step"));
    dcp_state_free(tree);
    return DCP_OK;
}

static void release_copy(void *context)
{
    ((struct copying *)context)->released++;
}

static void planners_are_set_up_with_what_stagers_made(void **state)
{
    static struct negating negating;
    struct copying own = {0};
    const dcp_save_planner planner = {
        .size_of = sizeof planner, .context = &negating, .set_up_planner = negate};
    const dcp_stager stager = {
        .size_of = sizeof stager, .stage = copy_state, .release = release_copy, .context = &own};
    dcp_save_chain_options how = {.stager = &stager};
    dcp_save_options options = {.planner = &planner, .overwrite = DCP_OVERWRITE_REPLACE};
    struct model model;
    dcp_future *future;
    make_model(&model, 0, 1, 5);
    make_model(&own.copy, 0, 1, 0);
    negate_model(&model);
    must(dcp_save_chain_new(&how, &options.chain));
    must(begin(&model, -5, path_in(state, "a"), &options, &future));
    must(dcp_future_wait(future, WAIT));
    assert_ptr_equal(negating.seen, own.copy.shard);
    must(check(path_in(state, "a"), 5));
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    assert_int_equal(own.released, 1);
    dcp_state_free(negating.state);
    negating.state = NULL;
    free(own.copy.shard);
    free(model.shard);
}

static dcp_status set_up_badly(void *context, dcp_saving *saving, dcp_state *state,
                               const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    (void)state, (void)storage_meta, (void)is_coordinator;
    return context ? dcp_default_set_up_planner(saving, NULL) : DCP_OK;
}

static void planners_that_take_no_state_are_refused(void **state)
{
    dcp_save_planner planner = {.size_of = sizeof planner, .set_up_planner = set_up_badly};
    const dcp_save_options options = {.planner = &planner};
    struct model model;
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must_fail(begin(&model, 1, path_in(state, "b"), &options, &future), DCP_ERR_STATE,
              "has not called dcp_default_set_up_planner()");
    planner.context = &planner;
    must_fail(begin(&model, 1, path_in(state, "b"), &options, &future), DCP_ERR_ARGUMENT,
              "hook set_up_planner: the state to save is NULL");
    free(model.shard);
}

static void planners_see_copies(void **state)
{
    struct model model;
    dcp_save_planner planner = {.size_of = sizeof planner, .finish_plan = note_plan};
    dcp_save_chain_options how = {.staging = DCP_STAGING_OVERLAPPED};
    dcp_save_options options = {.planner = &planner, .progress = wait_while_held};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    hold(true);
    must(begin(&model, 1, path_in(state, "a"), &options, &future));
    must(dcp_future_wait_staged(future, WAIT));
    fill(&model, 2);
    hold(false);
    must(dcp_future_wait(future, WAIT));
    must(check(path_in(state, "a"), 1));
    assert_int_equal(finished, 1);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);

    how.staging_limit = 300000;
    must(dcp_save_chain_new(&how, &options.chain));
    must_fail(begin(&model, 1, path_in(state, "b"), &options, &future), DCP_ERR_UNSUPPORTED,
              "staging_limit is less than");
    dcp_save_chain_free(options.chain);
    how = (dcp_save_chain_options){.retries = 1};
    must(dcp_save_chain_new(&how, &options.chain));
    must_fail(begin(&model, 1, path_in(state, "b"), &options, &future), DCP_ERR_UNSUPPORTED,
              "no retries");
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(planners_see_copies),
        TEST(planners_may_save_another_state),
        TEST(planners_are_set_up_with_what_stagers_made),
        TEST(planners_that_take_no_state_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
