/* SPDX-License-Identifier: BSD-3-Clause */
/* The figures of a save and a load: true, on every rank, and of failures too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/slow_clock.h"

#define ROWS    64
#define COLUMNS 1024

/* This rank's rows of a matrix, and a number that all ranks have. */
static dcp_state *sample(const struct rank *self, float *rows)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    dcp_placement by_rows = dcp_shard(0);
    dcp_tensor matrix = {.dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    dcp_state *root = dcp_state_new();
    must(dcp_mesh_shard(&mesh, &matrix, &by_rows));
    matrix.data = rows;
    dcp_state_tensor(root, "matrix", &matrix);
    dcp_state_int(root, "step", 7);
    must(dcp_state_status(root));
    return root;
}

static uint64_t shard_size(const char *path, int rank)
{
    char name[1200];
    struct stat status;
    snprintf(name, sizeof name, "%s/__%d_0.distcp", path, rank);
    assert_int_equal(stat(name, &status), 0);
    return (uint64_t)status.st_size;
}

static double parts_of(const dcp_figures *figures)
{
    return figures->planning_seconds + figures->staging_seconds + figures->writing_seconds +
           figures->reading_seconds + figures->syncing_seconds + figures->commit_seconds;
}

static dcp_status save_and_load(struct rank *self)
{
    static const uint64_t mine = (uint64_t)ROWS / 2 * COLUMNS * sizeof(float);
    float *rows = test_calloc(ROWS * COLUMNS, sizeof *rows);
    dcp_state *root = sample(self, rows);
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options saving = {.group = self->group, .figures = &figures};
    must(dcp_save(root, self->path, &saving));
    assert_int_equal(figures.files, 1);
    assert_int_equal(figures.items, self->rank == 0 ? 2 : 1);
    assert_int_equal(figures.bytes_moved, shard_size(self->path, self->rank));
    assert_in_range(figures.bytes_wanted, mine, figures.bytes_moved);
    assert_true(figures.planning_seconds > 0 && figures.staging_seconds > 0);
    assert_true(figures.writing_seconds > 0 && figures.syncing_seconds > 0);
    assert_true(figures.commit_seconds > 0 && figures.reading_seconds == 0);
    assert_true(parts_of(&figures) <= figures.total_seconds + 1e-9);
    assert_true(!figures.direct && !figures.ring && figures.bytes_read == 0);

    dcp_load_options loading = {.group = self->group, .figures = &figures};
    must(dcp_load(root, self->path, &loading, NULL));
    assert_int_equal(figures.size_of, sizeof figures);
    assert_int_equal(figures.items, 2);
    assert_int_equal(figures.bytes_moved, mine);
    assert_int_equal(figures.bytes_wanted, mine);
    assert_int_equal(figures.files, self->rank == 0 ? 1 : 2);
    assert_in_range(figures.bytes_read, mine, 2 * mine);
    assert_true(figures.planning_seconds > 0 && figures.reading_seconds > 0);
    assert_true(figures.commit_seconds > 0 && figures.writing_seconds == 0);
    assert_true(parts_of(&figures) <= figures.total_seconds + 1e-9);
    dcp_state_free(root);
    test_free(rows);
    return DCP_OK;
}

static void test_every_rank_has_them(void **state)
{
    needs_files();
    slow_clock_install();
    ranks_must(2, path_in(state, "c"), save_and_load, NULL);
    slow_clock_remove();
}

static void test_how_large_files_were_moved(void **state)
{
    needs_files();
    static const size_t bytes = (size_t)32 << 20;
    struct rank alone = {.size = 1};
    float *rows = test_calloc(ROWS * COLUMNS, sizeof *rows);
    void *data = test_calloc(1, bytes);
    dcp_tensor large = {.dtype = DCP_U8, .ndim = 1, .global_shape = {(int64_t)bytes}, .data = data};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options saving = {.figures = &figures, .io = DCP_IO_POOL | DCP_IO_BUFFERED};
    dcp_load_options loading = {.figures = &figures, .io = DCP_IO_RING};
    dcp_state *root = sample(&alone, rows);
    dcp_state_tensor(root, "large", &large);
    must(dcp_save(root, path_in(state, "c"), &saving));
    assert_true(!figures.ring && !figures.direct);
    dcp_status status = dcp_load(root, path_in(state, "c"), &loading, NULL);
    assert_true(status == DCP_OK ? figures.ring : status == DCP_ERR_UNSUPPORTED);
    saving.io = DCP_IO_DIRECT;
    status = dcp_save(root, path_in(state, "d"), &saving);
    assert_true(status == DCP_OK ? figures.direct : status == DCP_ERR_UNSUPPORTED);
    dcp_state_free(root);
    test_free(data);
    test_free(rows);
}

static dcp_status fail_to_save(struct rank *self)
{
    static float rows[ROWS * COLUMNS];
    dcp_state *root = sample(self, rows);
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options saving = {.group = self->group, .figures = &figures};
    must_fail(dcp_save(root, self->path, &saving), DCP_ERR_EXISTS, "overwriting is refused");
    assert_true(figures.total_seconds > 0 && figures.staging_seconds > 0);
    assert_true(figures.files == 0 && figures.bytes_moved == 0 && figures.commit_seconds == 0);
    dcp_load_options loading = {.group = self->group, .figures = &figures};
    must_fail(dcp_load(root, "/nowhere", &loading, NULL), DCP_ERR_NOT_FOUND, "/nowhere");
    assert_true(figures.planning_seconds > 0 && figures.staging_seconds == 0);
    assert_int_equal(figures.items, 0);
    dcp_state_free(root);
    return DCP_OK;
}

static void test_failures_have_them(void **state)
{
    struct rank alone = {.size = 1};
    static float rows[ROWS * COLUMNS];
    dcp_state *root = sample(&alone, rows);
    must(dcp_save(root, path_in(state, "c"), NULL));
    dcp_state_free(root);
    ranks_must(2, path_in(state, "c"), fail_to_save, NULL);
}

/* What a caller has whose header knew fewer fields. */
struct older {
    size_t size_of;
    double total_seconds;
    char behind[8];
};

static dcp_status save_with_sizes(struct rank *self)
{
    static float rows[ROWS * COLUMNS];
    struct older older = {.size_of = offsetof(struct older, behind), .behind = "mine"};
    dcp_figures unsaid = {0};
    dcp_state *root = sample(self, rows);
    dcp_save_options saving = {.group = self->group, .figures = (dcp_figures *)&older};
    must(dcp_save(root, self->path, &saving));
    assert_true(older.total_seconds > 0);
    assert_string_equal(older.behind, "mine");
    assert_int_equal(older.size_of, offsetof(struct older, behind));
    if (self->rank == 1)
        saving.figures = &unsaid;
    must_fail(dcp_save(root, self->path, &saving), DCP_ERR_ARGUMENT,
              "rank 1: figures has size_of 0");
    dcp_load_options loading = {.group = self->group, .figures = saving.figures};
    must_fail(dcp_load(root, self->path, &loading, NULL), DCP_ERR_ARGUMENT,
              "rank 1: figures has size_of 0");
    dcp_state_free(root);
    return DCP_OK;
}

static void test_they_travel_with_their_size(void **state)
{
    ranks_must(2, path_in(state, "c"), save_with_sizes, NULL);
}

/* The library's memory as an allocator sees it. */
struct watched {
    atomic_size_t taken;
    atomic_size_t most;
};

static void *watch(struct watched *watched, size_t *block, size_t before, size_t size)
{
    if (!block)
        return NULL;
    size_t taken = atomic_fetch_add(&watched->taken, size - before) + size - before;
    if (taken > atomic_load(&watched->most))
        atomic_store(&watched->most, taken);
    *block = size;
    return block + 2;
}

static void *watched_allocate(void *context, size_t size)
{
    return watch(context, malloc(size + 2 * sizeof(size_t)), 0, size);
}

static void *watched_reallocate(void *context, void *block, size_t size)
{
    size_t *start = block ? (size_t *)block - 2 : NULL;
    size_t before = start ? *start : 0;
    return watch(context, realloc(start, size + 2 * sizeof(size_t)), before, size);
}

static void watched_release(void *context, void *block)
{
    struct watched *watched = context;
    size_t *start = block ? (size_t *)block - 2 : NULL;
    atomic_fetch_sub(&watched->taken, start ? *start : 0);
    free(start);
}

/* What a ring takes that does not come from the allocator, at most, and the stacks of the threads
 * that are in its place where there is none. */
#define RING ((size_t)70000 + ((size_t)2 << 20))

#define ELEMENTS 1024

/* As many tensors as asked for, of 4 KiB each, all of them with the same data. */
static dcp_state *many(int count, float data[ELEMENTS])
{
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS}, .data = data};
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor %d", i);
        dcp_state_tensor(root, name, &tensor);
    }
    must(dcp_state_status(root));
    return root;
}

/* What is nobody's: the account itself, an open directory, and room for the path by which a reader
 * finds it again. */
enum { APART = 400 + 4120 };

static void test_memory_is_what_the_allocator_gives(void **state)
{
    needs_files();
    struct watched watched = {0};
    dcp_allocator allocator = {watched_allocate, watched_reallocate, watched_release, &watched};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options saving = {.figures = &figures};
    dcp_load_options loading = {.figures = &figures, .thread_count = 1};
    float data[ELEMENTS] = {0};
    must(dcp_set_allocator(&allocator));
    dcp_state *root = many(3000, data);
    size_t before = watched.taken;
    watched.most = 0;
    must(dcp_save(root, path_in(state, "c"), &saving));
    assert_in_range(figures.peak_memory, watched.most - before - APART,
                    watched.most - before + RING);
    assert_in_range(figures.peak_memory, 100000, 20 << 20);
    assert_int_equal(watched.taken, before);
    watched.most = 0;
    must(dcp_load(root, path_in(state, "c"), &loading, NULL));
    assert_in_range(figures.peak_memory, watched.most - before - APART,
                    watched.most - before + RING);
    dcp_state_free(root);
    assert_int_equal(watched.taken, 0);
    must(dcp_set_allocator(NULL));
}

/* Rank 0 alone saves a lot, rank 1 at the same time a little; each has a group of its own. */
static dcp_status save_alone(struct rank *self)
{
    char path[1200];
    uint64_t *peaks = self->context;
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options saving = {.figures = &figures, .overwrite = DCP_OVERWRITE_REPLACE};
    dcp_load_options loading = {.figures = &figures, .thread_count = 1};
    float data[ELEMENTS] = {0};
    dcp_state *root = many(self->rank == 0 ? 2000 : 2, data);
    snprintf(path, sizeof path, "%s.%d", self->path, self->rank);
    for (int i = 0; i < 20; i++) {
        must(dcp_save(root, path, &saving));
        must(dcp_load(root, path, &loading, NULL));
        if (figures.peak_memory > peaks[self->rank])
            peaks[self->rank] = figures.peak_memory;
    }
    dcp_state_free(root);
    return DCP_OK;
}

static void test_memory_of_others_is_not_counted(void **state)
{
    uint64_t peaks[2] = {0};
    ranks_must(2, path_in(state, "c"), save_alone, peaks);
    assert_true(peaks[0] > 1000000);
    assert_true(peaks[1] < 300000);
}

static void test_loaded_memory_is_not_counted(void **state)
{
    static const int64_t bytes = 24 << 20;
    char *text = test_malloc((size_t)bytes);
    memset(text, 'x', (size_t)bytes);
    dcp_tensor large = {.dtype = DCP_U8, .ndim = 1, .global_shape = {bytes}, .data = text};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "large", &large);
    must(dcp_save(root, path_in(state, "c"), NULL));
    dcp_state_free(root);
    root = dcp_state_new();
    large.data = NULL;
    dcp_state_tensor(root, "large", &large);
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options loading = {.figures = &figures};
    must(dcp_load(root, path_in(state, "c"), &loading, NULL));
    assert_in_range(figures.peak_memory, 10000, 12 << 20); /* 8 MiB are buffers */
    dcp_state_free(root);
    test_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_rank_has_them, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_how_large_files_were_moved, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_memory_is_what_the_allocator_gives, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_memory_of_others_is_not_counted, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_loaded_memory_is_not_counted, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_failures_have_them, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_they_travel_with_their_size, directory_setup,
                                        directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
