/* SPDX-License-Identifier: BSD-3-Clause */
/* Storage readers that give ranges of files: as much is read as of files and no more, by several
 * threads, of everything that a directory may hold; and what becomes of stores that fail or lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/load_scene.h"
#include "checkpoint/range_reader.h"
#include "checkpoint/whole_state.h"
#include "fault/failing_allocator.h"

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

static dcp_status save_rows(struct rank *self)
{
    struct rows rows;
    rows_make(&rows, self->rank, self->size, true);
    const dcp_save_options options = {.group = self->group};
    dcp_status status = dcp_save(rows.root, self->path, &options);
    rows_free(&rows);
    return status;
}

/* How ranks load rows, and what they must keep to. */
struct reading {
    dcp_load_options options;
    bool by_hooks; /* read_data is the caller's, and calls the library's */
    bool alike;    /* all ranks want everything */
    struct range_reader readers[RANKS_MAX];
};

static dcp_status read_as_ever(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    (void)context, (void)plan;
    return dcp_default_read_data(loading);
}

static dcp_status load_rows(struct rank *self)
{
    struct reading *reading = self->context;
    struct range_reader *reader = &reading->readers[self->rank];
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = reading->options;
    struct rows rows;
    range_reader_init(reader, self->path);
    reader->slow = 200;
    if (reading->by_hooks)
        reader->table.read_data = read_as_ever;
    options.group = self->group;
    options.storage_reader = &reader->table;
    options.figures = &figures;
    rows_make(&rows, reading->alike ? 0 : self->rank, reading->alike ? 1 : self->size, false);
    dcp_status status = dcp_load(rows.root, "store://rows", &options, NULL);
    if (status == DCP_OK)
        status = rows_check(&rows);
    if (status == DCP_OK && figures.bytes_read != reader->data)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%zu bytes are said to be read, %zu are",
                               (size_t)figures.bytes_read, (size_t)reader->data);
    if (status == DCP_OK && !reading->alike &&
        (double)figures.bytes_read > 1.02 * (double)figures.bytes_wanted)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%zu bytes read for %zu",
                               (size_t)figures.bytes_read, (size_t)figures.bytes_wanted);
    rows_free(&rows);
    range_reader_free(reader);
    return status;
}

static void another_division_reads_what_it_needs(void **state)
{
    const char *path = path_in(state, "rows");
    ranks_must(2, path, save_rows, NULL);
    for (int by_hooks = 0; by_hooks < 2; by_hooks++)
        for (int threads = 1; threads <= 4; threads += 3) {
            struct reading reading = {.options.thread_count = threads,
                                      .options.reading = DCP_READING_DIRECT,
                                      .by_hooks = by_hooks != 0};
            ranks_must(3, path, load_rows, &reading);
            for (int r = 0; r < 3; r++) {
                /* Neighbours are read at once, and megabytes as well. */
                assert_in_range(reading.readers[r].calls, 4, 20);
                if (threads == 1)
                    assert_int_equal(reading.readers[r].most_inside, 1);
            }
        }
}

static void threads_read_at_the_same_time(void **state)
{
    const char *path = path_in(state, "rows");
    for (int by_hooks = 0; by_hooks < 2; by_hooks++) {
        struct reading reading = {.options.thread_count = 4, .by_hooks = by_hooks != 0};
        ranks_must(1, path, load_rows, &reading);
        assert_in_range(reading.readers[0].most_inside, 2, 4);
    }
}

static void what_all_ranks_want_is_asked_for_once(void **state)
{
    struct reading reading = {.options.reading = DCP_READING_COOPERATIVE, .alike = true};
    size_t bytes = 0;
    ranks_must(3, path_in(state, "rows"), load_rows, &reading);
    for (int r = 0; r < 3; r++)
        bytes += reading.readers[r].data;
    assert_in_range(bytes, ROWS * COLUMNS * 4, ROWS * COLUMNS * 4 * 1.02);
}

/* A load that knows its plan from the one before reads the same ranges. */
static void plans_are_kept_from_load_to_load(void **state)
{
    struct range_reader reader;
    dcp_load_plan_cache *cache;
    unsigned long before = 0;
    must(dcp_load_plan_cache_new(&cache));
    range_reader_init(&reader, path_in(state, "rows"));
    for (int n = 0; n < 3; n++) {
        dcp_figures figures = {.size_of = sizeof figures};
        const dcp_load_options options = {
            .storage_reader = &reader.table, .plan_cache = cache, .figures = &figures};
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
    range_reader_free(&reader);
    dcp_load_plan_cache_free(cache);
}

/* ---- everything that a directory may hold ---- */

static dcp_status load_scene(struct rank *self, struct range_reader *reader,
                             const dcp_load_options *how)
{
    dcp_load_options options = *how;
    struct scene scene;
    options.group = self->group;
    options.storage_reader = &reader->table;
    scene_init(&scene, self, false);
    dcp_status status = dcp_load(scene.root, self->rank == 0 ? "store://c" : NULL, &options, NULL);
    if (status == DCP_OK)
        status = scene_check(&scene);
    scene_free(&scene);
    return status;
}

/* A reader that is passed needs no id. */
static void loads_without_an_id(void **state)
{
    struct range_reader reader;
    const struct rank alone = {.size = 1};
    struct scene scene;
    range_reader_init(&reader, path_in(state, "c"));
    const dcp_load_options options = {.storage_reader = &reader.table};
    scene_init(&scene, &alone, false);
    must(dcp_load(scene.root, NULL, &options, NULL));
    must(scene_check(&scene));
    scene_free(&scene);
    range_reader_free(&reader);
}

static void load_both(const char *path, const dcp_load_options *how)
{
    struct range_reader reader;
    dcp_load_options options = *how;
    dcp_state *from_files = whole_state_of(path), *from_ranges = whole_state_of(path);
    range_reader_init(&reader, path);
    options.storage_reader = &reader.table;
    must(dcp_load(from_files, path, how, NULL));
    must(dcp_load(from_ranges, "store://fixture", &options, NULL));
    assert_true(reader.calls > 0);
    whole_states_must_be_equal(from_files, from_ranges);
    dcp_state_free(from_files);
    dcp_state_free(from_ranges);
    range_reader_free(&reader);
}

static void files_of_pytorch_are_read_by_ranges(void **state)
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
        char path[512];
        snprintf(path, sizeof path, FIXTURES "/%s/ckpt", name);
        load_both(path, &(dcp_load_options){0});
        load_both(path, &(dcp_load_options){.verification = DCP_VERIFY_RECORDS, .thread_count = 3});
        load_both(path, &(dcp_load_options){.memory_limit = 64 << 20});
    }
}

static dcp_status save_stage(struct rank *self)
{
    float value = (float)self->rank;
    char path[512], name[8];
    snprintf(path, sizeof path, "%s/pp%d", self->path, self->rank);
    snprintf(name, sizeof name, "w%d", self->rank);
    const dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .data = &value, .global_shape = {1}};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, name, &tensor);
    dcp_state_int(root, "step", 7);
    dcp_status status = dcp_save(root, path, NULL);
    dcp_state_free(root);
    return status;
}

static void members_of_a_union_are_read_by_ranges(void **state)
{
    static const char *const members[] = {"pp0", "pp1"};
    const char *path = path_in(state, "stages");
    struct range_reader reader;
    ranks_must(2, path, save_stage, NULL);
    range_reader_init(&reader, path_in(state, "stages/pp1"));
    memory_reader_free(&reader.memory);
    reader.memory.count = 0;
    memory_reader_add(&reader.memory, path_in(state, "stages/pp0"), "pp0/");
    memory_reader_add(&reader.memory, path_in(state, "stages/pp1"), "pp1/");
    const dcp_load_options options = {
        .storage_reader = &reader.table, .members = members, .member_count = 2};
    dcp_state *from_files = whole_state_of(path), *from_ranges = whole_state_of(path);
    must(dcp_load(from_files, path, NULL, NULL));
    must(dcp_load(from_ranges, "store://stages", &options, NULL));
    whole_states_must_be_equal(from_files, from_ranges);
    dcp_state_free(from_files);
    dcp_state_free(from_ranges);
    range_reader_free(&reader);
}

/* ---- stores that fail or lie ---- */

/* What is wrong with the reader of rank 1, or of both. */
struct fault {
    long fails_at;
    size_t gives;
    bool gives_nothing, gives_too_much;
    uint64_t adds;
    const char *missing; /* a file that is not there */
    size_t cut;          /* bytes that shard files lack at the end, whatever their size is said */
    bool at_the_coordinator;
};

static dcp_status load_faulty(struct rank *self)
{
    const struct fault *fault = self->context;
    struct range_reader reader;
    range_reader_init(&reader, self->path);
    if (self->rank == 1 || fault->at_the_coordinator) {
        struct memory_file *missing =
            fault->missing ? memory_reader_find(&reader.memory, fault->missing) : NULL;
        reader.fails_at = fault->fails_at;
        reader.gives = fault->gives;
        reader.gives_nothing = fault->gives_nothing;
        reader.gives_too_much = fault->gives_too_much;
        reader.adds = fault->adds;
        if (missing)
            missing->name[0] = '?';
        for (int i = 0; fault->cut > 0 && i < reader.memory.count; i++)
            reader.memory.files[i].size -=
                reader.memory.files[i].size > fault->cut ? fault->cut : 0;
        if (fault->cut > 0)
            reader.adds = fault->cut;
    }
    dcp_status status = load_scene(self, &reader, &(dcp_load_options){.thread_count = 2});
    range_reader_free(&reader);
    return status;
}

static void what_a_store_does_wrong_reaches_every_rank(void **state)
{
    static const struct {
        struct fault fault;
        dcp_status status;
        const char *story;
    } cases[] = {
        {{.fails_at = 1},
         DCP_ERR_IO,
         "rank 1: step (__0_0.distcp:0): cannot open store://c/__0_0.distcp: hook stored_size: the "
         "store is away, __0_0.distcp with it"},
        {{.fails_at = 2},
         DCP_ERR_IO,
         "cannot read store://c/__0_0.distcp: hook read_range: the store is away"},
        {{.gives_nothing = true}, DCP_ERR_FORMAT, "__0_0.distcp ends at "},
        {{.gives_too_much = true}, DCP_ERR_CALLBACK, "hook read_range gave "},
        {{.missing = "__1_0.distcp"}, DCP_ERR_NOT_FOUND, "the store has no __1_0.distcp"},
        {{.missing = ".metadata", .at_the_coordinator = true},
         DCP_ERR_NOT_FOUND,
         "the store has no .metadata"},
        {{.fails_at = 1, .at_the_coordinator = true}, DCP_ERR_IO, "rank 0: "},
        {{.adds = 100}, DCP_ERR_FORMAT, "distcp ends at "},
        {{.adds = UINT64_MAX / 2, .at_the_coordinator = true}, DCP_ERR_FORMAT, "more than the "},
        {{.cut = 1}, DCP_ERR_FORMAT, "distcp ends at "},
        {{.cut = 3000}, DCP_ERR_FORMAT, "distcp ends at "},
    };
    struct rank ranks[RANKS_MAX];
    for (size_t i = 0; i < COUNT(cases); i++) {
        ranks_run(ranks, 2, path_in(state, "c"), load_faulty, (void *)(uintptr_t)&cases[i].fault);
        for (int r = 0; r < 2; r++) {
            if (ranks[r].status != cases[i].status || !strstr(ranks[r].message, cases[i].story))
                fail_msg("case %zu, rank %d: %d, %s", i, r, (int)ranks[r].status, ranks[r].message);
            assert_string_equal(ranks[r].message, ranks[0].message);
        }
    }
}

static void every_call_may_fail(void **state)
{
    struct rank ranks[RANKS_MAX];
    struct fault fault = {.fails_at = 0};
    int failures = 0;
    do {
        fault.fails_at++;
        ranks_run(ranks, 2, path_in(state, "c"), load_faulty, &fault);
        assert_int_equal(ranks[0].status, ranks[1].status);
        assert_string_equal(ranks[0].message, ranks[1].message);
        if (ranks[0].status != DCP_OK)
            assert_non_null(strstr(ranks[0].message, "rank 1: "));
        failures += ranks[0].status == DCP_ERR_IO;
    } while (ranks[0].status == DCP_ERR_IO);
    assert_int_equal(ranks[0].status, DCP_OK);
    assert_in_range(failures, 6, 100);
}

static void short_reads_are_asked_on(void **state)
{
    struct fault fault = {.at_the_coordinator = true};
    for (fault.gives = 1; fault.gives < 5000; fault.gives = fault.gives * 3 + 1)
        ranks_must(2, path_in(state, "c"), load_faulty, &fault);
}

static void every_allocation_may_fail(void **state)
{
    const struct rank alone = {.size = 1};
    for (long n = 1;; n++) {
        struct range_reader reader;
        struct scene scene;
        range_reader_init(&reader, path_in(state, "c"));
        const dcp_load_options options = {.storage_reader = &reader.table};
        failing_allocator_install(n, false);
        scene_init(&scene, &alone, false);
        dcp_status status = scene.root ? dcp_state_status(scene.root) : DCP_ERR_NO_MEMORY;
        if (status == DCP_OK)
            status = dcp_load(scene.root, "store://c", &options, NULL);
        bool reached = failing_allocator_reached();
        scene_free(&scene);
        assert_int_equal(failing_allocator_remove(), 0);
        range_reader_free(&reader);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
}

/* One bit of each file in turn; some places mean nothing. */
static void damage_is_found_or_harmless(void **state)
{
    struct rank self = {.size = 1};
    struct range_reader reader;
    int refused = 0;
    range_reader_init(&reader, path_in(state, "c"));
    for (int f = 0; f < reader.memory.count; f++) {
        struct memory_file *file = &reader.memory.files[f];
        for (size_t at = 0; at < file->size; at += 11) {
            file->bytes[at] ^= 0x40;
            dcp_status status = load_scene(&self, &reader, &(dcp_load_options){0});
            refused += status != DCP_OK;
            if (status == DCP_ERR_INTERNAL)
                fail_msg("%s, byte %zu: %s", file->name, at, dcp_error_message());
            file->bytes[at] ^= 0x40;
        }
    }
    assert_true(refused > 100);
    range_reader_free(&reader);
}

static void half_a_reader_is_refused(void **state)
{
    struct range_reader reader;
    struct rank self = {.size = 1};
    range_reader_init(&reader, path_in(state, "c"));
    dcp_storage_reader whole = reader.table;
    reader.table.stored_size = NULL;
    must_fail(load_scene(&self, &reader, &(dcp_load_options){0}), DCP_ERR_ARGUMENT,
              "a storage reader with hook read_range needs stored_size as well");
    reader.table = whole;
    reader.table.read_range = NULL;
    must_fail(load_scene(&self, &reader, &(dcp_load_options){0}), DCP_ERR_ARGUMENT,
              "a storage reader with hook stored_size needs read_range as well");
    range_reader_free(&reader);
}

static int setup(void **state)
{
    if (directory_setup(state) != 0)
        return -1;
    ranks_must(2, path_in(state, "c"), scene_save, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_division_reads_what_it_needs),
        cmocka_unit_test(threads_read_at_the_same_time),
        cmocka_unit_test(what_all_ranks_want_is_asked_for_once),
        cmocka_unit_test(plans_are_kept_from_load_to_load),
        cmocka_unit_test(loads_without_an_id),
        cmocka_unit_test(files_of_pytorch_are_read_by_ranges),
        cmocka_unit_test(members_of_a_union_are_read_by_ranges),
        cmocka_unit_test(what_a_store_does_wrong_reaches_every_rank),
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(short_reads_are_asked_on),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(damage_is_found_or_harmless),
        cmocka_unit_test(half_a_reader_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, directory_teardown);
}
