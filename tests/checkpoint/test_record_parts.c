/* SPDX-License-Identifier: BSD-3-Clause */
/* Records that have one checksum, as PyTorch writes them, of which each rank reads a part: all of
 * them are checked, and none is read twice for that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/parts.h"
#include "checkpoint/ranks.h"
#include "checkpoint/share/load_records.h"
#include "fault/failing_allocator.h"
#include "storage/scratch.h"

enum { COLUMNS = 100, SMALL = 1000, LARGE = 9001, COUNT = 3 };
#define FILE_NAME "__0_0.distcp"

/* What each rank loads of tensors that are divided by rows. */
struct trial {
    int64_t rows;
    int count; /* of tensors */
    int64_t from[RANKS_MAX], end[RANKS_MAX];
    dcp_load_options options[RANKS_MAX];
    dcp_figures figures[RANKS_MAX];
    dcp_dtype dtype;
};

static struct part rows_of(const struct trial *trial, int64_t from, int64_t end)
{
    return (struct part){.shape = {trial->rows, COLUMNS},
                         .offsets = {from, 0},
                         .sizes = {end - from, COLUMNS},
                         .dtype = trial->dtype,
                         .end = trial->count};
}

/* As it is saved. */
static struct part all_rows(const struct trial *trial)
{
    struct part all = rows_of(trial, 0, trial->rows);
    all.dtype = DCP_F32;
    return all;
}

/* Two ranks that read halves, each for itself. */
static struct trial halves(int64_t rows)
{
    struct trial trial = {.rows = rows,
                          .count = COUNT,
                          .from = {0, rows / 3},
                          .end = {rows / 3, rows},
                          .dtype = DCP_F32};
    for (int r = 0; r < RANKS_MAX; r++)
        trial.options[r] = (dcp_load_options){.reading = DCP_READING_DIRECT, .thread_count = 2};
    return trial;
}

/* A checkpoint without footers. */
static char *save(void *const *state, const char *name, const struct trial *trial)
{
    char *path = scratch_path(*state, name);
    const struct part all = all_rows(trial);
    assert_true(parts_save(path, &all, &(dcp_save_options){.skip_sync = true}));
    scratch_drop_footer(path, FILE_NAME);
    return path;
}

static dcp_status load(struct rank *self)
{
    struct trial *trial = self->context;
    const struct part part = rows_of(trial, trial->from[self->rank], trial->end[self->rank]);
    dcp_load_options options = trial->options[self->rank];
    options.group = self->group;
    return parts_load(self->path, &part, &options, &trial->figures[self->rank]);
}

static uint64_t wanted_by(const struct trial *trial, int rank)
{
    return (uint64_t)(trial->end[rank] - trial->from[rank]) * COLUMNS * (uint64_t)trial->count *
           sizeof(float);
}

/* Nothing is unchecked, and no rank reads much more than it wants. */
static void expect_checked(const struct trial *trial, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        uint64_t wanted = wanted_by(trial, r);
        assert_int_equal(trial->figures[r].bytes_unchecked, 0);
        assert_int_equal(trial->figures[r].bytes_checked, wanted);
        assert_in_range(trial->figures[r].bytes_read, wanted, wanted + COUNT * (16 << 10));
    }
}

static void expect_damage(const char *path, struct trial *trial, int ranks, int64_t row)
{
    const struct part all = all_rows(trial);
    uint64_t place = parts_find(path, FILE_NAME, &all, trial->count / 2, row);
    struct rank outcomes[RANKS_MAX];
    char name[40];
    snprintf(name, sizeof name, "t%d (" FILE_NAME, trial->count / 2);
    scratch_flip(path, FILE_NAME, place, 4);
    ranks_run(outcomes, ranks, path, load, trial);
    scratch_flip(path, FILE_NAME, place, 4);
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(outcomes[r].status, DCP_ERR_CHECKSUM);
        assert_non_null(strstr(outcomes[r].message, name));
    }
}

static void ranks_check_them_together(void **state)
{
    static const struct {
        const char *name;
        int64_t rows;
        dcp_verification verification;
        dcp_dtype dtype;
    } cases[] = {{"small", SMALL, DCP_VERIFY_ALL, DCP_F32},
                 {"large", LARGE, DCP_VERIFY_ALL, DCP_F32},
                 {"converted", LARGE, DCP_VERIFY_ALL, DCP_F64},
                 {"records", LARGE, DCP_VERIFY_RECORDS, DCP_F32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial trial = halves(cases[i].rows);
        char *path = save(state, cases[i].name, &trial);
        trial.dtype = cases[i].dtype;
        for (int r = 0; r < 2; r++)
            trial.options[r].verification = cases[i].verification;
        ranks_must(2, path, load, &trial);
        expect_checked(&trial, 2);
        expect_damage(path, &trial, 2, 0);
        expect_damage(path, &trial, 2, trial.rows / 3 - 1);
        expect_damage(path, &trial, 2, trial.rows / 3);
        expect_damage(path, &trial, 2, trial.rows - 1);
        free(path);
    }
}

/* Parts that one rank reads by several threads: their sums are joined first. */
static void threads_divide_a_part_further(void **state)
{
    struct trial trial = halves(160000); /* two thirds have 43 MB, and are read in parts of 8 MiB */
    trial.count = 1;
    char *path = save(state, "huge", &trial);
    ranks_must(2, path, load, &trial);
    expect_checked(&trial, 2);
    expect_damage(path, &trial, 2, 1);
    expect_damage(path, &trial, 2, 60000);
    expect_damage(path, &trial, 2, 159999);
    free(path);
}

/* Ranks that read the same part have the same sum. */
static void several_ranks_may_read_the_same_part(void **state)
{
    struct trial trial = halves(LARGE);
    char *path = save(state, "same", &trial);
    for (int r = 2; r < 5; r++) {
        trial.from[r] = trial.from[r % 2];
        trial.end[r] = trial.end[r % 2];
    }
    ranks_must(5, path, load, &trial);
    expect_checked(&trial, 5);
    expect_damage(path, &trial, 5, 5);
    expect_damage(path, &trial, 5, LARGE - 5);
    free(path);
}

/* What several ranks want, of which one reads all, or each some: in thirds of the tensors. In the
 * last case one rank reads the end of a third and the beginning of another one. */
static void ranks_that_read_for_each_other_join_sums_as_well(void **state)
{
    static const struct {
        const char *name;
        int64_t rows;
        int ranks;
        int from[5], end[5];
    } cases[] = {{"small", SMALL, 5, {0, 0, 1, 1, 2}, {1, 1, 2, 2, 3}},
                 {"large", LARGE, 5, {0, 0, 1, 1, 2}, {1, 1, 2, 2, 3}},
                 {"larger", 3 * LARGE, 4, {0, 0, 0, 1}, {3, 3, 3, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial trial = halves(cases[i].rows);
        const int64_t thirds[] = {0, trial.rows / 3, 2 * trial.rows / 3, trial.rows};
        char *path = save(state, cases[i].name, &trial);
        uint64_t checked = 0;
        for (int r = 0; r < cases[i].ranks; r++) {
            trial.from[r] = thirds[cases[i].from[r]];
            trial.end[r] = thirds[cases[i].end[r]];
            trial.options[r].reading = DCP_READING_COOPERATIVE;
        }
        ranks_must(cases[i].ranks, path, load, &trial);
        for (int r = 0; r < cases[i].ranks; r++) {
            assert_int_equal(trial.figures[r].bytes_unchecked, 0);
            checked += trial.figures[r].bytes_checked;
        }
        assert_int_equal(checked, (uint64_t)trial.rows * COLUMNS * COUNT * sizeof(float));
        for (int64_t row = 3; row < trial.rows; row += trial.rows / 6)
            expect_damage(path, &trial, cases[i].ranks, row);
        free(path);
    }
}

/* Then each rank reads and checks as one alone does. */
static void expect_alone(const char *path, struct trial *trial, int ranks)
{
    ranks_must(ranks, path, load, trial);
    for (int r = 0; r < ranks; r++) {
        uint64_t wanted = wanted_by(trial, r), all = (uint64_t)trial->rows * COLUMNS * COUNT * 4;
        bool whole = trial->rows == SMALL;
        assert_int_equal(trial->figures[r].bytes_unchecked, whole ? 0 : wanted);
        assert_in_range(trial->figures[r].bytes_read, whole ? all : wanted,
                        (whole ? all : wanted) + COUNT * (16 << 10));
    }
}

static void parts_that_are_not_all_of_it_are_not_joined(void **state)
{
    static const int64_t sizes[] = {SMALL, LARGE};
    for (size_t i = 0; i < 2; i++) {
        struct trial trial = halves(sizes[i]);
        char *path = save(state, i == 0 ? "some" : "some-large", &trial);
        trial.from[1]++; /* a row is missing */
        expect_alone(path, &trial, 2);
        trial.from[1] -= 2; /* one is read by both */
        expect_alone(path, &trial, 2);
        trial.from[1]++;
        trial.end[1]--; /* the last one is missing */
        expect_alone(path, &trial, 2);
        trial.end[1]++;
        trial.from[0]++; /* the first one is */
        expect_alone(path, &trial, 2);
        free(path);
    }
}

/* Then ranks do not ask each other, either. */
static void who_checks_nothing_or_keeps_a_limit_reads_alone(void **state)
{
    struct trial trial = halves(LARGE);
    char *path = save(state, "alone", &trial);
    for (int r = 0; r < 2; r++)
        trial.options[r].verification = DCP_VERIFY_NONE;
    expect_alone(path, &trial, 2);
    for (int r = 0; r < 2; r++) {
        trial.options[r].verification = DCP_VERIFY_ALL;
        trial.options[r].memory_limit = (uint64_t)64 << 20;
    }
    expect_alone(path, &trial, 2);
    free(path);
}

/* What it takes of memory is known to each rank before. */
static void who_keeps_a_limit_checks_what_is_read_for_others(void **state)
{
    struct trial trial = halves(3 * LARGE);
    char *path = save(state, "limit", &trial);
    uint64_t checked = 0;
    for (int r = 0; r < 3; r++) {
        trial.from[r] = 0;
        trial.end[r] = trial.rows;
        trial.options[r].reading = DCP_READING_COOPERATIVE;
        trial.options[r].memory_limit = (uint64_t)128 << 20;
    }
    ranks_must(3, path, load, &trial);
    for (int r = 0; r < 3; r++) {
        assert_in_range(trial.figures[r].bytes_exchanged, 1, 2 * wanted_by(&trial, r));
        assert_int_equal(trial.figures[r].bytes_unchecked, 0);
        checked += trial.figures[r].bytes_checked;
    }
    assert_int_equal(checked, wanted_by(&trial, 0));
    for (int64_t row = 0; row < trial.rows; row += trial.rows / 4)
        expect_damage(path, &trial, 3, row);
    free(path);
}

/* Of what is not all of a record the coordinator does not know how much there is. */
static void who_keeps_a_limit_joins_nothing_else(void **state)
{
    struct trial trial = halves(LARGE);
    char *path = save(state, "limited", &trial);
    for (int r = 0; r < 4; r++) {
        trial.from[r] = r < 2 ? 0 : LARGE / 2;
        trial.end[r] = r < 2 ? LARGE / 2 : LARGE;
        trial.options[r].reading = DCP_READING_COOPERATIVE;
    }
    for (int limited = 0; limited < 2; limited++) {
        uint64_t unchecked = 0;
        for (int r = 0; r < 4; r++)
            trial.options[r].memory_limit = limited ? (uint64_t)128 << 20 : 0;
        ranks_must(4, path, load, &trial);
        for (int r = 0; r < 4; r++)
            unchecked += trial.figures[r].bytes_unchecked;
        assert_int_equal(unchecked, limited ? wanted_by(&trial, 0) + wanted_by(&trial, 2) : 0);
    }
    free(path);
}

/* The coordinator knows of a second part of rank 1, which sends the sum of one. */
static dcp_status compare_too_few(struct rank *self)
{
    const dcp_load_options options = {.group = self->group, .timeout_seconds = 30};
    const struct metadata_piece piece = {.length = 8};
    const struct metadata_entry entry = {.name = "t", .pieces = (void *)&piece, .piece_count = 1};
    const struct metadata metadata = {.entries = (void *)&entry, .count = 1};
    const struct load_sharing sharing = {.options = &options, .metadata = &metadata};
    struct own_part own = {.joined = true};
    struct record_part joined[] = {{0, 0, 0, 1, 1, 0}, {0, 0, 1, 2, 1, 1}};
    const struct load_records records = {.sharing = &sharing,
                                         .any = true,
                                         .own = &own,
                                         .own_count = 1,
                                         .joined = joined,
                                         .joined_count = self->rank == 0 ? 2 : 0};
    return load_records_compare(&records, DCP_OK);
}

static void a_message_with_too_few_sums_is_refused(void **state)
{
    struct rank ranks[RANKS_MAX];
    (void)state;
    ranks_run(ranks, 2, "", compare_too_few, NULL);
    assert_int_equal(ranks[0].status, DCP_ERR_GROUP);
    assert_non_null(strstr(ranks[0].message, "rank 1: its message of checksums ends too early"));
    assert_int_equal(ranks[1].status, DCP_OK);
}

/* Ranks agree on the failure of one. */
static void missing_memory_is_an_error_on_all(void **state)
{
    struct trial trial = halves(SMALL);
    char *path = save(state, "memory", &trial);
    struct rank ranks[RANKS_MAX];
    long failures = 0;
    for (long n = 1;; n += TRIAL_STEP) {
        failing_allocator_install(n, false);
        dcp_status status = ranks_try(ranks, 2, path, load, &trial);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        if (status != DCP_OK)
            continue;
        assert_int_equal(ranks[0].status, ranks[1].status);
        /* A tree without memory is none at all, which a load refuses. */
        if (ranks[0].status != DCP_OK && ranks[0].status != DCP_ERR_NO_MEMORY &&
            ranks[0].status != DCP_ERR_ARGUMENT)
            fail_msg("allocation %ld: %s", n, ranks[0].message);
        failures += ranks[0].status != DCP_OK;
    }
    assert_true(failures * TRIAL_STEP > 50);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ranks_check_them_together, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(threads_divide_a_part_further, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(several_ranks_may_read_the_same_part, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(ranks_that_read_for_each_other_join_sums_as_well,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(parts_that_are_not_all_of_it_are_not_joined, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(who_checks_nothing_or_keeps_a_limit_reads_alone,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(who_keeps_a_limit_checks_what_is_read_for_others,
                                        scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(who_keeps_a_limit_joins_nothing_else, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(a_message_with_too_few_sums_is_refused),
        cmocka_unit_test_setup_teardown(missing_memory_is_an_error_on_all, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
