/* SPDX-License-Identifier: BSD-3-Clause */
/* A limit on memory is kept; one that is too small is refused with the smallest sufficient limit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/limit_states.h"
#include "checkpoint/limit_trial.h"
#include "fault/failing_allocator.h"

struct trial {
    struct limit_trial limits;
    int kind;
    dcp_save_options options;
};

static dcp_status save(struct rank *self)
{
    struct trial *trial = self->context;
    struct limit_state state;
    dcp_save_options options = trial->options;
    dcp_figures figures = {.size_of = sizeof figures};
    limit_state_make(&state, trial->kind, self->rank, self->size);
    options.group = self->group;
    options.figures = &figures;
    options.memory_limit = trial->limits.limit;
    dcp_status status = dcp_save(state.root, self->path, &options);
    limit_trial_judge(&trial->limits, self, status, &figures);
    limit_state_free(&state);
    return DCP_OK;
}

/* Saves with the smallest limit, with one byte less, and with some more. */
static void look_for_smallest_at(const char *path, struct trial trial, int size)
{
    trial.limits = (struct limit_trial){.body = save, .context = &trial};
    limit_trial_refuse(&trial.limits, size, path);
    assert_int_equal(access(path, F_OK), -1);
    trial.options.overwrite = DCP_OVERWRITE_REPLACE;
    limit_trial_accept(&trial.limits, size, path, (uint64_t)40 << 20);
}

static void look_for_smallest(void **state, struct trial trial, int size)
{
    static int number;
    char name[32];
    snprintf(name, sizeof name, "c%d", number++);
    look_for_smallest_at(path_in(state, name), trial, size);
}

static void test_every_state(void **state)
{
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        struct trial trial = {.kind = kind, .options.skip_sync = true};
        look_for_smallest(state, trial, 1);
        look_for_smallest(state, trial, 3);
    }
}

/* A save keeps the whole path, in case the process changes its directory. */
static void test_relative_path(void **state)
{
    struct trial trial = {.kind = 0, .options.skip_sync = true};
    char before[4096];
    needs_files();
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(*state), 0);
    look_for_smallest_at("c", trial, 1);
    look_for_smallest_at("d", trial, 3);
    assert_int_equal(chdir(before), 0);
}

static dcp_status let_pass(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving;
    return plan ? DCP_OK : DCP_ERR_INTERNAL;
}

static void test_options(void **state)
{
    static const dcp_save_planner planner = {.size_of = sizeof planner, .finish_plan = let_pass};
    static const dcp_save_options ways[] = {
        {.planner = &planner},
        {.thread_count = 4},
        {.files = DCP_FILE_PER_ITEM, .thread_count = 2},
        {.io = DCP_IO_POOL},
        {.io = DCP_IO_BUFFERED, .coordinator = 1},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        look_for_smallest(state, (struct trial){.kind = 3, .options = ways[i]}, 2);
}

/* The lists of a replica check are counted, whether there is little else or a lot of them. */
static void test_replica_check(void **state)
{
    static const int kinds[] = {0, STATE_REPLICAS};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct trial trial = {.kind = kinds[i], .options.skip_sync = true};
        trial.options.check_replicas = DCP_REPLICA_CHECK_ALL;
        look_for_smallest(state, trial, 4);
        trial.options.check_replicas = DCP_REPLICA_CHECK_SAMPLED;
        look_for_smallest(state, trial, 2);
    }
}

static void test_compressed(void **state)
{
    struct trial trial = {.kind = 3,
                          .options = {.compression = DCP_COMPRESSION_ZSTD,
                                      .compression_threads = 3,
                                      .skip_sync = true}};
    struct limit_state made;
    limit_state_make(&made, 0, 0, 1);
    trial.options.memory_limit = (uint64_t)1 << 40;
    dcp_status status = dcp_save(made.root, path_in(state, "try"), &trial.options);
    limit_state_free(&made);
    if (status == DCP_ERR_UNSUPPORTED)
        skip();
    must(status);
    look_for_smallest(state, trial, 1);
    look_for_smallest(state, trial, 2);
}

static dcp_status save_with_own_limit(struct rank *self)
{
    struct limit_state state;
    dcp_save_options options = {.group = self->group,
                                .memory_limit = self->rank == 0 ? 0 : (uint64_t)1 << 30};
    limit_state_make(&state, 0, self->rank, self->size);
    must_fail(dcp_save(state.root, self->path, &options), DCP_ERR_ARGUMENT,
              "memory_limit is 0 on rank 0, but 1073741824 on rank 1");
    options.memory_limit = self->rank == 0 ? 0 : 1;
    dcp_status status = dcp_save(state.root, self->path, &options);
    assert_true(status == DCP_ERR_NO_MEMORY || status == DCP_ERR_ARGUMENT);
    limit_state_free(&state);
    return DCP_OK;
}

static void test_ranks_that_disagree(void **state)
{
    ranks_must(2, path_in(state, "c"), save_with_own_limit, NULL);
}

static dcp_status save_within(const struct limit_state *made, const char *path, uint64_t limit)
{
    dcp_save_options options = {.memory_limit = limit, .overwrite = DCP_OVERWRITE_REPLACE};
    return dcp_save(made->root, path, &options);
}

static dcp_status estimate(const struct limit_state *made, const char *path, uint64_t limit)
{
    dcp_save_options options = {.memory_limit = limit};
    dcp_estimate estimate = {.size_of = sizeof estimate};
    return dcp_save_estimate(made->root, path, &options, &estimate);
}

/* Every allocation fails in turn, once and from then on: an error, and nothing leaks. */
static void expect_failures(dcp_status (*work)(const struct limit_state *, const char *, uint64_t),
                            const char *path, uint64_t limit, dcp_status expected)
{
    struct limit_state made;
    limit_state_make(&made, 0, 0, 1);
    for (int from_then_on = 0; from_then_on < 2; from_then_on++) {
        for (long n = 1;; n++) {
            failing_allocator_install(n, from_then_on != 0);
            dcp_status status = work(&made, path, limit);
            bool reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            /* What is only tidied up after the commit may fail. */
            assert_true(status == expected || (reached && status == DCP_ERR_NO_MEMORY));
            if (!reached)
                break;
        }
    }
    limit_state_free(&made);
}

static void test_failing_allocations(void **state)
{
    needs_files();
    expect_failures(estimate, path_in(state, "c"), 0, DCP_OK);
    expect_failures(save_within, path_in(state, "c"), 4 << 20, DCP_OK);
    expect_failures(save_within, path_in(state, "c"), 1, DCP_ERR_NO_MEMORY);
}

struct little_space {
    const struct limit_state *made;
    const char *path;
    dcp_save_options options;
};

static bool save_in_little_space(void *context)
{
    const struct little_space *little = context;
    return dcp_save(little->made->root, little->path, &little->options) == DCP_OK;
}

static void test_in_little_address_space(void **state)
{
    needs_files();
    if (!limit_space_is_ours())
        skip();
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        struct limit_state made;
        dcp_estimate estimate = {.size_of = sizeof estimate};
        char name[32];
        snprintf(name, sizeof name, "c%d", kind);
        struct little_space little = {
            .made = &made,
            .path = path_in(state, name),
            .options = {.thread_count = 2, .overwrite = DCP_OVERWRITE_REPLACE}};
        limit_state_make(&made, kind, 0, 1);
        must(dcp_save_estimate(made.root, little.path, &little.options, &estimate));
        for (uint64_t more = 0; more < 30000000; more = limit_step(more)) {
            little.options.memory_limit = estimate.smallest_memory + more;
            limit_in_little_space(little.options.memory_limit, save_in_little_space, &little);
        }
        limit_state_free(&made);
    }
}

#define LIMIT_TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIMIT_TEST(test_every_state),
        LIMIT_TEST(test_relative_path),
        LIMIT_TEST(test_options),
        LIMIT_TEST(test_replica_check),
        LIMIT_TEST(test_compressed),
        LIMIT_TEST(test_ranks_that_disagree),
        LIMIT_TEST(test_failing_allocations),
        LIMIT_TEST(test_in_little_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
