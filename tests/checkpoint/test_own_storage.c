/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves to a storage of the caller's own, and loads from it: as much is read as of files and no
 * more, by several threads, of everything that a directory may hold. Storages that fail or lie are
 * in test_own_storage_faults.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/own_storage.h"
#include "checkpoint/ranks.h"
#include "checkpoint/whole_state.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- no more than is needed ---- */

enum { ROWS = 12288, COLUMNS = 512, SMALL = 24 };

static float value_at(int64_t row, int64_t column)
{
    return (float)(row * COLUMNS + column);
}

/* Rows of one matrix, all of which are divided evenly, and small vectors that all ranks have. */
struct rows {
    dcp_state *root;
    float *matrix;
    float (*small)[4];
    int64_t first, count;
};

static void rows_make(struct rows *rows, int rank, int size, bool filled)
{
    rows->count = ROWS / size;
    rows->first = rank * rows->count;
    rows->matrix = calloc((size_t)rows->count * COLUMNS, sizeof *rows->matrix);
    rows->small = calloc(SMALL, sizeof *rows->small);
    rows->root = dcp_state_new();
    for (int64_t i = 0; filled && i < rows->count * COLUMNS; i++)
        rows->matrix[i] = value_at(rows->first + i / COLUMNS, i % COLUMNS);
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 2,
                               .sharded = true,
                               .data = rows->matrix,
                               .global_shape = {ROWS, COLUMNS},
                               .offsets = {rows->first, 0},
                               .sizes = {rows->count, COLUMNS}};
    dcp_state_tensor(rows->root, "matrix", &tensor);
    for (int i = 0; i < SMALL; i++) {
        char name[32];
        snprintf(name, sizeof name, "small%d", i);
        for (int k = 0; filled && k < 4; k++)
            rows->small[i][k] = (float)(4 * i + k);
        const dcp_tensor vector = {
            .dtype = DCP_F32, .ndim = 1, .data = rows->small[i], .global_shape = {4}};
        dcp_state_tensor(rows->root, name, &vector);
    }
}

static dcp_status rows_check(const struct rows *rows)
{
    for (int64_t i = 0; i < rows->count * COLUMNS; i++)
        if (rows->matrix[i] != value_at(rows->first + i / COLUMNS, i % COLUMNS))
            return dcp_error_set(DCP_ERR_INTERNAL, "element %d is wrong", (int)i);
    for (int i = 0; i < 4 * SMALL; i++)
        if (rows->small[i / 4][i % 4] != (float)i)
            return dcp_error_set(DCP_ERR_INTERNAL, "small element %d is wrong", i);
    return DCP_OK;
}

static void rows_free(struct rows *rows)
{
    dcp_state_free(rows->root);
    free(rows->matrix);
    free(rows->small);
}

/* context: whether by a queue; NULL: not. */
static dcp_status save_rows(struct rank *self)
{
    struct own_storage own;
    struct rows rows;
    rows_make(&rows, self->rank, self->size, true);
    own_storage_init(&own, self->path);
    if (self->context)
        own_storage_add_queue(&own);
    const dcp_save_options options = {.group = self->group,
                                      .storage = &own.table,
                                      .overwrite = DCP_OVERWRITE_REPLACE,
                                      .thread_count = 2};
    dcp_status status = dcp_save(rows.root, "store://rows", &options);
    if (status == DCP_OK && own.open != 0)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%d handles are open", (int)own.open);
    rows_free(&rows);
    return status;
}

/* How ranks load rows, and what they must keep to. */
struct reading {
    dcp_load_options options;
    bool by_hooks; /* read_data is the caller's, and calls the library's */
    bool alike;    /* all ranks want everything */
    bool queued;   /* by a queue of the storage's */
    size_t request_size;
    struct own_storage stores[RANKS_MAX];
};

static dcp_status read_as_ever(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    (void)context, (void)plan;
    return dcp_load_default_read_data(loading);
}

static dcp_status load_rows(struct rank *self)
{
    struct reading *reading = self->context;
    struct own_storage *own = &reading->stores[self->rank];
    const dcp_storage_reader reader = {.size_of = sizeof reader, .read_data = read_as_ever};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = reading->options;
    struct rows rows;
    own_storage_init(own, self->path);
    own->slow = 200;
    own->request_size = reading->request_size;
    own->fails_in = "read"; /* of which calls are counted */
    if (reading->queued)
        own_storage_add_queue(own);
    if (reading->by_hooks)
        options.storage_reader = &reader;
    options.group = self->group;
    options.storage = &own->table;
    options.figures = &figures;
    rows_make(&rows, reading->alike ? 0 : self->rank, reading->alike ? 1 : self->size, false);
    dcp_status status = dcp_load(rows.root, "store://rows", &options, NULL);
    if (status == DCP_OK)
        status = rows_check(&rows);
    if (status == DCP_OK && figures.bytes_read != own->data)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%zu bytes are said to be read, %zu are",
                               (size_t)figures.bytes_read, (size_t)own->data);
    if (status == DCP_OK && !reading->alike &&
        (double)figures.bytes_read > 1.02 * (double)figures.bytes_wanted)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%zu bytes read for %zu",
                               (size_t)figures.bytes_read, (size_t)figures.bytes_wanted);
    if (status == DCP_OK && own->open != 0)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%d handles are open", (int)own->open);
    rows_free(&rows);
    return status;
}

static void another_division_reads_what_it_needs(void **state)
{
    ranks_must(2, *state, save_rows, NULL);
    for (int by_hooks = 0; by_hooks < 2; by_hooks++)
        for (int threads = 1; threads <= 4; threads += 3) {
            struct reading reading = {.options.thread_count = threads,
                                      .options.reading = DCP_READING_DIRECT,
                                      .request_size = 4 << 20,
                                      .by_hooks = by_hooks != 0};
            ranks_must(3, *state, load_rows, &reading);
            for (int r = 0; r < 3; r++) {
                /* Neighbours are read at once, and megabytes as well. */
                assert_in_range(reading.stores[r].calls, 4, 20);
                if (threads == 1)
                    assert_int_equal(reading.stores[r].most_inside, 1);
            }
        }
}

static void threads_read_at_the_same_time(void **state)
{
    for (int by_hooks = 0; by_hooks < 2; by_hooks++) {
        struct reading reading = {.options.thread_count = 4, .by_hooks = by_hooks != 0};
        ranks_must(1, *state, load_rows, &reading);
        assert_in_range(reading.stores[0].most_inside, 2, 4);
    }
}

static void what_all_ranks_want_is_asked_for_once(void **state)
{
    struct reading reading = {.options.reading = DCP_READING_COOPERATIVE, .alike = true};
    size_t bytes = 0;
    ranks_must(3, *state, load_rows, &reading);
    for (int r = 0; r < 3; r++)
        bytes += reading.stores[r].data;
    assert_in_range(bytes, ROWS * COLUMNS * 4, ROWS * COLUMNS * 4 * 1.02);
}

/* Transfers that end only when they are waited for, in saves and in loads. */
static void a_queue_of_the_storage_moves_everything(void **state)
{
    struct reading reading = {.queued = true};
    ranks_must(2, *state, save_rows, &reading);
    for (int ranks = 1; ranks <= 3; ranks += 2)
        ranks_must(ranks, *state, load_rows, &reading);
}

/* A load that knows its plan from the one before reads the same ranges. */
static void plans_are_kept_from_load_to_load(void **state)
{
    struct own_storage own;
    dcp_load_plan_cache *cache;
    unsigned long before = 0;
    must(dcp_load_plan_cache_new(&cache));
    own_storage_init(&own, *state);
    for (int n = 0; n < 3; n++) {
        dcp_figures figures = {.size_of = sizeof figures};
        const dcp_load_options options = {
            .storage = &own.table, .plan_cache = cache, .figures = &figures};
        struct rows rows;
        rows_make(&rows, 1, 3, false);
        must(dcp_load(rows.root, "store://rows", &options, NULL));
        must(rows_check(&rows));
        assert_int_equal(figures.plan_reused, n > 0);
        if (n > 0)
            assert_int_equal(figures.bytes_read, before);
        before = figures.bytes_read;
        rows_free(&rows);
    }
    dcp_load_plan_cache_free(cache);
}

/* The table is read when the call begins; a save goes on after its caller has left. */
static dcp_status save_behind(struct rank *self)
{
    struct own_storage own;
    struct rows rows;
    dcp_future *future;
    rows_make(&rows, self->rank, self->size, true);
    own_storage_init(&own, self->path);
    dcp_storage table = own.table;
    const dcp_save_options options = {
        .group = self->group, .storage = &table, .overwrite = DCP_OVERWRITE_REPLACE};
    dcp_status status = dcp_save_async(rows.root, "store://rows", &options, &future);
    memset(&table, 0xa5, sizeof table);
    rows_free(&rows);
    if (status != DCP_OK)
        return status;
    status = dcp_future_wait(future, -1);
    dcp_future_free(future);
    return status == DCP_OK && own.open != 0
               ? dcp_error_set(DCP_ERR_INTERNAL, "%d handles are open", (int)own.open)
               : status;
}

static void saves_go_on_behind_the_caller(void **state)
{
    struct reading reading = {.options.verification = DCP_VERIFY_ALL};
    ranks_must(2, *state, save_behind, NULL);
    ranks_must(1, *state, load_rows, &reading);
}

/* What the storage does not take is a path, and no scheme. */
static void other_ids_are_paths(void **state)
{
    struct own_storage own;
    struct rows rows;
    const char *path = path_in(state, "rows");
    own_storage_init(&own, "/nowhere");
    const dcp_load_options options = {.storage = &own.table};
    rows_make(&rows, 0, 1, false);
    must(dcp_load(rows.root, path, &options, NULL));
    must(rows_check(&rows));
    assert_int_equal(own.calls, 0);
    must_fail(dcp_load(rows.root, "other://rows", &options, NULL), DCP_ERR_UNSUPPORTED,
              "no storage takes \"other://rows\"");
    must_fail(dcp_load(rows.root, "store://rows", &options, NULL), DCP_ERR_NOT_FOUND,
              "/nowhere/rows");
    rows_free(&rows);
}

/* ---- everything that a directory may hold ---- */

static void load_both(const char *name, const dcp_load_options *how)
{
    struct own_storage own;
    dcp_load_options options = *how;
    char path[512], id[128];
    snprintf(path, sizeof path, FIXTURES "/%s/ckpt", name);
    snprintf(id, sizeof id, "store://%s/ckpt", name);
    dcp_state *from_files = whole_state_of(path), *from_own = whole_state_of(path);
    own_storage_init(&own, FIXTURES);
    options.storage = &own.table;
    must(dcp_load(from_files, path, how, NULL));
    must(dcp_load(from_own, id, &options, NULL));
    assert_true(own.calls > 0);
    assert_int_equal(own.open, 0);
    whole_states_must_be_equal(from_files, from_own);
    dcp_state_free(from_files);
    dcp_state_free(from_own);
}

static void files_of_pytorch_are_read(void **state)
{
    static const char *const names[] = {
        "basic",      "dtypes",     "fsdp2_adam_w2",
        "layouts",    "mesh2d_w4",  "nesting",
        "no_flatten", "objects",    "sharded_tensor_w2",
        "shapes",     "uneven_w4",  "training_state",
        "hsdp_w4",    "threads_w2", "torch_2.0.1_sharded_w2",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(names) + (DCP_HAVE_ZSTD ? 2 : 0); i++) {
        const char *name = i < COUNT(names) ? names[i] : i == COUNT(names) ? "zstd" : "zstd_w2";
        load_both(name, &(dcp_load_options){0});
        load_both(name, &(dcp_load_options){.verification = DCP_VERIFY_ALL, .thread_count = 3});
        load_both(name, &(dcp_load_options){.memory_limit = 64 << 20});
    }
}

static dcp_status save_stage(struct rank *self)
{
    struct own_storage own;
    float value = (float)self->rank;
    char id[64], name[8];
    own_storage_init(&own, self->path);
    snprintf(id, sizeof id, "store://stages/pp%d", self->rank);
    snprintf(name, sizeof name, "w%d", self->rank);
    const dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .data = &value, .global_shape = {1}};
    const dcp_save_options options = {.storage = &own.table};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, name, &tensor);
    dcp_state_int(root, "step", 7);
    dcp_status status = dcp_save(root, id, &options);
    dcp_state_free(root);
    return status;
}

/* Members that the caller names, and those that are found in a listing, where names come twice,
 * with files in them. */
static void members_of_a_union_are_read(void **state)
{
    static const char *const members[] = {"pp0", "pp1"};
    const char *path = path_in(state, "stages");
    struct own_storage own;
    ranks_must(2, *state, save_stage, NULL);
    own_storage_init(&own, *state);
    own.repeats = true;
    for (size_t named = 0; named < 2; named++) {
        const dcp_load_options options = {
            .storage = &own.table, .members = members, .member_count = 2 * named};
        dcp_state *from_files = whole_state_of(path), *from_own = whole_state_of(path);
        must(dcp_load(from_files, path, NULL, NULL));
        must(dcp_load(from_own, "store://stages", &options, NULL));
        assert_int_equal(own.open, 0);
        whole_states_must_be_equal(from_files, from_own);
        dcp_state_free(from_files);
        dcp_state_free(from_own);
    }
    assert_true(own.calls > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_division_reads_what_it_needs),
        cmocka_unit_test(threads_read_at_the_same_time),
        cmocka_unit_test(what_all_ranks_want_is_asked_for_once),
        cmocka_unit_test(plans_are_kept_from_load_to_load),
        cmocka_unit_test(other_ids_are_paths),
        cmocka_unit_test(a_queue_of_the_storage_moves_everything),
        cmocka_unit_test(saves_go_on_behind_the_caller),
        cmocka_unit_test(files_of_pytorch_are_read),
        cmocka_unit_test(members_of_a_union_are_read),
    };
    return cmocka_run_group_tests(tests, directory_setup, directory_teardown);
}
