/* SPDX-License-Identifier: BSD-3-Clause */
/* What a save is estimated to need is what it takes. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "checkpoint/limit_states.h"
#include "checkpoint/limit_trial.h"
#include "checkpoint/ranks.h"

/* How a state is saved. */
struct way {
    int kind;
    dcp_save_options options;
    dcp_estimate estimate; /* what rank 0 was told */
    bool keeps_plans;
    bool chained; /* an asynchronous save */
};

static void measure(const char *path, uint64_t *bytes, uint64_t *files)
{
    char name[1400];
    struct stat status;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    *bytes = *files = 0;
    for (const struct dirent *entry; (entry = readdir(directory));) {
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        assert_int_equal(stat(name, &status), 0);
        if (S_ISREG(status.st_mode)) {
            *bytes += (uint64_t)status.st_size;
            ++*files;
        }
    }
    closedir(directory);
}

static dcp_status estimate_and_save(struct rank *self)
{
    struct way *way = self->context;
    struct limit_state state;
    dcp_save_options options = way->options;
    dcp_estimate estimate = {.size_of = sizeof estimate};
    dcp_figures figures = {.size_of = sizeof figures};
    limit_state_make(&state, way->kind, self->rank, self->size);
    options.group = self->group;
    options.figures = &figures;
    must(dcp_save_estimate(state.root, self->path, &options, &estimate));
    assert_int_equal(access(self->path, F_OK), -1);
    must(dcp_save(state.root, self->path, &options));
    limit_state_free(&state);
    assert_int_equal(estimate.files, figures.files);
    if (options.compression == DCP_COMPRESSION_NONE)
        assert_int_equal(estimate.bytes, figures.bytes_moved);
    else
        assert_true(estimate.bytes >= figures.bytes_moved);
    if (figures.peak_memory > estimate.memory)
        fail_msg("kind %d: took %llu, estimated %llu", way->kind,
                 (unsigned long long)figures.peak_memory, (unsigned long long)estimate.memory);
    assert_true(estimate.smallest_memory > 0);
    if (options.compression == DCP_COMPRESSION_NONE)
        assert_in_range(estimate.memory, 1, 2 * figures.peak_memory + ((uint64_t)20 << 20));
    if (self->rank == 0)
        way->estimate = estimate;
    return DCP_OK;
}

static void expect(void **state, struct way *way, int size)
{
    char name[32];
    static int number;
    snprintf(name, sizeof name, "c%d", number++);
    uint64_t bytes, files;
    ranks_must(size, path_in(state, name), estimate_and_save, way);
    if (getenv("DCP_TEST_STORAGE"))
        return; /* the bytes are elsewhere */
    measure(path_in(state, name), &bytes, &files);
    assert_int_equal(way->estimate.total_files, files);
    if (way->options.compression == DCP_COMPRESSION_NONE)
        assert_int_equal(way->estimate.total_bytes, bytes);
    else
        assert_true(way->estimate.total_bytes >= bytes);
}

static void test_states(void **state)
{
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        struct way way = {.kind = kind};
        expect(state, &way, 1);
        expect(state, &way, 3);
    }
}

static void test_options(void **state)
{
    static const dcp_save_options ways[] = {
        {.thread_count = 3},
        {.files = DCP_FILE_PER_ITEM},
        {.files = DCP_FILE_PER_ITEM, .thread_count = 4, .io = DCP_IO_POOL},
        {.replicas = DCP_REPLICAS_LOWEST, .skip_sync = true},
        {.io = DCP_IO_BUFFERED, .has_step = true, .step = 77},
        {.memory_limit = 16 << 20},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way way = {.kind = 3, .options = ways[i]};
        expect(state, &way, 2);
    }
}

static void test_compressed(void **state)
{
    struct way way = {.kind = 3,
                      .options = {.compression = DCP_COMPRESSION_ZSTD, .compression_threads = 2}};
    struct limit_state made;
    limit_state_make(&made, 0, 0, 1);
    dcp_status status = dcp_save(made.root, path_in(state, "try"), &way.options);
    limit_state_free(&made);
    if (status == DCP_ERR_UNSUPPORTED)
        skip();
    must(status);
    expect(state, &way, 2);
    way.options.compression_threads = 1;
    expect(state, &way, 1);
}

/* ---- the smallest limit ---- */

static dcp_status write_data(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    return dcp_save_default_write_data(saving);
}

static dcp_status finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t count)
{
    (void)context;
    (void)metadata;
    (void)results;
    (void)count;
    return dcp_save_default_finish(saving);
}

static dcp_status prepare_global_plan(void *context, dcp_saving *saving,
                                      dcp_save_plan *const *plans, int count)
{
    (void)context;
    (void)saving;
    (void)plans;
    (void)count;
    return DCP_OK;
}

static dcp_status save_any_way(dcp_state *state, const char *path, const dcp_save_options *options)
{
    dcp_future *future;
    if (!options->chain)
        return dcp_save(state, path, options);
    RETURN_IF_ERROR(dcp_save_async(state, path, options, &future));
    dcp_status status = dcp_future_wait(future, -1);
    dcp_future_free(future);
    return status;
}

/* It is also the one that the refusal of a smaller one names. */
static dcp_status save_within_smallest(struct rank *self)
{
    const struct way *way = self->context;
    struct limit_state state;
    dcp_save_options options = way->options;
    dcp_save_chain_options chain = {.group = self->group};
    dcp_estimate estimate = {.size_of = sizeof estimate};
    limit_state_make(&state, way->kind, self->rank, self->size);
    options.group = self->group;
    if (way->keeps_plans)
        must(dcp_save_plan_cache_new(&options.plan_cache));
    if (way->chained)
        must(dcp_save_chain_new(&chain, &options.chain));
    must(dcp_save_estimate(state.root, self->path, &options, &estimate));
    options.memory_limit = 1;
    assert_int_equal(save_any_way(state.root, self->path, &options), DCP_ERR_NO_MEMORY);
    assert_int_equal(limit_named(), estimate.smallest_memory);
    options.memory_limit = estimate.smallest_memory;
    must(save_any_way(state.root, self->path, &options));
    dcp_save_chain_free(options.chain);
    dcp_save_plan_cache_free(options.plan_cache);
    limit_state_free(&state);
    return DCP_OK;
}

static void test_smallest_with_hooks_and_kept_plans(void **state)
{
    static const dcp_save_planner planner = {.size_of = sizeof planner};
    static const dcp_storage_writer writers[] = {
        {.size_of = sizeof *writers},
        {.size_of = sizeof *writers, .prepare_global_plan = prepare_global_plan},
        {.size_of = sizeof *writers, .write_data = write_data, .finish = finish},
    };
    char name[32];
    for (int i = 1; i < 32; i++) {
        struct way way = {.kind = i % 3 == 0 ? 0 : 3, .keeps_plans = i & 8, .chained = i & 16};
        way.options.planner = i & 1 ? &planner : NULL;
        way.options.storage_writer = (i >> 1 & 3) != 0 ? &writers[(i >> 1 & 3) - 1] : NULL;
        way.options.skip_sync = true;
        snprintf(name, sizeof name, "smallest%d", i);
        ranks_must(1 + i % 2, path_in(state, name), save_within_smallest, &way);
    }
}

enum { INSIDE = 24 << 20 };

/* An asynchronous save with hooks copies the tensors in its objects, too. */
static void test_smallest_with_tensors_in_objects(void **state)
{
    static const dcp_save_planner planner = {.size_of = sizeof planner};
    const dcp_tensor tensor = {
        .dtype = DCP_U8, .ndim = 1, .global_shape = {INSIDE}, .data = calloc(1, INSIDE)};
    dcp_save_options options = {.planner = &planner, .unflattened = true};
    dcp_save_chain_options chain = {.retries = 0};
    dcp_estimate estimate = {.size_of = sizeof estimate}, plain = {.size_of = sizeof plain};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_future *future;
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(dcp_state_dict(root, "optimizer"), "weight", &tensor);
    must(dcp_save_estimate(root, path_in(state, "c"), &options, &plain));
    must(dcp_save_chain_new(&chain, &options.chain));
    must(dcp_save_estimate(root, path_in(state, "c"), &options, &estimate));
    assert_true(estimate.smallest_memory >= plain.smallest_memory + INSIDE);
    options.memory_limit = 1;
    assert_int_equal(save_any_way(root, path_in(state, "c"), &options), DCP_ERR_NO_MEMORY);
    assert_int_equal(limit_named(), estimate.smallest_memory);
    options.memory_limit = estimate.smallest_memory;
    must(dcp_save_async(root, path_in(state, "c"), &options, &future));
    must(dcp_future_wait(future, -1));
    dcp_future_figures(future, &figures);
    assert_in_range(figures.peak_memory, plain.smallest_memory + INSIDE - (1 << 20),
                    options.memory_limit);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    dcp_state_free(root);
    free(tensor.data);
}

enum { MANY = 5000 };

/* Of so many, the coordinator holds what all ranks write until the metadata is made, beside its
 * buffers, or the beginning of staging. */
static dcp_status estimate_many(struct rank *self)
{
    static float values[512];
    const bool *chained = self->context;
    dcp_save_options options = {.group = self->group};
    dcp_save_chain_options chain = {.group = self->group};
    dcp_estimate estimate = {.size_of = sizeof estimate};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    dcp_placement placement = dcp_shard(0);
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < MANY; i++) {
        dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {512 * self->size}};
        char name[16];
        must(dcp_mesh_shard(&mesh, &tensor, &placement));
        tensor.data = values;
        snprintf(name, sizeof name, "t%d", i);
        dcp_state_tensor(root, name, &tensor);
    }
    if (*chained)
        must(dcp_save_chain_new(&chain, &options.chain));
    must(dcp_save_estimate(root, self->path, &options, &estimate));
    if (*chained) {
        dcp_future *future;
        must(dcp_save_async(root, self->path, &options, &future));
        must(dcp_future_wait(future, -1));
        dcp_future_figures(future, &figures);
        dcp_future_free(future);
    } else {
        options.figures = &figures;
        must(dcp_save(root, self->path, &options));
    }
    if (figures.peak_memory > estimate.memory)
        fail_msg("rank %d: took %llu, estimated %llu", self->rank,
                 (unsigned long long)figures.peak_memory, (unsigned long long)estimate.memory);
    assert_in_range(estimate.memory, 1, 2 * figures.peak_memory + ((uint64_t)20 << 20));
    dcp_save_chain_free(options.chain);
    dcp_state_free(root);
    return DCP_OK;
}

static void test_many_tensors(void **state)
{
    bool chained = false;
    ranks_must(2, path_in(state, "many"), estimate_many, &chained);
    chained = true;
    ranks_must(2, path_in(state, "many, chained"), estimate_many, &chained);
}

static dcp_status estimate_badly(struct rank *self)
{
    struct limit_state state;
    dcp_estimate estimate = {.size_of = self->rank == 1 ? 0 : sizeof estimate};
    dcp_save_options options = {.group = self->group};
    limit_state_make(&state, 0, self->rank, self->size);
    must_fail(dcp_save_estimate(state.root, self->path, &options, &estimate), DCP_ERR_ARGUMENT,
              "rank 1: the estimate has no size_of");
    limit_state_free(&state);
    return DCP_OK;
}

static void test_wrong_arguments(void **state)
{
    ranks_must(2, path_in(state, "c"), estimate_badly, NULL);
    must_fail(dcp_save_estimate(NULL, path_in(state, "c"), NULL, NULL), DCP_ERR_ARGUMENT, "");
}

#define ESTIMATE_TEST(test)                                                                        \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ESTIMATE_TEST(test_states),
        ESTIMATE_TEST(test_options),
        ESTIMATE_TEST(test_compressed),
        ESTIMATE_TEST(test_smallest_with_hooks_and_kept_plans),
        ESTIMATE_TEST(test_smallest_with_tensors_in_objects),
        ESTIMATE_TEST(test_many_tensors),
        ESTIMATE_TEST(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
