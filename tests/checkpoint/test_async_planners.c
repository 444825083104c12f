/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous saves with planners: they plan on the caller's thread, and what is saved are copies
 * of the state that they are set up with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/async_model.h"
#include "checkpoint/ranks.h"

static int finished;

static dcp_status note_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
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
    dcp_state *model = dcp_state_find(state, "model");
    must(dcp_state_chunk(dcp_state_find(model, "w"), 0, &shard));
    must(dcp_state_chunk(dcp_state_find(model, "bias"), 0, &replica));
    must(dcp_state_as_int(dcp_state_find(state, "step"), &step));
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
    return dcp_save_default_set_up_planner(saving, negating->state);
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
    dcp_state *model = dcp_state_find(state, "model");
    must(dcp_state_chunk(dcp_state_find(model, "w"), 0, &shard));
    must(dcp_state_chunk(dcp_state_find(model, "bias"), 0, &replica));
    must(dcp_state_as_int(dcp_state_find(state, "step"), &step));
    memcpy(copy->shard, shard.data, sizeof(float) * ROWS * COLUMNS);
    memcpy(copy->replica, replica.data, sizeof copy->replica);
    dcp_state *tree = tree_of(copy, step);
    dcp_state_copy(staged, "model", dcp_state_find(tree, "model"));
    dcp_state_copy(staged, "step", dcp_state_find(tree, "step"));
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
    return context ? dcp_save_default_set_up_planner(saving, NULL) : DCP_OK;
}

static void planners_that_take_no_state_are_refused(void **state)
{
    dcp_save_planner planner = {.size_of = sizeof planner, .set_up_planner = set_up_badly};
    const dcp_save_options options = {.planner = &planner};
    struct model model;
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must_fail(begin(&model, 1, path_in(state, "b"), &options, &future), DCP_ERR_STATE,
              "has not called dcp_save_default_set_up_planner()");
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
    free(model.shard);
}

/* ---- other attempts ---- */

/* Counts calls, and fails to write, for some time or in one place. */
struct attempts {
    int set_up, planned, planned_for_all, reset, abandoned;
    int failures; /* still to come */
    const char *bad_name;
    char id[1100];
};

static dcp_status count_set_up(void *context, dcp_saving *saving, dcp_state *state,
                               const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    (void)storage_meta, (void)is_coordinator;
    ((struct attempts *)context)->set_up++;
    return dcp_save_default_set_up_planner(saving, state);
}

static dcp_status count_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    ((struct attempts *)context)->planned++;
    return dcp_save_default_create_local_plan(saving, plan);
}

static dcp_status count_global(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                               int count)
{
    ((struct attempts *)context)->planned_for_all++;
    return dcp_save_default_create_global_plan(saving, plans, count);
}

static dcp_status count_reset(void *context, const char *id)
{
    struct attempts *attempts = context;
    attempts->reset++;
    snprintf(attempts->id, sizeof attempts->id, "%s", id);
    return DCP_OK;
}

static dcp_status write_or_fail(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    struct attempts *attempts = context;
    (void)plan;
    dcp_status status = dcp_save_default_write_data(saving);
    if (status != DCP_OK)
        return status;
    bool bad = attempts->bad_name && strstr(attempts->id, attempts->bad_name);
    if (!bad && attempts->failures == 0)
        return DCP_OK;
    attempts->failures -= attempts->failures > 0;
    return dcp_error_set(DCP_ERR_IO, "the place is gone");
}

static void count_abandoned(void *context, dcp_saving *saving)
{
    (void)saving;
    ((struct attempts *)context)->abandoned++;
}

static void attempt(void **state, struct attempts *attempts, const dcp_save_chain_options *how,
                    const char *name, const char *expected)
{
    const dcp_save_planner planner = {.size_of = sizeof planner,
                                      .context = attempts,
                                      .set_up_planner = count_set_up,
                                      .create_local_plan = count_plan,
                                      .create_global_plan = count_global};
    const dcp_storage_writer writer = {.size_of = sizeof writer,
                                       .context = attempts,
                                       .reset = count_reset,
                                       .write_data = write_or_fail,
                                       .abandon = count_abandoned};
    dcp_save_options options = {.planner = &planner, .storage_writer = &writer};
    struct model model;
    struct stat found;
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(how, &options.chain));
    must(begin(&model, 1, path_in(state, name), &options, &future));
    fill(&model, 2);
    must(dcp_future_wait(future, WAIT));
    must(check(path_in(state, expected), 1));
    if (strcmp(name, expected) != 0)
        assert_int_not_equal(stat(path_in(state, name), &found), 0);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

/* A checkpoint of one tuple, of one tensor. */
static void save_tuple(const char *path, float *elements)
{
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {4}, .data = elements};
    dcp_state_tensor(dcp_state_tuple(root, "t"), NULL, &tensor);
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
}

static dcp_state *load_tuple(const char *path)
{
    dcp_state *root = dcp_state_new();
    dcp_state_tuple(root, "t");
    must(dcp_load(root, path, NULL, NULL));
    return root;
}

/* Another attempt encodes objects again: with tensors of the caller's memory, and some that a load
 * has made and that share theirs. */
static void tensors_inside_of_objects_are_copied(void **state)
{
    const dcp_save_chain_options how = {.retries = 1, .retry_seconds = 0.001};
    struct attempts attempts = {.failures = 1};
    const dcp_storage_writer writer = {
        .size_of = sizeof writer, .context = &attempts, .write_data = write_or_fail};
    dcp_save_options options = {.storage_writer = &writer, .progress = wait_while_held};
    float elements[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {4}, .data = elements};
    dcp_tensor found[3];
    dcp_future *future;
    save_tuple(path_in(state, "first"), elements + 4);
    dcp_state *loaded = load_tuple(path_in(state, "first")), *root = dcp_state_new();
    const dcp_state *inner = dcp_state_at(dcp_state_find(loaded, "t"), 0);
    dcp_state *tuple = dcp_state_tuple(root, "t");
    tensor.strided = true;
    tensor.strides[0] = 2;
    dcp_state_tensor(tuple, NULL, &tensor);
    dcp_state_copy(tuple, NULL, inner);
    dcp_state_copy(tuple, NULL, inner);
    must(dcp_state_chunk(inner, 0, &found[0]));

    must(dcp_save_chain_new(&how, &options.chain));
    hold(true);
    must(dcp_save_async(root, path_in(state, "second"), &options, &future));
    dcp_state_free(root);
    must(dcp_future_wait_staged(future, WAIT));
    memset(elements, 0, sizeof elements);
    memset(found[0].data, 0, 4 * sizeof *elements);
    dcp_state_free(loaded);
    hold(false);
    must(dcp_future_wait(future, WAIT));
    assert_int_equal(attempts.failures, 0);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);

    root = load_tuple(path_in(state, "second"));
    for (size_t i = 0; i < 3; i++)
        must(dcp_state_chunk(dcp_state_at(dcp_state_find(root, "t"), i), 0, &found[i]));
    assert_memory_equal(found[0].data, ((float[]){1, 3, 5, 7}), 4 * sizeof *elements);
    assert_memory_equal(found[1].data, ((float[]){5, 6, 7, 8}), 4 * sizeof *elements);
    assert_ptr_equal(found[2].data, found[1].data);
    assert_ptr_not_equal(found[0].data, found[1].data);
    dcp_state_free(root);
}

static void saves_with_hooks_are_tried_again(void **state)
{
    const dcp_save_chain_options how = {.retries = 2, .retry_seconds = 0.001};
    struct attempts attempts = {.failures = 2};
    attempt(state, &attempts, &how, "again", "again");
    assert_int_equal(attempts.set_up, 1);
    assert_int_equal(attempts.planned, 3);
    assert_int_equal(attempts.planned_for_all, 3);
    assert_int_equal(attempts.reset, 3);
    assert_int_equal(attempts.abandoned, 2);
}

static void saves_with_hooks_fall_back(void **state)
{
    const dcp_save_chain_options how = {.fallback_path = path_in(state, "elsewhere")};
    struct attempts attempts = {.bad_name = "unlucky/"};
    assert_int_equal(mkdir(path_in(state, "unlucky"), 0777), 0);
    attempt(state, &attempts, &how, "unlucky/step_1", "elsewhere/step_1");
    assert_int_equal(attempts.set_up, 1);
    assert_int_equal(attempts.reset, 2);
    assert_string_equal(attempts.id, path_in(state, "elsewhere/step_1"));
}

static void saves_with_hooks_fall_back_without_a_place(void **state)
{
    needs_files();
    const dcp_save_chain_options how = {.fallback_path = path_in(state, "elsewhere")};
    struct attempts attempts = {0};
    FILE *file = fopen(path_in(state, "file"), "w");
    assert_non_null(file);
    fclose(file);
    attempt(state, &attempts, &how, "file/step_1", "elsewhere/step_1");
    assert_int_equal(attempts.set_up, 1);
    assert_int_equal(attempts.reset, 2);
    assert_int_equal(attempts.planned, 2);
    assert_int_equal(attempts.abandoned, 1);
}

static bool takes_elsewhere(void *context, const char *id)
{
    (void)context;
    return strstr(id, "/elsewhere/") != NULL;
}

static bool takes_file(void *context, const char *id)
{
    (void)context;
    return strstr(id, "/file/") != NULL;
}

/* Of the two paths one is a storage writer's: the first, or the one that is fallen back to. */
static void what_is_fallen_back_to_finds_its_storage_writer(void **state)
{
    needs_files();
    const dcp_save_chain_options how = {.fallback_path = path_in(state, "elsewhere")};
    FILE *file = fopen(path_in(state, "file"), "w");
    assert_non_null(file);
    fclose(file);
    for (int first = 0; first <= 1; first++) {
        struct attempts attempts = {0};
        const dcp_storage_writer writer = {.size_of = sizeof writer,
                                           .context = &attempts,
                                           .validate_checkpoint_id =
                                               first ? takes_file : takes_elsewhere,
                                           .reset = count_reset,
                                           .write_data = write_or_fail,
                                           .abandon = count_abandoned};
        const dcp_storage_writer *const writers[] = {&writer};
        dcp_save_options options = {.storage_writers = writers,
                                    .storage_writer_count = 1,
                                    .overwrite = DCP_OVERWRITE_REPLACE};
        struct model model;
        dcp_future *future;
        make_model(&model, 0, 1, 1 + first);
        must(dcp_save_chain_new(&how, &options.chain));
        must(begin(&model, 1 + first, path_in(state, "file/step_1"), &options, &future));
        must(dcp_future_wait(future, WAIT));
        must(check(path_in(state, "elsewhere/step_1"), 1 + first));
        assert_int_equal(attempts.reset, 1);
        assert_string_equal(attempts.id,
                            path_in(state, first ? "file/step_1" : "elsewhere/step_1"));
        assert_int_equal(attempts.abandoned, first);
        dcp_future_free(future);
        dcp_save_chain_free(options.chain);
        free(model.shard);
    }
}

/* ---- hooks that fail ---- */

/* The hook that fails, on one rank. */
enum point {
    AT_META,
    AT_SET_UP,
    AT_SET_UP_WRITER,
    AT_LOCAL_PLAN,
    AT_PREPARE_LOCAL,
    AT_GLOBAL_PLAN,
    AT_PREPARE_GLOBAL,
    AT_FINISH_PLAN,
    AT_RESOLVE, /* from here on in the background */
    AT_WRITE,
    AT_FINISH,
    POINTS
};

struct failing {
    enum point point;
    int failing_rank;
    int rank;
};

static dcp_status pass(const void *context, enum point point)
{
    const struct failing *failing = context;
    return failing->point == point && failing->rank == failing->failing_rank
               ? dcp_error_set(DCP_ERR_DEVICE, "it hails")
               : DCP_OK;
}

static dcp_status meta(void *context, dcp_storage_meta *meta)
{
    (void)meta;
    return pass(context, AT_META);
}

static dcp_status set_up(void *context, dcp_saving *saving, dcp_state *state,
                         const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    (void)storage_meta, (void)is_coordinator;
    dcp_status status = pass(context, AT_SET_UP);
    return status == DCP_OK ? dcp_save_default_set_up_planner(saving, state) : status;
}

static dcp_status set_up_writer(void *context, dcp_saving *saving, bool is_coordinator)
{
    (void)is_coordinator;
    dcp_status status = pass(context, AT_SET_UP_WRITER);
    return status == DCP_OK ? dcp_save_default_set_up_storage_writer(saving) : status;
}

static dcp_status create_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    dcp_status status = pass(context, AT_LOCAL_PLAN);
    return status == DCP_OK ? dcp_save_default_create_local_plan(saving, plan) : status;
}

static dcp_status prepare_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)saving, (void)plan;
    return pass(context, AT_PREPARE_LOCAL);
}

static dcp_status create_global(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                int plan_count)
{
    dcp_status status = pass(context, AT_GLOBAL_PLAN);
    return status == DCP_OK ? dcp_save_default_create_global_plan(saving, plans, plan_count)
                            : status;
}

static dcp_status prepare_global(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                 int plan_count)
{
    (void)saving, (void)plans, (void)plan_count;
    return pass(context, AT_PREPARE_GLOBAL);
}

static dcp_status finish_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)saving, (void)plan;
    return pass(context, AT_FINISH_PLAN);
}

static dcp_status resolve(void *context, dcp_saving *saving, const dcp_write_item *item,
                          dcp_write_data *data)
{
    dcp_status status = item->is_tensor ? pass(context, AT_RESOLVE) : DCP_OK;
    return status == DCP_OK ? dcp_save_default_resolve_data(saving, item, data) : status;
}

static dcp_status write_data(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)plan;
    dcp_status status = pass(context, AT_WRITE);
    return status == DCP_OK ? dcp_save_default_write_data(saving) : status;
}

static dcp_status finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t result_count)
{
    (void)metadata, (void)results, (void)result_count;
    dcp_status status = pass(context, AT_FINISH);
    return status == DCP_OK ? dcp_save_default_finish(saving) : status;
}

/* What fails while planning is the call's failure, and not the future's. */
static dcp_status save_failing(struct rank *self)
{
    struct failing mine = *(const struct failing *)self->context;
    const dcp_save_planner planner = {sizeof planner, &mine,   set_up, create_plan, create_global,
                                      finish_plan,    resolve, NULL,   NULL};
    const dcp_storage_writer writer = {.size_of = sizeof writer,
                                       .context = &mine,
                                       .storage_meta = meta,
                                       .set_up_storage_writer = set_up_writer,
                                       .prepare_local_plan = prepare_plan,
                                       .prepare_global_plan = prepare_global,
                                       .write_data = write_data,
                                       .finish = finish};
    const dcp_save_options options = {
        .group = self->group, .planner = &planner, .storage_writer = &writer};
    struct model model;
    dcp_future *future;
    mine.rank = self->rank;
    make_model(&model, self->rank, self->size, 1);
    dcp_status status = begin(&model, 1, self->path, &options, &future);
    if (status == DCP_OK) {
        bool background = mine.point >= AT_RESOLVE;
        status = dcp_future_wait(future, WAIT);
        if (!background && status != DCP_OK)
            status = dcp_error_set(DCP_ERR_INTERNAL, "the failure came late");
        dcp_future_free(future);
    }
    free(model.shard);
    return status;
}

static void a_hook_that_fails_is_everyones_failure(void **state)
{
    static const char *const names[POINTS] = {"storage_meta",
                                              "set_up_planner",
                                              "set_up_storage_writer",
                                              "create_local_plan",
                                              "prepare_local_plan",
                                              "create_global_plan",
                                              "prepare_global_plan",
                                              "finish_plan",
                                              "resolve_data",
                                              "write_data",
                                              "finish"};
    const char *path = path_in(state, "a");
    for (int point = 0; point < POINTS; point++) {
        bool central = point == AT_GLOBAL_PLAN || point == AT_PREPARE_GLOBAL || point == AT_FINISH;
        struct failing failing = {.point = (enum point)point, .failing_rank = central ? 0 : 1};
        struct rank ranks[RANKS_MAX];
        char rank[16], message[64];
        snprintf(rank, sizeof rank, "rank %d: ", failing.failing_rank);
        snprintf(message, sizeof message, "hook %s: it hails", names[point]);
        ranks_run(ranks, 3, path, save_failing, &failing);
        for (int r = 0; r < 3; r++) {
            if (ranks[r].status != DCP_ERR_DEVICE || !strstr(ranks[r].message, message) ||
                strncmp(ranks[r].message, rank, strlen(rank)) != 0)
                fail_msg("%s: rank %d: %d, %s", names[point], r, (int)ranks[r].status,
                         ranks[r].message);
            assert_string_equal(ranks[r].message, ranks[0].message);
        }
        assert_int_not_equal(access(path, F_OK), 0);
    }
    struct failing none = {.point = POINTS};
    ranks_must(3, path, save_failing, &none);
    must(check(path, 1));
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(planners_see_copies),
        TEST(tensors_inside_of_objects_are_copied),
        TEST(planners_may_save_another_state),
        TEST(planners_are_set_up_with_what_stagers_made),
        TEST(planners_that_take_no_state_are_refused),
        TEST(saves_with_hooks_are_tried_again),
        TEST(saves_with_hooks_fall_back),
        TEST(saves_with_hooks_fall_back_without_a_place),
        TEST(what_is_fallen_back_to_finds_its_storage_writer),
        TEST(a_hook_that_fails_is_everyones_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
