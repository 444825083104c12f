/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a save or load of two ranks goes on though an allocation has failed: without a ring,
 * without keeping its plan, without removing old files. Each allocation fails in turn. If the call
 * succeeds nevertheless, every byte of the checkpoint is there and checked, every value is loaded,
 * and the next save is as if nothing had happened. With an argument of n, every n-th allocation. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

/* Large enough for a ring, and for several blocks of each rank. */
enum { RANKS = 2, VALUES = 2 << 20, OWN = VALUES / RANKS };

/* Few enough that some of those that fail are ones that a call does without. */
static long stride = TRIAL_STEP > 1 ? 7 : 3;

/* What both ranks see. */
struct trial {
    pthread_barrier_t begun; /* without an allocation */
    bool saves, cooperative, cached;
    dcp_save_plan_cache *save_caches[RANKS];
    dcp_load_plan_cache *load_caches[RANKS];
    float *values[RANKS];
    int64_t steps[RANKS];
    long n; /* the allocation that fails; 0: none */
    bool reached;
};

static float value_of(int64_t step, int64_t index)
{
    return (float)(step * 3 + index % 4096);
}

static dcp_status make_state(const struct trial *trial, int rank, dcp_state **state)
{
    *state = dcp_state_new();
    dcp_state_tensor(*state, "w",
                     &(dcp_tensor){.dtype = DCP_F32,
                                   .ndim = 1,
                                   .global_shape = {VALUES},
                                   .sizes = {OWN},
                                   .offsets = {(int64_t)rank * OWN},
                                   .sharded = true,
                                   .data = trial->values[rank]});
    dcp_state_int(*state, "step", trial->steps[rank]);
    return dcp_state_status(*state);
}

static dcp_status save(const struct rank *self, const struct trial *trial)
{
    const dcp_save_options options = {.group = self->group,
                                      .overwrite = DCP_OVERWRITE_REPLACE,
                                      .timeout_seconds = 30,
                                      .plan_cache =
                                          trial->cached ? trial->save_caches[self->rank] : NULL};
    dcp_state *state;
    dcp_status status = make_state(trial, self->rank, &state);
    if (status == DCP_OK)
        status = dcp_save(state, self->path, &options);
    dcp_state_free(state);
    return status;
}

static dcp_status load(const struct rank *self, struct trial *trial)
{
    const dcp_load_options options = {
        .group = self->group,
        .timeout_seconds = 30,
        .reading = trial->cooperative ? DCP_READING_COOPERATIVE : DCP_READING_AUTO,
        .plan_cache = trial->cached ? trial->load_caches[self->rank] : NULL};
    dcp_state *state;
    memset(trial->values[self->rank], 0, OWN * sizeof(float));
    dcp_status status = make_state(trial, self->rank, &state);
    if (status == DCP_OK)
        status = dcp_load(state, self->path, &options, NULL);
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(state, "step"), &trial->steps[self->rank]);
    dcp_state_free(state);
    return status;
}

/* The ranks' group is made before an allocation fails. */
static dcp_status attempt(struct rank *self)
{
    struct trial *trial = self->context;
    pthread_barrier_wait(&trial->begun);
    if (self->rank == 0)
        failing_allocator_install(trial->n, false);
    pthread_barrier_wait(&trial->begun);
    dcp_status status = trial->saves ? save(self, trial) : load(self, trial);
    /* A rank that still waits hears of the other one's failure. */
    dcp_group_barrier(self->group, 0);
    return status;
}

/* Whether both ranks succeed; else the one has no memory, and the other hears of it. */
static bool run(struct trial *trial, const char *path)
{
    struct rank ranks[RANKS_MAX];
    assert_int_equal(pthread_barrier_init(&trial->begun, NULL, RANKS), 0);
    ranks_run(ranks, RANKS, path, attempt, trial);
    pthread_barrier_destroy(&trial->begun);
    trial->reached = failing_allocator_reached();
    failing_allocator_remove();
    assert_int_equal(ranks[0].status == DCP_OK, ranks[1].status == DCP_OK);
    return ranks[0].status == DCP_OK;
}

static void set(struct trial *trial, int64_t step)
{
    for (int rank = 0; rank < RANKS; rank++) {
        trial->steps[rank] = step;
        for (int64_t i = 0; i < OWN; i++)
            trial->values[rank][i] = value_of(step, rank * OWN + i);
    }
}

static void expect(const struct trial *trial, int64_t step)
{
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(trial->steps[rank], step);
        for (int64_t i = 0; i < OWN; i++)
            if (trial->values[rank][i] != value_of(step, rank * OWN + i))
                fail_msg("allocation %ld: value %d of rank %d", trial->n, (int)i, rank);
    }
}

static void expect_saved(struct trial trial, const char *path, int64_t step)
{
    uint64_t faults;
    trial.saves = false;
    trial.n = 0;
    must(dcp_verify(path, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    assert_true(run(&trial, path));
    expect(&trial, step);
}

/* Each stride-th allocation from the `first` on. Returns how many saves succeeded all the same. */
static int fail_each(struct trial *trial, const char *path, long first)
{
    int64_t step = 2;
    int succeeded = 0;
    trial->saves = true;
    set(trial, 1);
    assert_true(run(trial, path));
    for (trial->n = first; trial->saves; trial->n += stride, step++) {
        set(trial, step);
        bool saved = run(trial, path);
        if (saved)
            expect_saved(*trial, path, step);
        succeeded += saved && trial->reached;
        trial->saves = trial->reached;
        assert_true(saved || trial->reached);
    }
    trial->reached = true;
    for (trial->n = first; trial->reached; trial->n += stride) {
        bool loaded = run(trial, path);
        if (loaded)
            expect(trial, step - 1);
        assert_true(loaded || trial->reached);
    }
    trial->n = 0;
    return succeeded;
}

static void in_every_way(void **state)
{
    enum { WAYS = 3 };
    int succeeded = 0;
    for (int way = 0; way < WAYS; way++) {
        struct trial trial = {.cooperative = way == 1, .cached = way == 2};
        for (int rank = 0; rank < RANKS; rank++) {
            must(dcp_save_plan_cache_new(&trial.save_caches[rank]));
            must(dcp_load_plan_cache_new(&trial.load_caches[rank]));
            trial.values[rank] = malloc(OWN * sizeof(float));
            assert_non_null(trial.values[rank]);
        }
        succeeded += fail_each(&trial, path_in(state, "checkpoint"), 1 + way * stride / WAYS);
        for (int rank = 0; rank < RANKS; rank++) {
            dcp_save_plan_cache_free(trial.save_caches[rank]);
            dcp_load_plan_cache_free(trial.load_caches[rank]);
            free(trial.values[rank]);
        }
    }
    assert_true(succeeded > 0);
}

static void say_nothing(void *context, dcp_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

int main(int argc, char **argv)
{
    stride = argc > 1 ? atol(argv[1]) : stride;
    dcp_set_log(say_nothing, NULL, DCP_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(in_every_way, directory_setup, directory_teardown),
    };
    return stride > 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
}
