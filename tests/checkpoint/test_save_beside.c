/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves of so many tensors that the coordinator begins its session beside planning, and makes the
 * metadata beside writing: nothing else differs from a save that does one after the other, and what
 * fails there fails the save. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

enum { RANKS = 2, TENSORS = 1100, VALUES = 6 };

/* What both ranks see. */
struct trial {
    dcp_save_options options; /* but for the group */
    bool all;                 /* ranks hold everything, in place of parts */
    const char *fallback;     /* of an asynchronous save; NULL: it is none */
    long n;                   /* the allocation that fails; 0: none */
    pthread_barrier_t begun;  /* without an allocation */
};

static float value_of(int tensor, int64_t index)
{
    return (float)(tensor * VALUES + (int)index);
}

/* The object is longer on the other rank, whose copy nobody saves. */
static dcp_state *make_state(const struct rank *self, bool all, float *values)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    dcp_placement placement = all ? dcp_replicate() : dcp_shard(0);
    dcp_state *state = dcp_state_new();
    for (int i = 0; i < TENSORS; i++) {
        dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {VALUES}};
        char name[16];
        must(dcp_mesh_shard(&mesh, &tensor, &placement));
        tensor.data = values + i * VALUES;
        snprintf(name, sizeof name, "t%d", i);
        dcp_state_tensor(state, name, &tensor);
    }
    dcp_state_string(state, "note", self->rank == 0 ? "first" : "of the other rank");
    must(dcp_state_status(state));
    return state;
}

static float *make_values(const struct rank *self, bool all)
{
    int64_t first = all ? 0 : self->rank * (VALUES / RANKS);
    float *values = calloc(TENSORS * VALUES, sizeof *values);
    assert_non_null(values);
    for (int i = 0; i < TENSORS; i++)
        for (int64_t k = 0; k < VALUES; k++)
            values[i * VALUES + k] = value_of(i, first + k);
    return values;
}

static dcp_status save_async(dcp_state *state, const char *path, const char *fallback,
                             const dcp_save_options *given)
{
    dcp_save_chain_options chain_options = {.group = given->group, .fallback_path = fallback};
    dcp_save_options options = *given;
    dcp_future *future;
    dcp_status status = dcp_save_chain_new(&chain_options, &options.chain);
    if (status != DCP_OK)
        return status;
    status = dcp_save_async(state, path, &options, &future);
    if (status == DCP_OK) {
        status = dcp_future_wait(future, -1);
        dcp_future_free(future);
    }
    dcp_save_chain_free(options.chain);
    return status;
}

static dcp_status save(struct rank *self)
{
    struct trial *trial = self->context;
    dcp_save_options options = trial->options;
    float *values = make_values(self, trial->all);
    dcp_state *state = make_state(self, trial->all, values);
    options.group = self->group;
    pthread_barrier_wait(&trial->begun);
    if (self->rank == 0 && trial->n != 0)
        failing_allocator_install(trial->n, false);
    pthread_barrier_wait(&trial->begun);
    dcp_status status = trial->fallback ? save_async(state, self->path, trial->fallback, &options)
                                        : dcp_save(state, self->path, &options);
    /* A rank that still waits hears of the other one's failure. */
    dcp_group_barrier(self->group, 0);
    dcp_state_free(state);
    free(values);
    return status;
}

static void run(struct rank ranks[RANKS_MAX], const char *path, struct trial *trial)
{
    assert_int_equal(pthread_barrier_init(&trial->begun, NULL, RANKS), 0);
    ranks_run(ranks, RANKS, path, save, trial);
    pthread_barrier_destroy(&trial->begun);
}

static void run_well(const char *path, struct trial *trial)
{
    struct rank ranks[RANKS_MAX];
    run(ranks, path, trial);
    for (int rank = 0; rank < RANKS; rank++)
        if (ranks[rank].status != DCP_OK)
            fail_msg("rank %d: %s", rank, ranks[rank].message);
}

/* One rank loads everything. */
static void expect_saved(const char *path)
{
    const struct rank alone = {.size = 1};
    uint64_t faults;
    const char *note;
    size_t length;
    float *values = calloc(TENSORS * VALUES, sizeof *values);
    assert_non_null(values);
    must(dcp_verify(path, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    dcp_state *state = make_state(&alone, true, values);
    must(dcp_load(state, path, NULL, NULL));
    for (int i = 0; i < TENSORS; i++)
        for (int64_t k = 0; k < VALUES; k++)
            assert_true(values[i * VALUES + k] == value_of(i, k));
    must(dcp_state_as_text(dcp_state_find(state, "note"), &note, &length));
    assert_string_equal(note, "first");
    dcp_state_free(state);
    free(values);
}

static off_t size_of(const char *directory, const char *file)
{
    char path[1024];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", directory, file);
    assert_int_equal(stat(path, &status), 0);
    return status.st_size;
}

/* Within a limit, one step follows the other. */
static void the_checkpoint_is_that_of_one_step_after_the_other(void **state)
{
    static const char *const files[] = {".metadata", "metadata.json", "__0_0.distcp",
                                        "__1_0.distcp"};
    for (int all = 0; all < 2; all++) {
        const char *beside = path_in(state, all ? "all" : "parts");
        const char *after = path_in(state, all ? "all in turn" : "parts in turn");
        struct trial trial = {.all = all != 0};
        run_well(beside, &trial);
        trial.options.memory_limit = (uint64_t)1 << 30;
        run_well(after, &trial);
        expect_saved(beside);
        expect_saved(after);
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            assert_int_equal(size_of(beside, files[i]), size_of(after, files[i]));
    }
}

/* The other rank has a directory to fall back to as well; both lack the first one. */
static void another_attempt_begins_anew(void **state)
{
    char nowhere[1024];
    FILE *file = fopen(path_in(state, "a file"), "w");
    assert_non_null(file);
    fclose(file);
    snprintf(nowhere, sizeof nowhere, "%s/checkpoint", path_in(state, "a file"));
    struct trial trial = {.fallback = path_in(state, "fallback")};
    run_well(nowhere, &trial);
    expect_saved(path_in(state, "fallback/checkpoint"));
}

/* Whatever has no memory, the directory holds a whole checkpoint, or none. */
static void each_allocation_may_fail(void **state)
{
    struct rank ranks[RANKS_MAX];
    struct trial trial = {
        .n = 1, .options.overwrite = DCP_OVERWRITE_REPLACE, .options.timeout_seconds = 30};
    bool reached = true;
    int failures = 0;
    for (; reached; trial.n += TRIAL_STEP) {
        char name[32];
        dcp_checkpoint *checkpoint;
        snprintf(name, sizeof name, "%ld", trial.n);
        run(ranks, path_in(state, name), &trial);
        reached = failing_allocator_reached();
        failing_allocator_remove();
        dcp_status status = ranks[0].status;
        assert_int_equal(status, ranks[1].status);
        assert_true(status == DCP_OK || (reached && status == DCP_ERR_NO_MEMORY));
        failures += status != DCP_OK;
        if (status == DCP_OK)
            expect_saved(path_in(state, name));
        else
            must_fail(dcp_checkpoint_open(path_in(state, name), NULL, &checkpoint),
                      DCP_ERR_NOT_FOUND, name);
    }
    assert_true(failures > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_checkpoint_is_that_of_one_step_after_the_other,
                                        directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(another_attempt_begins_anew, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(each_allocation_may_fail, directory_setup,
                                        directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
