/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors that lie transposed in their records, as torch.save keeps them, are checked when all of
 * them is loaded, by one thread or several: the record has one checksum in its own order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ranks.h"
#include "format/pt_file.h"
#include "storage/scratch.h"

enum { ELEMENTS = 840000, VIEWS = 4, LARGE = 9000000 }; /* the last is read in parts */

/* The last one is not all of its storage in any order: some of it lies twice. */
static const struct pt_view views[VIEWS] = {
    {"a", 0, 0, 2, {700, 1200}, {1, 700}},
    {"b", 1, 0, 3, {60, 70, 200}, {200, 12000, 1}},
    {"c", 2, 0, 3, {200, 70, 60}, {1, 200, 14000}},
    {"d", 3, 0, 3, {2, 420, 1000}, {0, 1000, 1}},
};

static void expect_elements(const struct pt_view *view, const uint32_t *elements, bool halved)
{
    uint32_t inner = view->ndim == 3 ? view->sizes[2] : 1;
    for (uint32_t i = 0; i < view->sizes[0] * view->sizes[1] * inner; i += 131) {
        uint32_t k = i % inner, j = i / inner % view->sizes[1], row = i / inner / view->sizes[1];
        uint32_t place = row * view->strides[0] + j * view->strides[1] +
                         (view->ndim == 3 ? k * view->strides[2] : 0);
        if (!halved)
            assert_int_equal(elements[i], pt_file_element(view->storage, place));
    }
}

static void *allocate(const dcp_tensor *tensor)
{
    size_t size = dcp_dtype_size(tensor->dtype);
    for (int32_t i = 0; i < tensor->ndim; i++)
        size *= (size_t)tensor->global_shape[i];
    void *memory = calloc(1, size);
    assert_non_null(memory);
    return memory;
}

/* Loads a tensor; converted: as numbers of another width. */
static dcp_status load(const char *path, const struct pt_view *view,
                       const dcp_load_options *options)
{
    bool converted = options->convert;
    dcp_tensor tensor = {.dtype = converted ? DCP_F64 : DCP_F32, .ndim = (int32_t)view->ndim};
    dcp_state *root = dcp_state_new();
    for (uint32_t i = 0; i < view->ndim; i++)
        tensor.global_shape[i] = view->sizes[i];
    tensor.data = allocate(&tensor);
    assert_non_null(dcp_state_tensor(root, view->name, &tensor));
    dcp_status status = dcp_load(root, path, options, NULL);
    if (status == DCP_OK)
        expect_elements(view, tensor.data, converted);
    dcp_state_free(root);
    free(tensor.data);
    return status;
}

/* Damage to a storage of so many elements: at its beginning, in the middle, at the end. */
static void expect_checked(const char *directory, const struct pt_view *view, uint64_t place,
                           uint32_t elements, dcp_load_options options)
{
    char *path = scratch_path(directory, "v.pt");
    dcp_figures figures = {.size_of = sizeof figures};
    options.figures = &figures;
    assert_int_equal(load(path, view, &options), DCP_OK);
    assert_int_equal(figures.bytes_unchecked, 0);
    for (uint64_t at = 0; at < elements; at += elements / 2 - 1) {
        scratch_flip(directory, "v.pt", place + 4 * at, 1);
        assert_int_equal(load(path, view, &options), DCP_ERR_CHECKSUM);
        assert_non_null(strstr(dcp_error_message(), "(v.pt:"));
        scratch_flip(directory, "v.pt", place + 4 * at, 1);
    }
    free(path);
}

static void all_of_a_permuted_tensor_is_checked(void **state)
{
    const struct pt_file file = {
        .views = views, .count = VIEWS, .storages = VIEWS, .elements = ELEMENTS};
    uint64_t places[PT_FILE_STORAGES];
    pt_file_write(&file, *state, "v.pt", places);
    for (int trial = 0; trial < 4; trial += 1 + TRIAL_STEP / 8) {
        bool alone = trial == 0 || trial == 3;
        const dcp_load_options options = {.thread_count = alone ? 1 : 4,
                                          .memory_limit = alone ? 0 : 32 << 20,
                                          .convert = trial >= 2};
        for (size_t v = 0; v < VIEWS; v++)
            expect_checked(*state, &views[v], places[v], ELEMENTS, options);
    }
}

/* One thread checks it. */
static void so_is_one_that_several_threads_read(void **state)
{
    static const struct pt_view large = {"a", 0, 0, 2, {3000, 3000}, {1, 3000}};
    const struct pt_file file = {.views = &large, .count = 1, .storages = 1, .elements = LARGE};
    uint64_t places[PT_FILE_STORAGES];
    pt_file_write(&file, *state, "v.pt", places);
    expect_checked(*state, &large, places[0], LARGE, (dcp_load_options){.thread_count = 2});
}

/* ---- by ranks ---- */

enum { RANKS = 3, ROWS = 700, COLUMNS = 1200 };

/* All of it each; a third each; or a few rows the first, and all others the rest. */
enum division { ALL, THIRDS, FEW_AND_OTHERS, DIVISIONS };

static void choose_rows(int rank, enum division division, int64_t *from, int64_t *end)
{
    static const int64_t thirds[] = {0, 233, 466, ROWS};
    *from = division == THIRDS ? thirds[rank] : division == ALL || rank == 0 ? 0 : 100;
    *end = division == THIRDS ? thirds[rank + 1] : division == ALL || rank > 0 ? ROWS : 100;
}

struct shared_trial {
    const struct pt_view *view; /* "a" */
    enum division division;
    dcp_verification verification;
};

static dcp_status load_rows(struct rank *self)
{
    const struct shared_trial *trial = self->context;
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options options = {
        .group = self->group, .figures = &figures, .verification = trial->verification};
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .sharded = true};
    int64_t end;
    choose_rows(self->rank, trial->division, &tensor.offsets[0], &end);
    tensor.sizes[0] = end - tensor.offsets[0];
    tensor.sizes[1] = COLUMNS;
    uint32_t *elements = tensor.data = allocate(&tensor);
    dcp_state *root = dcp_state_new();
    assert_non_null(dcp_state_tensor(root, "a", &tensor));
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    if (status == DCP_OK) {
        const uint32_t row = (uint32_t)tensor.offsets[0] + 1, *strides = trial->view->strides;
        assert_int_equal(elements[COLUMNS + 1],
                         pt_file_element(0, trial->view->offset + row * strides[0] + strides[1]));
        assert_int_equal(figures.bytes_unchecked, 0);
    }
    dcp_state_free(root);
    free(elements);
    return status;
}

static void expect_shared(struct shared_trial trial, const char *path, const char *directory,
                          const char *name, uint64_t place)
{
    static const uint64_t damaged[] = {5, ROWS * 600 + 120, ELEMENTS - 1};
    struct rank ranks[RANKS_MAX];
    for (int division = 0; division < DIVISIONS; division++) {
        trial.division = (enum division)division;
        ranks_run(ranks, RANKS, path, load_rows, &trial);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(ranks[r].status, DCP_OK);
        for (size_t k = 0; k < sizeof damaged / sizeof *damaged; k += 1 + TRIAL_STEP / 8) {
            scratch_flip(directory, name, place + 4 * damaged[k], 1);
            ranks_run(ranks, RANKS, path, load_rows, &trial);
            for (int r = 0; r < RANKS; r++)
                assert_int_equal(ranks[r].status, DCP_ERR_CHECKSUM);
            scratch_flip(directory, name, place + 4 * damaged[k], 1);
        }
    }
}

/* The one with the first rows checks it. */
static void so_is_one_that_ranks_read_together(void **state)
{
    const struct pt_file file = {
        .views = views, .count = VIEWS, .storages = VIEWS, .elements = ELEMENTS};
    const struct shared_trial trial = {.view = views};
    uint64_t places[PT_FILE_STORAGES];
    char *path = scratch_path(*state, "v.pt"), *stream = scratch_path(*state, "c");
    pt_file_write(&file, *state, "v.pt", places);
    expect_shared(trial, path, *state, "v.pt", places[0]);
    expect_shared(trial, stream, stream, "__0_0.distcp", pt_file_write_stream(&file, *state, "c"));
    free(stream);
    free(path);
}

/* If that is asked for: no rank reads a part of it that others do not complete to the record. */
static void so_is_one_that_is_a_part_of_its_storage(void **state)
{
    static const struct pt_view part = {"a", 0, 5000, 2, {ROWS, COLUMNS}, {COLUMNS, 1}};
    const struct pt_file file = {
        .views = &part, .count = 1, .storages = 1, .elements = ELEMENTS + 9000};
    const struct shared_trial trial = {.view = &part, .verification = DCP_VERIFY_RECORDS};
    uint64_t places[PT_FILE_STORAGES];
    char *path = scratch_path(*state, "v.pt");
    pt_file_write(&file, *state, "v.pt", places);
    expect_shared(trial, path, *state, "v.pt", places[0]);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_of_a_permuted_tensor_is_checked, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(so_is_one_that_several_threads_read, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(so_is_one_that_ranks_read_together, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(so_is_one_that_is_a_part_of_its_storage, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
