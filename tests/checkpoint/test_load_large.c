/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of large tensors around the page cache: the next one is under way before the last bytes of
 * this one have come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "storage/files/files.h"

#define PATH "c"

enum { TENSORS = 7, ROWS = 1200, COLUMNS = 1531 };
#define BYTES ((size_t)ROWS * COLUMNS * sizeof(float))

struct kind {
    int count;
    int64_t rows;
};

static const struct kind several = {TENSORS, ROWS}, huge = {1, 3 * ROWS};

struct tensors {
    dcp_state *root;
    struct kind kind;
    float *values[TENSORS];
};

/* The rows from `first` on, of all columns, or the columns from `first` on, of all rows. */
static void make_tensors(struct tensors *tensors, struct kind kind, int64_t first, bool columns)
{
    *tensors = (struct tensors){.root = dcp_state_new(), .kind = kind};
    for (int t = 0; t < kind.count; t++) {
        char name[8];
        snprintf(name, sizeof name, "t%d", t);
        tensors->values[t] = calloc((size_t)kind.rows * COLUMNS, sizeof(float));
        assert_non_null(tensors->values[t]);
        const dcp_tensor tensor = {
            .dtype = DCP_F32,
            .sharded = true,
            .ndim = 2,
            .global_shape = {kind.rows, COLUMNS},
            .offsets = {columns ? 0 : first, columns ? first : 0},
            .sizes = {columns ? kind.rows : kind.rows - first, columns ? COLUMNS - first : COLUMNS},
            .data = tensors->values[t]};
        dcp_state_tensor(tensors->root, name, &tensor);
    }
    assert_int_equal(dcp_state_status(tensors->root), DCP_OK);
}

static void free_tensors(struct tensors *tensors)
{
    dcp_state_free(tensors->root);
    for (int t = 0; t < tensors->kind.count; t++)
        free(tensors->values[t]);
}

static float value(int tensor, int64_t row, int64_t column)
{
    return (float)(tensor * 1000000 + row * COLUMNS + column);
}

static struct simulated_file_system *disk_with(struct kind kind, dcp_file_layout files)
{
    struct simulated_file_system *fs = simulated_new();
    const dcp_save_options options = {.storage = simulated_storage(fs), .files = files};
    struct tensors saved;
    make_tensors(&saved, kind, 0, false);
    for (int t = 0; t < kind.count; t++)
        for (int64_t i = 0; i < kind.rows * COLUMNS; i++)
            saved.values[t][i] = value(t, 0, i);
    assert_int_equal(dcp_save(saved.root, PATH, &options), DCP_OK);
    free_tensors(&saved);
    return fs;
}

static struct simulated_file_system *disk_with_tensors(dcp_file_layout files)
{
    return disk_with(several, files);
}

static void check_values(const struct tensors *loaded, int64_t first, bool columns)
{
    int64_t rows = loaded->kind.rows;
    int64_t width = columns ? COLUMNS - first : COLUMNS, height = columns ? rows : rows - first;
    for (int t = 0; t < loaded->kind.count; t++)
        for (int64_t i = 0; i < width * height; i++)
            if (loaded->values[t][i] !=
                value(t, i / width + (columns ? 0 : first), i % width + (columns ? first : 0)))
                fail_msg("t%d: element %ld is %f", t, (long)i, (double)loaded->values[t][i]);
}

/* Returns how many small reads came when what is behind them in the file was under way. */
static long load(struct simulated_file_system *fs, int64_t first, bool columns, int32_t threads,
                 dcp_verification verification)
{
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    const dcp_load_options options = {.storage = &storage,
                                      .thread_count = threads,
                                      .io = DCP_IO_RING | DCP_IO_DIRECT,
                                      .verification = verification};
    struct tensors loaded;
    make_tensors(&loaded, several, first, columns);
    assert_int_equal(dcp_load(loaded.root, PATH, &options, NULL), DCP_OK);
    check_values(&loaded, first, columns);
    free_tensors(&loaded);
    return transfer_watch_overtaken();
}

/* The small reads are of the blocks around a tensor's data. */
static void the_next_tensor_is_under_way(void **state)
{
    struct simulated_file_system *fs = disk_with_tensors(DCP_FILES_PER_RANK);
    (void)state;
    assert_int_equal(load(fs, 0, false, 1, DCP_VERIFY_ALL), TENSORS - 1);
    assert_true(load(fs, 300, false, 1, DCP_VERIFY_ALL) >= 2 * (TENSORS - 1));
    simulated_free(fs);
}

/* In another file, whose footer the thread does not wait for. */
static void the_next_file_is_under_way(void **state)
{
    struct simulated_file_system *fs = disk_with_tensors(DCP_FILE_PER_ITEM);
    (void)state;
    assert_true(load(fs, 0, false, 1, DCP_VERIFY_ALL) >= TENSORS - 1);
    assert_int_equal(transfer_watch_foreseen(), TENSORS - 2);
    simulated_free(fs);
}

/* What two ranks read for each other: all columns, and those from `first` on. */
struct pair {
    const dcp_storage *storage;
    struct kind kind;
    int64_t first;
    uint64_t bytes_read[2];
};

static dcp_status load_columns(struct rank *self)
{
    struct pair *pair = self->context;
    int64_t first = self->rank * pair->first;
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options options = {.storage = pair->storage,
                                      .group = self->group,
                                      .reading = DCP_READING_COOPERATIVE,
                                      .io = DCP_IO_RING | DCP_IO_DIRECT,
                                      .figures = &figures};
    struct tensors loaded;
    make_tensors(&loaded, pair->kind, first, true);
    dcp_status status = dcp_load(loaded.root, PATH, &options, NULL);
    if (status == DCP_OK)
        check_values(&loaded, first, true);
    pair->bytes_read[self->rank] = figures.bytes_read;
    free_tensors(&loaded);
    return status;
}

static void load_as_pair(struct simulated_file_system *fs, struct kind kind, int64_t first)
{
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    struct pair pair = {.storage = &storage, .kind = kind, .first = first};
    uint64_t bytes = (uint64_t)kind.count * (uint64_t)kind.rows * COLUMNS * sizeof(float);
    ranks_must(2, PATH, load_columns, &pair);
    assert_in_range(pair.bytes_read[0] + pair.bytes_read[1], bytes, bytes + bytes / 100);
    assert_in_range(transfer_watch_at_once(), 3, 4);
}

/* Of stripes, or of what both ranks want all of: two pieces at a time; what follows them is in the
 * next tensor, or in the same one, and is not begun twice. */
static void what_is_read_next_for_others_is_under_way(void **state)
{
    static const int64_t firsts[] = {700, 0};
    struct simulated_file_system *of_several = disk_with(several, DCP_FILES_PER_RANK);
    struct simulated_file_system *of_one = disk_with(huge, DCP_FILES_PER_RANK);
    (void)state;
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        load_as_pair(of_several, several, firsts[i]);
        assert_int_equal(transfer_watch_count(true).count, 4 * TENSORS);
        load_as_pair(of_one, huge, firsts[i]);
        assert_int_equal(transfer_watch_count(true).count, 12);
    }
    simulated_free(of_several);
    simulated_free(of_one);
}

/* Though each tensor has a file, whose footer is read before. */
static void what_is_read_next_may_be_in_another_file(void **state)
{
    struct simulated_file_system *fs = disk_with(several, DCP_FILE_PER_ITEM);
    (void)state;
    load_as_pair(fs, several, 0);
    assert_true(transfer_watch_overtaken() >= TENSORS - 2);
    assert_int_equal(simulated_open_descriptors(fs), 0);
    simulated_free(fs);
}

/* The rows from 300 on of three tensors. Returns the bytes read; 0: the load failed. */
static uint64_t load_some(struct simulated_file_system *fs, const struct tensors *tensors)
{
    static const char *const some[] = {"t0", "t1", "t2"};
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options options = {.storage = simulated_storage(fs),
                                      .thread_count = 1,
                                      .io = DCP_IO_RING | DCP_IO_DIRECT,
                                      .include = some,
                                      .include_count = sizeof some / sizeof *some,
                                      .figures = &figures};
    dcp_status status = dcp_load(tensors->root, PATH, &options, NULL);
    assert_int_equal(simulated_open_descriptors(fs), 0);
    assert_int_equal(figures.bytes_unchecked, 0);
    return status == DCP_OK ? figures.bytes_read : 0;
}

/* Who opens a file early may fail to read its footer: in its turn it is read again, so that no more
 * than the blocks around the rows are read to check them. */
static void an_early_failure_changes_nothing(void **state)
{
    struct simulated_file_system *fs = disk_with_tensors(DCP_FILE_PER_ITEM);
    struct tensors loaded;
    size_t survived = 0;
    (void)state;
    make_tensors(&loaded, several, 300, false);
    uint64_t usual = load_some(fs, &loaded);
    bool reached = true;
    assert_true(usual > 0);
    for (long n = 1; reached; n++) {
        simulated_set_fault(fs, &(struct simulated_fault){
                                    .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO});
        uint64_t read = load_some(fs, &loaded);
        reached = simulated_fault_reached(fs);
        assert_true(reached || read == usual);
        assert_true(read < usual + BYTES / 8);
        survived += reached && read > 0;
    }
    assert_true(survived > 0);
    simulated_free(fs);
    free_tensors(&loaded);
}

/* Whichever operation fails, early or in its turn, while one rank reads for the other. */
static void a_pair_has_all_values_or_fails_as_one(void **state)
{
    struct simulated_file_system *fs = disk_with_tensors(DCP_FILE_PER_ITEM);
    struct pair pair = {.storage = simulated_storage(fs), .kind = several};
    struct rank ranks[RANKS_MAX];
    bool reached = true;
    (void)state;
    for (long n = 1; reached; n += TRIAL_STEP + n / 8) {
        simulated_set_fault(fs, &(struct simulated_fault){
                                    .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO});
        ranks_run(ranks, 2, PATH, load_columns, &pair);
        reached = simulated_fault_reached(fs);
        assert_int_equal(ranks[0].status, ranks[1].status);
        assert_true(ranks[0].status == DCP_OK || reached);
        assert_int_equal(simulated_open_descriptors(fs), 0);
    }
    simulated_free(fs);
}

/* Also while a file is opened early. */
static void missing_memory_is_an_error(void **state)
{
    struct simulated_file_system *fs = disk_with_tensors(DCP_FILE_PER_ITEM);
    const dcp_load_options options = {
        .storage = simulated_storage(fs), .thread_count = 1, .io = DCP_IO_POOL | DCP_IO_DIRECT};
    struct tensors loaded;
    bool reached = true;
    (void)state;
    make_tensors(&loaded, several, 0, false);
    for (long n = 1; reached; n += 1 + n / 16) {
        failing_allocator_install(n, false);
        dcp_status status = dcp_load(loaded.root, PATH, &options, NULL);
        reached = failing_allocator_reached();
        failing_allocator_remove();
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        assert_int_equal(simulated_open_descriptors(fs), 0);
    }
    simulated_free(fs);
    free_tensors(&loaded);
}

static void check_all(dcp_file_layout files)
{
    static const dcp_verification verifications[] = {DCP_VERIFY_ALL, DCP_VERIFY_RECORDS,
                                                     DCP_VERIFY_NONE};
    enum { THREADS = 4, STEP = TRIAL_STEP < THREADS + 1 ? TRIAL_STEP : THREADS + 1 };
    struct simulated_file_system *fs = disk_with_tensors(files);
    for (size_t i = 0; i < THREADS * sizeof verifications / sizeof *verifications; i += STEP) {
        int32_t threads = 1 + (int32_t)(i % THREADS);
        load(fs, 0, false, threads, verifications[i / THREADS]);
        load(fs, 300, false, threads, verifications[i / THREADS]);
        load(fs, 500, true, threads, verifications[i / THREADS]);
    }
    assert_int_equal(simulated_open_descriptors(fs), 0);
    simulated_free(fs);
}

static void all_of_them_are_right(void **state)
{
    (void)state;
    check_all(DCP_FILES_PER_RANK);
    check_all(DCP_FILE_PER_ITEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_tensor_is_under_way),
        cmocka_unit_test(the_next_file_is_under_way),
        cmocka_unit_test(what_is_read_next_for_others_is_under_way),
        cmocka_unit_test(what_is_read_next_may_be_in_another_file),
        cmocka_unit_test(an_early_failure_changes_nothing),
        cmocka_unit_test(a_pair_has_all_values_or_fails_as_one),
        cmocka_unit_test(missing_memory_is_an_error),
        cmocka_unit_test(all_of_them_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
