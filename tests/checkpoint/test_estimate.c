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

#include "checkpoint/limit_states.h"
#include "checkpoint/ranks.h"

/* How a state is saved. */
struct way {
    int kind;
    dcp_save_options options;
    dcp_estimate estimate; /* what rank 0 was told */
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
        ESTIMATE_TEST(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
