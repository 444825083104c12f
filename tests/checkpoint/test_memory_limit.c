/* SPDX-License-Identifier: BSD-3-Clause */
/* A limit on memory is kept; one that is too small is refused with the smallest that would do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/limit_states.h"
#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

struct trial {
    int kind;
    dcp_save_options options;
    bool too_small;
    _Atomic uint64_t smallest; /* that was named, or is expected */
};

static uint64_t named(void)
{
    const char *text = strstr(dcp_error_message(), "the smallest that would do is ");
    return text ? strtoull(strchr(text, 's') + strlen("smallest that would do is "), NULL, 10) : 0;
}

static dcp_status save(struct rank *self)
{
    struct trial *trial = self->context;
    struct limit_state state;
    dcp_save_options options = trial->options;
    dcp_figures figures = {.size_of = sizeof figures};
    limit_state_make(&state, trial->kind, self->rank, self->size);
    options.group = self->group;
    options.figures = &figures;
    dcp_status status = dcp_save(state.root, self->path, &options);
    limit_state_free(&state);
    if (trial->too_small) {
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
        assert_true(named() > options.memory_limit);
        if (trial->smallest != 0)
            assert_int_equal(named(), trial->smallest);
        if (self->rank == 0)
            trial->smallest = named();
        assert_int_equal(figures.bytes_moved, 0);
        return DCP_OK;
    }
    must(status);
    assert_true(figures.peak_memory <= options.memory_limit);
    return DCP_OK;
}

/* Saves with the smallest limit, with one byte less, and with some more. */
static void look_for_smallest(void **state, struct trial trial, int size)
{
    static int number;
    char name[32];
    snprintf(name, sizeof name, "c%d", number++);
    const char *path = path_in(state, name);
    trial.too_small = true;
    trial.options.memory_limit = 1;
    ranks_must(size, path, save, &trial);
    trial.options.memory_limit = trial.smallest - 1;
    ranks_must(size, path, save, &trial);
    trial.options.memory_limit = trial.smallest / 2;
    ranks_must(size, path, save, &trial);
    assert_int_equal(access(path, F_OK), -1);
    trial.too_small = false;
    trial.options.overwrite = DCP_OVERWRITE_REPLACE;
    for (uint64_t more = 0; more < (uint64_t)40 << 20; more = more * 6 + 300000) {
        trial.options.memory_limit = trial.smallest + more;
        ranks_must(size, path, save, &trial);
    }
}

static void test_every_state(void **state)
{
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        struct trial trial = {.kind = kind, .options.skip_sync = true};
        look_for_smallest(state, trial, 1);
        look_for_smallest(state, trial, 3);
    }
}

static void test_options(void **state)
{
    static const dcp_save_options ways[] = {
        {.thread_count = 4},
        {.files = DCP_FILE_PER_ITEM, .thread_count = 2},
        {.io = DCP_IO_POOL},
        {.io = DCP_IO_BUFFERED, .coordinator = 1},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        look_for_smallest(state, (struct trial){.kind = 3, .options = ways[i]}, 2);
}

static void test_compressed(void **state)
{
    struct trial trial = {.kind = 3,
                          .options = {.compression = DCP_COMPRESSION_ZSTD,
                                      .compression_threads = 3,
                                      .skip_sync = true,
                                      .memory_limit = (uint64_t)1 << 40}};
    struct limit_state made;
    limit_state_make(&made, 0, 0, 1);
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
              "memory_limit is 0 on rank 0 and 1073741824 on rank 1");
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
    dcp_estimate told = {.size_of = sizeof told};
    return dcp_save_estimate(made->root, path, &options, &told);
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
    expect_failures(estimate, path_in(state, "c"), 0, DCP_OK);
    expect_failures(save_within, path_in(state, "c"), 4 << 20, DCP_OK);
    expect_failures(save_within, path_in(state, "c"), 1, DCP_ERR_NO_MEMORY);
}

/* Sanitizers take address space of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Bytes of this process's address space. */
static uint64_t address_space(void)
{
    char pages[64] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || !fgets(pages, sizeof pages, file))
        return 0;
    fclose(file);
    return strtoull(pages, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What malloc takes more than it is asked for. */
#define MALLOC_WASTE ((uint64_t)1 << 20)

static int save_in_little_space(const struct limit_state *made, const char *path, uint64_t limit)
{
    dcp_save_options options = {
        .memory_limit = limit, .thread_count = 2, .overwrite = DCP_OVERWRITE_REPLACE};
    uint64_t most = address_space() + limit + MALLOC_WASTE;
    struct rlimit space = {most, most};
    if (setrlimit(RLIMIT_AS, &space) != 0)
        return 2;
    if (dcp_save(made->root, path, &options) == DCP_OK)
        return 0;
    fprintf(stderr, "%s\n", dcp_error_message());
    return 1;
}

static void test_in_little_address_space(void **state)
{
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        struct limit_state made;
        dcp_estimate estimate = {.size_of = sizeof estimate};
        dcp_save_options options = {.thread_count = 2};
        char name[32];
        snprintf(name, sizeof name, "c%d", kind);
        limit_state_make(&made, kind, 0, 1);
        must(dcp_save_estimate(made.root, path_in(state, name), &options, &estimate));
        for (uint64_t more = 0; more < 30000000; more = more * 4 + 1000000) {
            pid_t child = fork();
            if (child == 0)
                _exit(save_in_little_space(&made, path_in(state, name),
                                           estimate.smallest_memory + more));
            int status = 0;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 0);
        }
        limit_state_free(&made);
    }
}
#else
static void test_in_little_address_space(void **state)
{
    (void)state;
    skip();
}
#endif

#define LIMIT_TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIMIT_TEST(test_every_state),         LIMIT_TEST(test_options),
        LIMIT_TEST(test_compressed),          LIMIT_TEST(test_ranks_that_disagree),
        LIMIT_TEST(test_failing_allocations), LIMIT_TEST(test_in_little_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
