/* SPDX-License-Identifier: BSD-3-Clause */
/* One limit is for all that an asynchronous save takes, its staging memory too: in waves when that
 * is less than the state, refused with the smallest sufficient limit when it is less than that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/async/async.h"
#include "checkpoint/limit_states.h"
#include "checkpoint/limit_trial.h"
#include "device/stand_in.h"
#include "fault/failing_allocator.h"

#define MIB ((uint64_t)1 << 20)

struct trial {
    struct limit_trial limits;
    int kind;
    dcp_save_chain_options chain;
    dcp_save_options options;
    dcp_estimate estimate; /* what rank 0 was told */
};

/* Saves, and changes the state when it may be. */
static dcp_status save_within(struct limit_state *made, const char *path,
                              const dcp_save_options *options, dcp_figures *figures)
{
    dcp_future *future;
    *figures = (dcp_figures){.size_of = sizeof *figures};
    dcp_status status = dcp_save_async(made->root, path, options, &future);
    if (status != DCP_OK)
        return status;
    status = dcp_future_wait_staged(future, -1);
    if (status == DCP_OK)
        memset(made->data, 0xee, (size_t)made->used);
    status = dcp_future_wait(future, -1);
    must(dcp_future_figures(future, figures));
    dcp_future_free(future);
    return status;
}

static dcp_status save(struct rank *self)
{
    struct trial *trial = self->context;
    struct limit_state state;
    dcp_save_chain_options how = trial->chain;
    dcp_save_options options = trial->options;
    dcp_figures figures;
    limit_state_make(&state, trial->kind, self->rank, self->size);
    how.group = options.group = self->group;
    options.memory_limit = trial->limits.limit;
    must(dcp_save_chain_new(&how, &options.chain));
    dcp_status status = save_within(&state, self->path, &options, &figures);
    limit_trial_judge(&trial->limits, self, status, &figures);
    dcp_save_chain_free(options.chain);
    limit_state_free(&state);
    return DCP_OK;
}

static dcp_status estimate(struct rank *self)
{
    struct trial *trial = self->context;
    struct limit_state state;
    dcp_save_chain_options how = trial->chain;
    dcp_save_options options = trial->options;
    dcp_estimate estimate = {.size_of = sizeof estimate};
    dcp_figures figures;
    limit_state_make(&state, trial->kind, self->rank, self->size);
    how.group = options.group = self->group;
    must(dcp_save_chain_new(&how, &options.chain));
    must(dcp_save_estimate(state.root, self->path, &options, &estimate));
    must(save_within(&state, self->path, &options, &figures));
    if (figures.peak_memory > estimate.memory)
        fail_msg("kind %d: took %llu, estimated %llu", trial->kind,
                 (unsigned long long)figures.peak_memory, (unsigned long long)estimate.memory);
    assert_in_range(estimate.memory, estimate.staging_memory, 2 * figures.peak_memory + 20 * MIB);
    if (how.staging_limit == 0 && state.used > 0 && self->size == 1)
        assert_in_range(estimate.staging_memory, state.used,
                        (uint64_t)state.used / 4 * 5 + 3 * MIB);
    if (self->rank == 0)
        trial->estimate = estimate;
    dcp_save_chain_free(options.chain);
    limit_state_free(&state);
    return DCP_OK;
}

/* Without a limit what the estimate says is enough, and with its smallest one as well. */
static void look_for_smallest(void **state, struct trial trial, int size)
{
    static int number;
    char name[32];
    snprintf(name, sizeof name, "c%d", number++);
    const char *path = path_in(state, name);
    trial.limits = (struct limit_trial){.body = save, .context = &trial};
    /* A compressor may need all that zstd says. */
    if (trial.options.compression != DCP_COMPRESSION_NONE)
        trial.limits.unused = 4 * MIB;
    trial.options.skip_sync = true;
    limit_trial_refuse(&trial.limits, size, path);
    assert_int_equal(access(path, F_OK), -1);
    trial.options.overwrite = DCP_OVERWRITE_REPLACE;
    ranks_must(size, path, estimate, &trial);
    assert_int_equal(trial.estimate.smallest_memory, trial.limits.smallest);
    limit_trial_accept(&trial.limits, size, path, 80 * MIB);
}

static void test_every_state(void **state)
{
    for (int kind = 0; kind < STATE_KINDS; kind++)
        look_for_smallest(state, (struct trial){.kind = kind}, kind % 3 + 1);
}

static void test_ways_of_staging(void **state)
{
    static const dcp_save_chain_options ways[] = {
        {.staging = DCP_STAGING_OVERLAPPED, .staging_threads = 3, .staging_limit = 3 * MIB},
        {.detect_changes = true},
        {.retries = 1},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        look_for_smallest(state, (struct trial){.kind = 3, .chain = ways[i]}, 2);
}

static void test_ways_of_writing(void **state)
{
    static const dcp_save_options ways[] = {
        {.thread_count = 4},
        {.files = DCP_FILE_PER_ITEM, .thread_count = 2, .io = DCP_IO_POOL},
#if DCP_HAVE_ZSTD
        {.compression = DCP_COMPRESSION_ZSTD, .compression_threads = 2},
#endif
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        look_for_smallest(state, (struct trial){.kind = 3, .options = ways[i]}, 2);
}

static void test_replica_check(void **state)
{
    struct trial trial = {.kind = 4, .options.check_replicas = DCP_REPLICA_CHECK_ALL};
    look_for_smallest(state, trial, 3);
    trial.kind = 0;
    look_for_smallest(state, trial, 2);
}

/* Another attempt needs all of the copy. */
static void test_whole_copies(void **state)
{
    struct limit_state made;
    dcp_save_options options = {.memory_limit = 16 * MIB};
    dcp_figures figures;
    limit_state_make(&made, 2, 0, 1);
    must(dcp_save_chain_new(&(dcp_save_chain_options){.fallback_path = "elsewhere"},
                            &options.chain));
    must_fail(save_within(&made, path_in(state, "c"), &options, &figures), DCP_ERR_NO_MEMORY,
              "the smallest sufficient limit is");
    assert_true(limit_named() > (uint64_t)made.used);
    dcp_save_chain_free(options.chain);
    limit_state_free(&made);
}

/* What is loaded is what there was before the state was changed. */
static void expect_saved(const struct limit_state *made, const char *path)
{
    unsigned char *bytes = made->data;
    must(dcp_load(made->root, path, NULL, NULL));
    for (int64_t i = 0; i < made->used; i += 4093)
        assert_int_equal(bytes[i], (unsigned char)(i * 7 % 251));
}

static void fill(struct limit_state *made)
{
    unsigned char *bytes = made->data;
    for (int64_t i = 0; i < made->used; i++)
        bytes[i] = (unsigned char)(i * 7 % 251);
}

/* Memory that is made beforehand, as the estimate says, is what the first save takes. */
static void test_a_reserved_pool(void **state)
{
    struct limit_state made;
    dcp_save_options options = {.skip_sync = true};
    dcp_estimate estimate = {.size_of = sizeof estimate};
    dcp_figures figures;
    limit_state_make(&made, 3, 0, 1);
    must(dcp_save_chain_new(&(dcp_save_chain_options){0}, &options.chain));
    must(dcp_save_estimate(made.root, path_in(state, "c"), &options, &estimate));
    must(dcp_save_chain_reserve(options.chain, estimate.staging_memory, NULL));
    const void *memory = options.chain->pool.memory;
    must(save_within(&made, path_in(state, "c"), &options, &figures));
    assert_ptr_equal(options.chain->pool.memory, memory);
    dcp_save_chain_free(options.chain);
    limit_state_free(&made);
}

/* The pool of a chain stays from save to save, as long as the limit allows it. */
static void test_a_kept_pool(void **state)
{
    static const struct {
        uint64_t limit;
        bool keeps;
    } saves[] = {{0, false},         {0, true},         {12 * MIB, false}, {12 * MIB, true},
                 {100 * MIB, false}, {100 * MIB, true}, {40 * MIB, false}, {40 * MIB, true},
                 {0, false},         {100 * MIB, true}};
    struct limit_state made;
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .skip_sync = true};
    limit_state_make(&made, 2, 0, 1);
    must(dcp_save_chain_new(&(dcp_save_chain_options){0}, &options.chain));
    size_t kept = 0;
    for (size_t i = 0; i < sizeof saves / sizeof *saves; i++) {
        dcp_figures figures;
        fill(&made);
        options.memory_limit = saves[i].limit;
        must(save_within(&made, path_in(state, "c"), &options, &figures));
        expect_saved(&made, path_in(state, "c"));
        size_t size = options.chain->pool.size;
        assert_int_equal(size == kept, saves[i].keeps);
        kept = size;
        assert_true(figures.peak_memory >= size);
        assert_true(saves[i].limit == 0 || figures.peak_memory <= saves[i].limit);
        /* Most of what there may be is for staging. */
        assert_in_range(size,
                        saves[i].limit == 0 || saves[i].limit > (uint64_t)made.used
                            ? (uint64_t)made.used
                            : saves[i].limit / 3,
                        (uint64_t)made.used + MIB);
    }
    dcp_save_chain_free(options.chain);
    limit_state_free(&made);
}

/* Elements on a device that do not lie row-major there go through buffers of their own. */
static void test_on_a_device(void **state)
{
    enum { ROWS = 1 << 10, COLUMNS = 1 << 13 };
    int32_t *host = malloc(ROWS * COLUMNS * sizeof *host);
    assert_non_null(host);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        host[i] = i;
    dcp_tensor tensor = {.dtype = DCP_I32,
                         .ndim = 2,
                         .global_shape = {COLUMNS, ROWS},
                         .strided = true,
                         .strides = {1, COLUMNS},
                         .device = stand_in(0)};
    tensor.data = stand_in_new(0, host, ROWS * COLUMNS * sizeof *host);
    struct limit_state made = {.root = dcp_state_new(), .data = host};
    dcp_state_tensor(made.root, "w", &tensor);
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .skip_sync = true};
    dcp_estimate estimate = {.size_of = sizeof estimate};
    dcp_figures figures;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        if (asynchronous)
            must(dcp_save_chain_new(&(dcp_save_chain_options){.staging = DCP_STAGING_PINNED},
                                    &options.chain));
        must(dcp_save_estimate(made.root, path_in(state, "c"), &options, &estimate));
        for (uint64_t more = 0; more < 60 * MIB; more = limit_step(more)) {
            options.memory_limit = estimate.smallest_memory + more;
            options.figures = &figures;
            figures = (dcp_figures){.size_of = sizeof figures};
            must(asynchronous ? save_within(&made, path_in(state, "c"), &options, &figures)
                              : dcp_save(made.root, path_in(state, "c"), &options));
            assert_in_range(figures.peak_memory, 1, options.memory_limit);
        }
        options.memory_limit = 0;
        must(asynchronous ? save_within(&made, path_in(state, "c"), &options, &figures)
                          : dcp_save(made.root, path_in(state, "c"), &options));
        assert_in_range(figures.peak_memory, 1, estimate.memory);
    }
    dcp_save_chain_free(options.chain);
    stand_in_free(tensor.data);
    limit_state_free(&made);
}

struct little_space {
    struct limit_state *made;
    const char *path;
    dcp_save_options options;
};

static bool save_in_little_space(void *context)
{
    struct little_space *little = context;
    dcp_figures figures;
    return save_within(little->made, little->path, &little->options, &figures) == DCP_OK;
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
        must(dcp_save_chain_new(&(dcp_save_chain_options){0}, &little.options.chain));
        must(dcp_save_estimate(made.root, little.path, &little.options, &estimate));
        for (uint64_t more = 0; more < 100 * MIB; more = limit_step(more)) {
            little.options.memory_limit = estimate.smallest_memory + more;
            limit_in_little_space(little.options.memory_limit, save_in_little_space, &little);
        }
        dcp_save_chain_free(little.options.chain);
        limit_state_free(&made);
    }
}

/* Every allocation fails in turn, once and from then on: an error, and nothing leaks. */
static void test_failing_allocations(void **state)
{
    needs_files();
    static const struct {
        uint64_t limit;
        dcp_status expected;
    } saves[] = {{1, DCP_ERR_NO_MEMORY}, {6 * MIB, DCP_OK}};
    struct limit_state made;
    limit_state_make(&made, 0, 0, 1);
    dcp_state_tensor(
        made.root, "w",
        &(dcp_tensor){.dtype = DCP_U8, .ndim = 1, .global_shape = {8 * MIB}, .data = made.data});
    made.used = 0;
    for (int i = 0; i < 4; i++) {
        for (long n = 1;; n++) {
            dcp_save_options options = {.memory_limit = saves[i / 2].limit,
                                        .overwrite = DCP_OVERWRITE_REPLACE};
            dcp_figures figures;
            failing_allocator_install(n, i % 2 != 0);
            dcp_status status = dcp_save_chain_new(&(dcp_save_chain_options){0}, &options.chain);
            if (status == DCP_OK)
                status = save_within(&made, path_in(state, "c"), &options, &figures);
            dcp_save_chain_free(options.chain);
            bool reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            assert_true(status == saves[i / 2].expected ||
                        (reached && status == DCP_ERR_NO_MEMORY));
            if (!reached)
                break;
        }
    }
    limit_state_free(&made);
}

static dcp_status save_without_memory(struct rank *self)
{
    struct limit_state made;
    dcp_save_chain_options how = {.group = self->group, .timeout_seconds = 60};
    dcp_save_options options = {.group = self->group,
                                .timeout_seconds = 60,
                                .memory_limit = 1 << 30,
                                .overwrite = DCP_OVERWRITE_REPLACE};
    dcp_figures figures;
    limit_state_make(&made, 0, self->rank, self->size);
    made.used = 0;
    dcp_status status = dcp_save_chain_new(&how, &options.chain);
    if (status == DCP_OK)
        status = save_within(&made, self->path, &options, &figures);
    dcp_save_chain_free(options.chain);
    limit_state_free(&made);
    return status;
}

/* Memory that one of two ranks does not get is a failure of both, at once. */
static void test_a_rank_without_memory(void **state)
{
    for (long n = 20, step = 1;; n += step, step = n / 20) {
        struct rank ranks[RANKS_MAX];
        failing_allocator_install(n, false);
        ranks_run(ranks, 2, path_in(state, "c"), save_without_memory, NULL);
        bool reached = failing_allocator_reached();
        failing_allocator_remove();
        for (int r = 0; r < 2 && !reached; r++)
            assert_int_equal(ranks[r].status, DCP_OK);
        for (int r = 0; r < 2 && reached; r++)
            assert_true(ranks[r].status == DCP_OK || ranks[r].status == DCP_ERR_NO_MEMORY);
        if (!reached)
            break;
    }
}

static bool refuse(void *context, const dcp_progress *progress)
{
    (void)context;
    return progress->phase != DCP_PHASE_WRITING;
}

/* When a save has ended, however, nobody reads the tensors any more, nor writes to the pool. */
static void test_a_failed_save_lets_go(void **state)
{
    const size_t size = 96 * MIB;
    for (int i = 0; i < 5; i++) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        dcp_tensor tensor = {
            .dtype = DCP_U8, .ndim = 1, .global_shape = {(int64_t)size}, .data = memory};
        dcp_save_chain_options how = {.staging = DCP_STAGING_OVERLAPPED, .log_failures = true};
        dcp_save_options options = {.progress = refuse};
        dcp_state *root = dcp_state_new();
        dcp_future *future;
        dcp_state_tensor(root, "w", &tensor);
        must(dcp_save_chain_new(&how, &options.chain));
        must(dcp_save_async(root, path_in(state, "c"), &options, &future));
        must_fail(dcp_future_wait(future, -1), DCP_ERR_CANCELLED, "");
        munmap(memory, size);
        must(dcp_save_chain_reserve(options.chain, 4096, NULL));
        dcp_future_free(future);
        dcp_save_chain_free(options.chain);
        dcp_state_free(root);
    }
}

#define LIMIT_TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIMIT_TEST(test_every_state),
        LIMIT_TEST(test_ways_of_staging),
        LIMIT_TEST(test_ways_of_writing),
        LIMIT_TEST(test_replica_check),
        LIMIT_TEST(test_whole_copies),
        LIMIT_TEST(test_a_reserved_pool),
        LIMIT_TEST(test_a_kept_pool),
        LIMIT_TEST(test_on_a_device),
        LIMIT_TEST(test_in_little_address_space),
        LIMIT_TEST(test_failing_allocations),
        LIMIT_TEST(test_a_rank_without_memory),
        LIMIT_TEST(test_a_failed_save_lets_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
