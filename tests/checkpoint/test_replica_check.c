/* SPDX-License-Identifier: BSD-3-Clause */
/* What several ranks hold in common is compared before it is saved, if a save is asked to. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "device/stand_in.h"
#include "fault/failing_allocator.h"

/* "model.w" is whole on each rank, of several sampled blocks; "model.s" is a row of each rank. */
enum { RANKS = 3, ROWS = 40, COLUMNS = 512, ELEMENTS = ROWS * COLUMNS };

enum memory { DENSE, STRIDED, DEVICE };

struct trial {
    dcp_save_options options;
    dcp_save_chain_options chain;
    bool behind;       /* asynchronously */
    bool sharded;      /* there is "model.s", so that plans are gathered */
    int odd_rank;      /* that holds other bytes; -1: none */
    int64_t from, end; /* of the elements that differ */
    int odd_object;    /* a rank with another object; -1: none */
    const char *object;
    enum memory memory; /* of the odd rank */
    dcp_save_plan_cache *caches[RANKS];
    bool reused;
    double seconds;
};

static const struct trial usual = {.odd_rank = -1, .odd_object = -1, .object = "other"};

static char logged[2048];
static int log_lines;

static void take_line(void *context, dcp_log_level level, const char *line)
{
    (void)context;
    if (level != DCP_LOG_WARNING)
        return;
    log_lines++;
    snprintf(logged, sizeof logged, "%s", line);
}

static void fill(const struct rank *self, float *data)
{
    const struct trial *trial = self->context;
    for (int64_t i = 0; i < ELEMENTS; i++)
        data[i] = (float)i;
    for (int64_t i = trial->from; i < trial->end && trial->odd_rank == self->rank; i++)
        data[i] = -1.0f - (float)i;
}

/* The same elements where the rank has them. memory: to be freed, or of the device. */
static void place(const struct rank *self, const float *data, dcp_tensor *tensor, void **memory)
{
    const struct trial *trial = self->context;
    enum memory kind = self->rank == trial->odd_rank || trial->odd_rank < 0 ? trial->memory : DENSE;
    *memory = NULL;
    tensor->data = (void *)(uintptr_t)data;
    if (kind == DEVICE) {
        *memory = stand_in_new(0, data, ELEMENTS * sizeof *data);
        tensor->device = stand_in(0);
        tensor->data = *memory;
    } else if (kind == STRIDED) {
        float *turned = malloc(ELEMENTS * sizeof *turned);
        assert_non_null(turned);
        for (int64_t i = 0; i < ROWS; i++)
            for (int64_t j = 0; j < COLUMNS; j++)
                turned[j * ROWS + i] = data[i * COLUMNS + j];
        tensor->strided = true;
        tensor->strides[0] = 1;
        tensor->strides[1] = ROWS;
        *memory = tensor->data = turned;
    }
}

static dcp_state *build(const struct rank *self, dcp_tensor *w)
{
    const struct trial *trial = self->context;
    static float rows[RANKS];
    static double scalar = 2.5;
    dcp_state *root = dcp_state_new(), *model = dcp_state_dict(root, "model");
    dcp_tensor s = {.dtype = DCP_F32, .ndim = 1, .sharded = true, .global_shape = {RANKS}};
    dcp_tensor e = {.dtype = DCP_F32, .ndim = 1, .global_shape = {0}};
    dcp_tensor t = {.dtype = DCP_F64, .data = &scalar};
    rows[self->rank] = (float)self->rank;
    s.offsets[0] = self->rank;
    s.sizes[0] = 1;
    s.data = &rows[self->rank];
    dcp_state_tensor(model, "w", w);
    dcp_state_tensor(model, "t", &t);
    dcp_state_tensor(model, "e", &e);
    if (trial->sharded)
        dcp_state_tensor(model, "s", &s);
    dcp_state_string(root, "mode", self->rank == trial->odd_object ? trial->object : "same");
    return root;
}

static dcp_status save_behind(const struct rank *self, dcp_state *root, dcp_save_options *options,
                              float *data)
{
    struct trial *trial = self->context;
    dcp_save_chain_options how = trial->chain;
    dcp_future *future = NULL;
    how.group = self->group;
    must(dcp_save_chain_new(&how, &options->chain));
    dcp_status status = dcp_save_async(root, self->path, options, &future);
    if (status == DCP_OK) {
        dcp_future_wait_staged(future, -1);
        /* Training goes on, in another way on each rank; the stagers here borrow the memory. */
        for (int64_t i = 0; i < ELEMENTS && !how.stager; i++)
            data[i] = (float)self->rank;
        status = dcp_future_wait(future, -1);
        dcp_future_free(future);
    }
    dcp_save_chain_free(options->chain);
    return status;
}

static dcp_status save(struct rank *self)
{
    struct trial *trial = self->context;
    float *data = malloc(ELEMENTS * sizeof *data);
    void *memory;
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_tensor w = {.dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    dcp_save_options options = trial->options;
    options.group = self->group;
    options.skip_sync = true;
    options.overwrite = DCP_OVERWRITE_REPLACE;
    options.figures = trial->behind ? NULL : &figures;
    options.plan_cache = trial->caches[self->rank];
    fill(self, data);
    place(self, data, &w, &memory);
    dcp_state *root = build(self, &w);
    dcp_status status = trial->behind ? save_behind(self, root, &options, data)
                                      : dcp_save(root, self->path, &options);
    dcp_state_free(root);
    if (w.device.operations)
        stand_in_free(memory);
    else
        free(memory);
    free(data);
    if (self->rank == 0) {
        trial->reused = figures.plan_reused;
        trial->seconds = figures.replica_check_seconds;
    }
    return status;
}

static void must_save(const char *path, struct trial *trial)
{
    ranks_must(RANKS, path, save, trial);
}

/* On all ranks, with all texts up to NULL in the message. */
static void must_differ(const char *path, struct trial *trial, const char *const *texts)
{
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, RANKS, path, save, trial);
    for (int r = 0; r < RANKS; r++) {
        if (ranks[r].status != DCP_ERR_REPLICA)
            fail_msg("rank %d: %s: %s", r, dcp_status_string(ranks[r].status), ranks[r].message);
        for (size_t i = 0; texts && texts[i]; i++)
            if (!strstr(ranks[r].message, texts[i]))
                fail_msg("rank %d: no \"%s\" in: %s", r, texts[i], ranks[r].message);
    }
}

static struct trial odd(dcp_replica_check check, int rank, int64_t from, int64_t end)
{
    struct trial trial = usual;
    trial.options.check_replicas = check;
    trial.odd_rank = rank;
    trial.from = from;
    trial.end = end;
    return trial;
}

static const char *const tensor_message[] = {"tensor \"model.w\" [0:40, 0:512]: ranks 0, 2 agree; "
                                             "rank 1 differs in elements ",
                                             NULL};

/* ---- what is found ---- */

static void off_is_silent(void **state)
{
    struct trial trial = odd(DCP_REPLICA_CHECK_OFF, 1, 0, ELEMENTS);
    must_save(path_in(state, "c"), &trial);
    assert_true(trial.seconds == 0);
}

static void the_same_passes(void **state)
{
    for (int check = DCP_REPLICA_CHECK_SAMPLED; check <= DCP_REPLICA_CHECK_ALL; check++)
        for (int sharded = 0; sharded < 2; sharded++) {
            struct trial trial = odd((dcp_replica_check)check, -1, 0, 0);
            trial.sharded = sharded;
            must_save(path_in(state, "c"), &trial);
            assert_true(trial.seconds > 0);
        }
}

static void all_names_tensor_ranks_and_elements(void **state)
{
    static const char *const texts[] = {
        "ranks 0, 2 agree; rank 1 differs in elements 20000 to 20019", "1 tensor chunk or object",
        NULL};
    for (int sharded = 0; sharded < 2; sharded++) {
        /* Segments of 20 elements. */
        struct trial trial = odd(DCP_REPLICA_CHECK_ALL, 1, 20003, 20004);
        trial.sharded = sharded;
        must_differ(path_in(state, "c"), &trial, tensor_message);
        must_differ(path_in(state, "c"), &trial, texts);
        assert_int_not_equal(access(path_in(state, "c"), F_OK), 0);
    }
}

static dcp_status save_two(struct rank *self)
{
    float value[2] = {1, self->rank == 0 ? 2 : 3};
    dcp_save_options options = {
        .group = self->group, .check_replicas = DCP_REPLICA_CHECK_ALL, .skip_sync = true};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {2}, .data = value};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "x", &tensor);
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    return status;
}

static void two_ranks_have_no_majority(void **state)
{
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, 2, path_in(state, "c"), save_two, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_REPLICA);
        assert_non_null(
            strstr(ranks[r].message, "\"x\" [0:2]: rank 1 differs from rank 0 in elements 1 to 1"));
    }
}

static void objects_are_compared(void **state)
{
    static char long_text[3000];
    memset(long_text, 'x', sizeof long_text - 1);
    static const char *const bytes[] = {
        "object \"mode\": ranks 0, 1 agree; rank 2 differs in bytes ", NULL};
    static const char *const lengths[] = {"rank 2 differs, with ", " bytes instead of ", NULL};
    for (int check = DCP_REPLICA_CHECK_SAMPLED; check <= DCP_REPLICA_CHECK_ALL; check++) {
        struct trial trial = odd((dcp_replica_check)check, -1, 0, 0);
        trial.odd_object = 2;
        trial.object = "some";
        must_differ(path_in(state, "c"), &trial, bytes);
        trial.object = long_text;
        must_differ(path_in(state, "c"), &trial, lengths);
    }
}

static void a_difference_may_be_a_warning(void **state)
{
    struct trial trial = odd(DCP_REPLICA_CHECK_ALL, 1, 0, 5);
    trial.options.allow_different_replicas = true;
    log_lines = 0;
    dcp_set_log(take_line, NULL, DCP_LOG_WARNING);
    must_save(path_in(state, "c"), &trial);
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
    assert_int_equal(log_lines, 1);
    assert_non_null(strstr(logged, tensor_message[0]));
    assert_int_equal(access(path_in(state, "c/.metadata"), F_OK), 0);
}

/* One block of twenty differs: it is looked at in some saves. */
static void sampled_looks_elsewhere_each_time(void **state)
{
    struct trial trial = odd(DCP_REPLICA_CHECK_SAMPLED, 1, 4096, 4097);
    int found = 0, missed = 0;
    for (int i = 0; i < DCP_REPLICA_PARTS && (!found || !missed); i++) {
        struct rank ranks[RANKS_MAX];
        ranks_run(ranks, RANKS, path_in(state, "c"), save, &trial);
        found += ranks[0].status == DCP_ERR_REPLICA;
        missed += ranks[0].status == DCP_OK;
        assert_int_equal(ranks[1].status, ranks[0].status);
    }
    assert_true(found > 0);
    assert_true(missed > 0);
}

static void sampled_always_finds_what_differs_everywhere(void **state)
{
    for (int i = 0; i < 20; i++) {
        struct trial trial = odd(DCP_REPLICA_CHECK_SAMPLED, 1, 0, ELEMENTS);
        must_differ(path_in(state, "c"), &trial, tensor_message);
    }
}

enum { MANY = 1500 }; /* tensors, so that each is compared in one of six saves */

static dcp_status save_many(struct rank *self)
{
    const int *odd_tensor = self->context;
    static float same = 1;
    float other = 2;
    dcp_save_options options = {.group = self->group,
                                .check_replicas = DCP_REPLICA_CHECK_SAMPLED,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .skip_sync = true};
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < MANY; i++) {
        bool odd = i == *odd_tensor && self->rank == 1;
        dcp_tensor tensor = {.dtype = DCP_F32, .data = odd ? &other : &same};
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        dcp_state_tensor(root, name, &tensor);
    }
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    return status;
}

static void many_small_ones_take_turns(void **state)
{
    enum { TURNS = MANY / 256 + 1 };
    for (int odd_tensor = 0; odd_tensor < MANY; odd_tensor += MANY / 3) {
        int found = 0;
        for (int turn = 0; turn < TURNS; turn++) {
            struct rank ranks[RANKS_MAX];
            ranks_run(ranks, 2, path_in(state, "c"), save_many, &odd_tensor);
            assert_int_equal(ranks[1].status, ranks[0].status);
            assert_true(ranks[0].status == DCP_OK || ranks[0].status == DCP_ERR_REPLICA);
            found += ranks[0].status == DCP_ERR_REPLICA;
        }
        assert_int_equal(found, 1);
    }
}

static void however_it_lies_in_memory(void **state)
{
    for (int check = DCP_REPLICA_CHECK_SAMPLED; check <= DCP_REPLICA_CHECK_ALL; check++)
        for (int memory = DENSE; memory <= DEVICE; memory++) {
            struct trial trial = odd((dcp_replica_check)check, 1, 0, ELEMENTS);
            trial.memory = (enum memory)memory;
            must_differ(path_in(state, "c"), &trial, tensor_message);
            trial.from = trial.end;
            must_save(path_in(state, "c"), &trial);
        }
}

/* ---- in which saves ---- */

static void a_plan_that_is_reused_is_checked(void **state)
{
    struct trial trial = odd(DCP_REPLICA_CHECK_ALL, -1, 0, ELEMENTS);
    for (int r = 0; r < RANKS; r++)
        must(dcp_save_plan_cache_new(&trial.caches[r]));
    must_save(path_in(state, "c"), &trial);
    must_save(path_in(state, "c"), &trial);
    assert_true(trial.reused);
    trial.odd_rank = 1;
    must_differ(path_in(state, "c"), &trial, tensor_message);
    assert_true(trial.reused);
    trial.odd_rank = -1;
    must_save(path_in(state, "c"), &trial);
    for (int r = 0; r < RANKS; r++)
        dcp_save_plan_cache_free(trial.caches[r]);
}

static void asynchronous_saves_are_checked(void **state)
{
    for (int sharded = 0; sharded < 2; sharded++) {
        struct trial trial = odd(DCP_REPLICA_CHECK_ALL, -1, 0, ELEMENTS);
        trial.behind = true;
        trial.sharded = sharded;
        trial.chain.staging = DCP_STAGING_OVERLAPPED;
        must_save(path_in(state, "c"), &trial);
        trial.odd_rank = 1;
        must_differ(path_in(state, "c"), &trial, tensor_message);
    }
}

static void without_a_place_they_are_checked(void **state)
{
    static char place[1024], other[1024];
    struct trial trial = odd(DCP_REPLICA_CHECK_ALL, -1, 0, ELEMENTS);
    needs_files();
    snprintf(other, sizeof other, "%s", path_in(state, "other"));
    trial.behind = true;
    trial.chain.fallback_path = other;
    snprintf(place, sizeof place, "/dev/null/c");
    must_save(place, &trial);
    trial.odd_rank = 1;
    must_differ(place, &trial, tensor_message);
    /* With a planner there is no plan before there is a place. */
    dcp_save_planner planner = {.size_of = sizeof planner};
    trial.options.planner = &planner;
    must_differ(place, &trial, tensor_message);
    trial.odd_rank = -1;
    must_save(place, &trial);
}

static dcp_status stage(void *context, const dcp_state *state, dcp_state *staged)
{
    (void)context;
    const dcp_state *model = dcp_state_find(state, "model");
    dcp_state_copy(staged, "model", model);
    return dcp_state_status(staged);
}

static dcp_status synchronize(void *context)
{
    (void)context;
    return DCP_OK;
}

static void what_a_stager_makes_is_checked(void **state)
{
    dcp_stager stager = {.size_of = sizeof stager, .stage = stage, .synchronize = synchronize};
    struct trial trial = odd(DCP_REPLICA_CHECK_ALL, 1, 0, ELEMENTS);
    trial.behind = true;
    trial.chain.stager = &stager;
    must_differ(path_in(state, "c"), &trial, tensor_message);
    trial.odd_rank = -1;
    must_save(path_in(state, "c"), &trial);
}

static dcp_status transform(void *context, dcp_saving *saving, const dcp_write_item *item,
                            const dcp_state *object, dcp_write_data *data)
{
    static const float zeros[ELEMENTS];
    dcp_status status = dcp_save_default_transform_object(saving, item, object, data);
    if (status == DCP_OK && item->is_tensor && context) {
        data->data = (void *)(uintptr_t)zeros;
        data->strides = NULL;
    }
    return status;
}

static void saves_with_hooks_are_checked(void **state)
{
    int nothing;
    dcp_save_planner planner = {.size_of = sizeof planner, .transform_object = transform};
    for (int behind = 0; behind < 2; behind++) {
        struct trial trial = odd(DCP_REPLICA_CHECK_ALL, 1, 0, ELEMENTS);
        trial.behind = behind;
        trial.options.planner = &planner;
        planner.context = NULL;
        must_differ(path_in(state, "c"), &trial, tensor_message);
        /* What would be written is the same. */
        planner.context = &nothing;
        must_save(path_in(state, "c"), &trial);
    }
}

/* ---- options and failures ---- */

static dcp_status save_with_odd_options(struct rank *self)
{
    struct trial trial = *(struct trial *)self->context;
    struct rank other = *self;
    other.context = &trial;
    if (self->rank == 1)
        trial.options.check_replicas = DCP_REPLICA_CHECK_ALL;
    if (self->rank == 2)
        trial.options.allow_different_replicas = true;
    return save(&other);
}

static void options_are_the_same_on_all_ranks(void **state)
{
    struct trial trial = usual;
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, RANKS, path_in(state, "c"), save_with_odd_options, &trial);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_ARGUMENT);
        assert_non_null(strstr(ranks[r].message, "check_replicas is 0 on rank 0, but 2 on rank 1"));
    }
    trial.options.check_replicas = (dcp_replica_check)3;
    ranks_run(ranks, 1, path_in(state, "c"), save, &trial);
    assert_int_equal(ranks[0].status, DCP_ERR_ARGUMENT);
}

static void a_device_that_fails_is_the_error_of_all(void **state)
{
    struct trial trial = odd(DCP_REPLICA_CHECK_ALL, 1, 0, 0);
    struct rank ranks[RANKS_MAX];
    trial.memory = DEVICE;
    stand_in_reset(1, 0);
    ranks_run(ranks, RANKS, path_in(state, "c"), save, &trial);
    stand_in_reset(0, 0);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_DEVICE);
        assert_non_null(strstr(ranks[r].message, "rank 1: "));
    }
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    rank->status = save(rank);
    /* A tree that was never made. */
    if (rank->status == DCP_ERR_ARGUMENT &&
        strstr(dcp_error_message(), "the state to save is NULL"))
        rank->status = DCP_ERR_NO_MEMORY;
    return NULL;
}

/* The groups are there before, and stay. */
static void every_allocation_may_fail(void **state)
{
    struct trial trial = odd(DCP_REPLICA_CHECK_ALL, 1, 0, 4);
    dcp_group *groups[RANKS];
    bool reached = true;
    long n;
    for (n = 1; reached; n++) {
        struct rank ranks[RANKS];
        pthread_t threads[RANKS];
        must(dcp_group_new_threads(RANKS, groups));
        failing_allocator_install(n, false);
        for (int r = 0; r < RANKS; r++) {
            ranks[r] = (struct rank){
                .group = groups[r], .rank = r, .path = path_in(state, "c"), .context = &trial};
            assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
        }
        for (int r = 0; r < RANKS; r++)
            pthread_join(threads[r], NULL);
        reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        for (int r = 0; r < RANKS; r++) {
            if (ranks[r].status != DCP_ERR_REPLICA &&
                !(reached && ranks[r].status == DCP_ERR_NO_MEMORY))
                fail_msg("allocation %ld, rank %d: %s", n, r, dcp_status_string(ranks[r].status));
            dcp_group_free(groups[r]);
        }
    }
    assert_true(n > 100);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(off_is_silent),
        TEST(the_same_passes),
        TEST(all_names_tensor_ranks_and_elements),
        TEST(two_ranks_have_no_majority),
        TEST(objects_are_compared),
        TEST(a_difference_may_be_a_warning),
        TEST(sampled_looks_elsewhere_each_time),
        TEST(sampled_always_finds_what_differs_everywhere),
        TEST(many_small_ones_take_turns),
        TEST(however_it_lies_in_memory),
        TEST(a_plan_that_is_reused_is_checked),
        TEST(asynchronous_saves_are_checked),
        TEST(without_a_place_they_are_checked),
        TEST(what_a_stager_makes_is_checked),
        TEST(saves_with_hooks_are_checked),
        TEST(options_are_the_same_on_all_ranks),
        TEST(a_device_that_fails_is_the_error_of_all),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
