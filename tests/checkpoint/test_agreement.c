/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank never hangs and never disagrees: what goes wrong on one rank is the same error on every
 * rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "group/collective.h"

/* What the odd rank does differently. */
enum oddity {
    ODD_NOTHING,
    ODD_NO_STATE,
    ODD_OTHER_SHAPE,
    ODD_OTHER_DTYPE,
    ODD_OTHER_KIND,
    ODD_OVERLAP,
    ODD_HOLE,
    ODD_OUTSIDE,
    ODD_EMPTY,
    ODD_OPTION,
    ODD_CACHE,
    ODD_OTHER_PATH,
    ODD_BAD_OPTION,
    ODD_COMPRESSION,
    ODD_STATEFUL,
    ODD_ABSENT
};

/* How a save would go if no rank were odd. */
enum way {
    WAY_TREE,    /* plans are gathered along a tree */
    WAY_AT_ONCE, /* the group's ranks cannot send to each other */
    WAY_ALONE,   /* tensors say how all ranks hold them */
    WAY_REUSED,  /* as the save before */
    WAY_HOOKED,  /* by planners of the caller's */
    WAY_BEHIND,  /* asynchronously */
    WAYS
};

struct trial {
    enum oddity oddity;
    int odd_rank;
    bool loads;
    enum way way;
};

static dcp_status fail_state_dict(void *context, dcp_state *into)
{
    (void)context;
    (void)into;
    return dcp_error_set(DCP_ERR_CALLBACK, "no state today");
}

static void build(dcp_state *root, const struct rank *self, enum oddity oddity, bool meshed,
                  float *data)
{
    const dcp_placement rows = dcp_shard(0);
    const dcp_mesh mesh = {.ndim = 1, .shape = {3}, .rank = self->rank};
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 1,
                         .sharded = true,
                         .global_shape = {12},
                         .offsets = {self->rank * 4},
                         .sizes = {4},
                         .data = data};
    dcp_stateful stateful = {fail_state_dict, NULL, NULL};
    if (meshed)
        must(dcp_mesh_shard(&mesh, &tensor, &rows));
    if (oddity == ODD_EMPTY)
        return;
    if (oddity == ODD_OTHER_SHAPE)
        tensor.global_shape[0] = 13;
    if (oddity == ODD_OTHER_DTYPE)
        tensor.dtype = DCP_I32;
    if (oddity == ODD_OVERLAP)
        tensor.offsets[0] = self->rank > 0 ? self->rank * 4 - 1 : 1;
    if (oddity == ODD_HOLE)
        tensor.sizes[0] = 3;
    if (oddity == ODD_OUTSIDE)
        tensor.offsets[0] = 9;
    if (oddity == ODD_STATEFUL)
        dcp_state_stateful(root, "stuck", &stateful);
    if (oddity == ODD_OTHER_KIND)
        dcp_state_int(root, "w", 3);
    else
        dcp_state_tensor(root, "w", &tensor);
}

/* A save that all ranks agree about, so that the next one could be planned alike. */
static dcp_status save_before(struct rank *self, dcp_save_plan_cache *cache, float *data)
{
    char path[1024];
    dcp_save_options save = {.group = self->group,
                             .timeout_seconds = 20,
                             .plan_cache = cache,
                             .skip_sync = true,
                             .overwrite = DCP_OVERWRITE_REPLACE};
    dcp_state *root = dcp_state_new();
    snprintf(path, sizeof path, "%s-before", self->path);
    build(root, self, ODD_NOTHING, false, data);
    dcp_status status = dcp_save(root, path, &save);
    dcp_state_free(root);
    return status;
}

static dcp_status save_behind(dcp_state *state, const char *path, const dcp_save_options *options)
{
    dcp_future *future;
    dcp_status status = dcp_save_async(state, path, options, &future);
    if (status != DCP_OK)
        return status;
    status = dcp_future_wait(future, -1);
    dcp_future_free(future);
    return status;
}

static dcp_status trial_body(struct rank *self)
{
    const struct trial *trial = self->context;
    enum oddity oddity = self->rank == trial->odd_rank ? trial->oddity : ODD_NOTHING;
    float data[8] = {0};
    char other[1024];
    dcp_state *root = dcp_state_new();
    dcp_save_options save = {.group = self->group, .timeout_seconds = 20};
    dcp_load_options load = {.group = self->group, .timeout_seconds = 20};
    const char *path = self->path;
    const dcp_save_planner save_planner = {.size_of = sizeof save_planner};
    const dcp_load_planner load_planner = {.size_of = sizeof load_planner};
    dcp_save_plan_cache *cache = NULL;

    if (trial->oddity == ODD_ABSENT)
        save.timeout_seconds = load.timeout_seconds = 1;
    if (oddity == ODD_BAD_OPTION) {
        save.thread_count = -3;
        load.verification = (dcp_verification)77;
    }
    if (oddity == ODD_COMPRESSION)
        save.compression = DCP_COMPRESSION_ZSTD;
    if (oddity == ODD_OTHER_PATH) {
        snprintf(other, sizeof other, "%s-other", path);
        path = other;
    }
    if (oddity == ODD_OPTION)
        save.replicas = DCP_REPLICAS_LOWEST;
    if (trial->way == WAY_AT_ONCE)
        self->group->operations.all_to_all = NULL;
    if (trial->way == WAY_HOOKED) {
        save.planner = &save_planner;
        load.planner = &load_planner;
    }
    if (trial->way == WAY_REUSED || oddity == ODD_CACHE)
        must(dcp_save_plan_cache_new(&cache));
    save.plan_cache = cache;
    dcp_status status = DCP_OK;
    if (trial->way == WAY_REUSED)
        status = save_before(self, cache, data);
    build(root, self, oddity, trial->way == WAY_ALONE, data);
    if (status == DCP_OK && oddity != ODD_ABSENT) {
        dcp_state *given = oddity == ODD_NO_STATE ? NULL : root;
        status = trial->loads               ? dcp_load(given, path, &load, NULL)
                 : trial->way == WAY_BEHIND ? save_behind(given, path, &save)
                                            : dcp_save(given, path, &save);
    }
    dcp_state_free(root);
    dcp_save_plan_cache_free(cache);
    return status;
}

static void expect_all(const char *path, struct trial trial, dcp_status expected, const char *text)
{
    struct rank ranks[RANKS_MAX];
    for (trial.odd_rank = 0; trial.odd_rank < 3; trial.odd_rank++) {
        ranks_run(ranks, 3, path, trial_body, &trial);
        for (int r = 0; r < 3; r++) {
            if (trial.oddity == ODD_ABSENT && r == trial.odd_rank)
                continue;
            if (ranks[r].status != expected || !strstr(ranks[r].message, text))
                fail_msg("oddity %d on rank %d: rank %d ended with %s: %s", (int)trial.oddity,
                         trial.odd_rank, r, dcp_status_string(ranks[r].status), ranks[r].message);
            if (trial.oddity != ODD_ABSENT)
                assert_string_equal(ranks[r].message, ranks[0].message);
        }
        if (!trial.loads) /* nothing that looks like a checkpoint, not even an empty directory */
            assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void expect_save(const char *path, enum way way, enum oddity oddity, dcp_status expected,
                        const char *text)
{
    expect_all(path, (struct trial){.oddity = oddity, .way = way}, expected, text);
}

/* Whichever way the ranks would go, they end with the same error, which says who differs in what.
 */
static void test_save(void **state)
{
    const char *path = path_in(state, "c");
    for (enum way way = 0; way < WAYS; way++) {
        expect_save(path, way, ODD_NO_STATE, DCP_ERR_ARGUMENT, "NULL");
        expect_save(path, way, ODD_OTHER_SHAPE, DCP_ERR_SHAPE, "[13] on rank ");
        expect_save(path, way, ODD_OTHER_DTYPE, DCP_ERR_DTYPE, "int32 on rank ");
        expect_save(path, way, ODD_OTHER_KIND, DCP_ERR_KIND, "an object on rank ");
        expect_save(path, way, ODD_OVERLAP, DCP_ERR_OVERLAP, "\"w\": chunk [");
        expect_save(path, way, ODD_HOLE, DCP_ERR_COVERAGE, "\"w\": no rank holds [");
        expect_save(path, way, ODD_HOLE, DCP_ERR_COVERAGE,
                    "of the shape [12]: the group has 3 ranks, which must hold all of it together");
        if (way == WAY_ALONE)
            expect_save(path, way, ODD_HOLE, DCP_ERR_COVERAGE,
                        "on a mesh of 3 ranks in a group of 3: \"w\"");
        expect_save(path, way, ODD_EMPTY, DCP_ERR_COVERAGE, "\"w\": no rank holds [");
        expect_save(path, way, ODD_OUTSIDE, DCP_ERR_ARGUMENT, "\"w\"");
        expect_save(path, way, ODD_OTHER_PATH, DCP_ERR_ARGUMENT, "-other");
        expect_save(path, way, ODD_BAD_OPTION, DCP_ERR_ARGUMENT, "thread_count");
        expect_save(path, way, ODD_OPTION, DCP_ERR_ARGUMENT, "replicas is ");
        expect_save(path, way, ODD_STATEFUL, DCP_ERR_CALLBACK, "no state today");
    }
    expect_save(path, WAY_TREE, ODD_CACHE, DCP_ERR_ARGUMENT, "plan_cache is ");
}

static void expect_load(const char *path, enum way way, enum oddity oddity, dcp_status expected,
                        const char *text)
{
    expect_all(path, (struct trial){.oddity = oddity, .way = way, .loads = true}, expected, text);
}

static void test_load(void **state)
{
    const char *path = path_in(state, "c");
    struct rank ranks[RANKS_MAX];
    struct trial trial = {.oddity = ODD_NOTHING};
    ranks_run(ranks, 3, path, trial_body, &trial);
    for (int r = 0; r < 3; r++)
        if (ranks[r].status != DCP_OK)
            fail_msg("rank %d: %s", r, ranks[r].message);
    for (int hooked = 0; hooked < 2; hooked++) {
        enum way way = hooked ? WAY_HOOKED : WAY_TREE;
        expect_load(path, way, ODD_NO_STATE, DCP_ERR_ARGUMENT, "NULL");
        expect_load(path, way, ODD_OTHER_SHAPE, DCP_ERR_SHAPE,
                    "\"w\" (stored [12], wanted [13] on rank ");
        expect_load(path, way, ODD_OTHER_DTYPE, DCP_ERR_DTYPE,
                    "\"w\" (stored float32, wanted int32 on rank ");
        expect_load(path, way, ODD_OTHER_KIND, DCP_ERR_KIND,
                    "\"w\" (stored a tensor, wanted an object on rank ");
        expect_load(path, way, ODD_BAD_OPTION, DCP_ERR_ARGUMENT, "verification");
        expect_load(path, way, ODD_STATEFUL, DCP_ERR_CALLBACK, "no state today");
    }
}

/* One rank never comes: everyone else gives up within the deadline and names it, and no checkpoint
 * is left. */
static void test_absent_rank(void **state)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    expect_all(path_in(state, "c"), (struct trial){.oddity = ODD_ABSENT, .loads = false},
               DCP_ERR_TIMEOUT, "rank");
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - start.tv_sec <= 3 * 2);
    assert_int_not_equal(access(path_in(state, "c/.metadata"), F_OK), 0);
}

/* Six rows over a mesh of `size` ranks; forgetful: what a caller forgets that looks at no status.
 */
struct meshed {
    int64_t size;
    bool loads, forgetful;
};

static dcp_status use_mesh(struct rank *self)
{
    const struct meshed *meshed = self->context;
    float rows[12] = {0};
    const dcp_mesh mesh = {
        .ndim = 1, .shape = {meshed->size}, .rank = self->rank % (int)meshed->size};
    const dcp_placement by_rows = dcp_shard(0);
    dcp_tensor weight = {.dtype = DCP_F32, .ndim = 2, .global_shape = {6, 2}};
    if (meshed->forgetful)
        weight.ndim = 0;
    dcp_mesh_shard(&mesh, &weight, &by_rows);
    weight.data = rows;
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(dcp_state_dict(root, "model"), "weight", &weight);
    dcp_save_options save = {
        .group = self->group, .timeout_seconds = 20, .overwrite = DCP_OVERWRITE_REPLACE};
    dcp_load_options load = {.group = self->group, .timeout_seconds = 20};
    dcp_status status =
        meshed->loads ? dcp_load(root, self->path, &load, NULL) : dcp_save(root, self->path, &save);
    dcp_state_free(root);
    return status;
}

static void expect_mesh(const char *path, struct meshed meshed, dcp_status status, const char *text)
{
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, 3, path, use_mesh, &meshed);
    for (int r = 0; r < 3; r++)
        if (ranks[r].status != status || !strstr(ranks[r].message, text))
            fail_msg("mesh of %d: rank %d ended with %s: %s", (int)meshed.size, r,
                     dcp_status_string(ranks[r].status), ranks[r].message);
}

static void test_mesh_and_group(void **state)
{
    const char *path = path_in(state, "c");
    expect_mesh(path, (struct meshed){.size = 3}, DCP_OK, "");
    expect_mesh(path, (struct meshed){3, .loads = true}, DCP_OK, "");
    expect_mesh(path, (struct meshed){.size = 2}, DCP_OK, ""); /* two ranks hold the same */
    expect_mesh(path, (struct meshed){.size = 6}, DCP_ERR_ARGUMENT,
                "\"model.weight\" is on a mesh of 6 ranks, and the group has 3: pass the group");
    expect_mesh(path, (struct meshed){6, .loads = true}, DCP_ERR_ARGUMENT,
                "\"model.weight\" is on a mesh of 6 ranks, and the group has 3: pass the group");
    expect_mesh(path, (struct meshed){3, .forgetful = true}, DCP_ERR_ARGUMENT,
                "tensor \"weight\": dcp_mesh_shard() had failed: ndim is 0, but global_shape "
                "begins with 6");
}

/* A status of a stateful entry that is none. */
static dcp_status odd_state_dict(void *context, dcp_state *into)
{
    (void)into;
    return context ? DCP_OK : (dcp_status)4711;
}

static dcp_status odd_load_state_dict(void *context, const dcp_state *from)
{
    (void)context;
    (void)from;
    return (dcp_status)4711;
}

static void test_no_status(void **state)
{
    const char *path = path_in(state, "c");
    int fine;
    for (int loads = 0; loads < 2; loads++) {
        dcp_stateful stateful = {odd_state_dict, odd_load_state_dict, loads ? &fine : NULL};
        dcp_state *root = dcp_state_new();
        must(dcp_state_stateful(root, "odd", &stateful));
        if (loads)
            must(dcp_save(root, path, NULL));
        must_fail(loads ? dcp_load(root, path, NULL, NULL) : dcp_save(root, path, NULL),
                  DCP_ERR_CALLBACK,
                  loads ? "odd: load_state_dict returned 4711, which is not a dcp_status"
                        : "odd: state_dict returned 4711, which is not a dcp_status");
        dcp_state_free(root);
    }
}

/* What the odd rank calls, while the others save. */
enum other_call { CALLS_LOAD, CALLS_WAIT, CALLS_SET, CALLS_BARRIER, CALLS };
static const char *const other_names[CALLS] = {"dcp_load (", "dcp_future_wait (",
                                               "dcp_distribute_state (", "dcp_group_barrier ("};

struct calls {
    enum other_call other;
    int odd_rank;
};

static dcp_status call_other(struct rank *self)
{
    const struct calls *calls = self->context;
    float data[8] = {0};
    char behind[1024];
    dcp_state *root = dcp_state_new();
    dcp_save_options save = {.group = self->group, .timeout_seconds = 60};
    dcp_load_options load = {.group = self->group, .timeout_seconds = 60};
    dcp_distribute_state_options set = {.group = self->group, .timeout_seconds = 60};
    dcp_future *future = NULL;
    dcp_status status = DCP_OK;
    self->group->operations.duplicate = NULL; /* so that the save is committed by waiting for it */
    build(root, self, ODD_NOTHING, false, data);
    snprintf(behind, sizeof behind, "%s-behind", self->path);
    if (calls->other == CALLS_WAIT)
        must(dcp_save_async(root, behind, &save, &future));
    if (self->rank != calls->odd_rank)
        status = dcp_save(root, self->path, &save);
    else if (calls->other == CALLS_LOAD)
        status = dcp_load(root, self->path, &load, NULL);
    else if (calls->other == CALLS_WAIT)
        status = dcp_future_wait(future, 60);
    else if (calls->other == CALLS_SET)
        status = dcp_distribute_state(root, root, &set, NULL);
    else
        status = dcp_group_barrier(self->group, 60);
    snprintf(self->message, sizeof self->message, "%s", dcp_error_message());
    dcp_future_free(future);
    dcp_state_free(root);
    return status == DCP_ERR_GROUP ? dcp_error_set(status, "%s", self->message) : status;
}

/* Each rank hears at once which rank is in which call. */
static void test_other_calls(void **state)
{
    struct rank ranks[RANKS_MAX];
    for (struct calls calls = {0}; calls.other < CALLS; calls.other++)
        for (calls.odd_rank = 0; calls.odd_rank < 3; calls.odd_rank++) {
            struct timespec start, end;
            char odd[100];
            snprintf(odd, sizeof odd, "rank %d in %s", calls.odd_rank, other_names[calls.other]);
            if (calls.odd_rank == 0)
                snprintf(odd, sizeof odd, "rank 0 is in %s", other_names[calls.other]);
            clock_gettime(CLOCK_MONOTONIC, &start);
            ranks_run(ranks, 3, path_in(state, "c"), call_other, &calls);
            clock_gettime(CLOCK_MONOTONIC, &end);
            assert_true(end.tv_sec - start.tv_sec < 20);
            for (int r = 0; r < 3; r++)
                if (ranks[r].status != DCP_ERR_GROUP || !strstr(ranks[r].message, odd) ||
                    !strstr(ranks[r].message, " in dcp_save (comparing saves)"))
                    fail_msg("call %d of rank %d: rank %d ended with %s: %s", (int)calls.other,
                             calls.odd_rank, r, dcp_status_string(ranks[r].status),
                             ranks[r].message);
        }
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(test_save),        directory_test(test_load),
        directory_test(test_absent_rank), directory_test(test_mesh_and_group),
        directory_test(test_other_calls), directory_test(test_no_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
