/* SPDX-License-Identifier: BSD-3-Clause */
/* Records with one checksum that are read part by part are compared when all of it has been read,
 * or what is missing. */
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
#include "checkpoint/view/view_records.h"
#include "fault/failing_allocator.h"
#include "storage/scratch.h"

enum { ROWS = 6000, COLUMNS = 100, SMALL = 1000, READS_MAX = 5 };
#define FILE_NAME "__0_0.distcp"

static const struct part whole = {
    .shape = {ROWS, COLUMNS}, .sizes = {ROWS, COLUMNS}, .dtype = DCP_F32, .end = 1};

/* Rows that are read after each other; -1: no more. */
struct trial {
    int64_t rows[READS_MAX][2];
    bool complete; /* by them */
};

/* In order, backwards, mixed, some twice, with gaps, and all at once. */
static const struct trial trials[] = {
    {{{0, 2000}, {2000, 4000}, {4000, ROWS}, {-1}}, true},
    {{{4000, ROWS}, {2000, 4000}, {0, 2000}, {-1}}, true},
    {{{0, 1000}, {3000, ROWS}, {2000, 3000}, {1000, 2000}, {-1}}, true},
    {{{0, 3000}, {0, 3000}, {1000, 2000}, {3000, ROWS}, {-1}}, true},
    {{{1000, 2000}, {3000, 4000}, {-1}}, false},
    {{{0, 1}, {-1}}, false},
    {{{ROWS - 1, ROWS}, {-1}}, false},
    {{{0, 3000}, {2000, ROWS}, {-1}}, false},
    {{{0, ROWS}, {-1}}, true},
};
enum { TRIALS = sizeof trials / sizeof *trials };

static char *save(void *const *state, const struct part *part)
{
    char *path = scratch_path(*state, "c");
    assert_true(parts_save(path, part, &(dcp_save_options){.skip_sync = true}));
    scratch_drop_footer(path, FILE_NAME);
    return path;
}

static dcp_status read_rows(dcp_checkpoint *checkpoint, int64_t from, int64_t end)
{
    static float space[ROWS * COLUMNS];
    const dcp_tensor rows = {.dtype = DCP_F32,
                             .ndim = 2,
                             .sharded = true,
                             .global_shape = {ROWS, COLUMNS},
                             .offsets = {from, 0},
                             .sizes = {end - from, COLUMNS},
                             .data = space};
    return dcp_checkpoint_read_tensor(checkpoint, 0, &rows, NULL);
}

/* The outcome of the reads, and of completing after them if these succeed. */
struct outcome {
    dcp_status read, completed;
};

static struct outcome run(const char *path, const struct trial *trial, bool reopened)
{
    struct outcome outcome = {DCP_OK, DCP_OK};
    dcp_checkpoint *checkpoint = NULL;
    outcome.read = dcp_checkpoint_open(path, NULL, &checkpoint);
    for (size_t i = 0; outcome.read == DCP_OK && trial->rows[i][0] >= 0; i++) {
        outcome.read = read_rows(checkpoint, trial->rows[i][0], trial->rows[i][1]);
        if (outcome.read != DCP_OK || !reopened)
            continue;
        struct view_records *records = view_detach_records(checkpoint);
        dcp_checkpoint_close(checkpoint);
        outcome.read = dcp_checkpoint_open(path, NULL, &checkpoint);
        if (outcome.read == DCP_OK)
            view_attach_records(checkpoint, records);
        else
            view_records_free(records);
    }
    if (outcome.read == DCP_OK)
        outcome.completed = view_complete_records(checkpoint);
    dcp_checkpoint_close(checkpoint);
    return outcome;
}

static void what_is_damaged_is_found(void **state)
{
    char *path = save(state, &whole);
    for (size_t i = 0; i < TRIALS; i++)
        for (int reopened = 0; reopened < 2; reopened++) {
            struct outcome outcome = run(path, &trials[i], reopened);
            assert_int_equal(outcome.read, DCP_OK);
            assert_int_equal(outcome.completed, DCP_OK);
            for (int64_t row = 0; row < ROWS; row += 1499) {
                uint64_t place = parts_find(path, FILE_NAME, &whole, 0, row);
                scratch_flip(path, FILE_NAME, place, 0x40);
                outcome = run(path, &trials[i], reopened);
                assert_non_null(strstr(dcp_error_message(), "t0 (" FILE_NAME));
                assert_non_null(strstr(dcp_error_message(), "CRC-32"));
                scratch_flip(path, FILE_NAME, place, 0x40);
                assert_int_equal(outcome.read, trials[i].complete ? DCP_ERR_CHECKSUM : DCP_OK);
                assert_int_equal(outcome.completed, trials[i].complete ? DCP_OK : DCP_ERR_CHECKSUM);
            }
        }
    free(path);
}

/* As when tensors are compared before they are copied. */
static void what_is_read_again_is_checked_again(void **state)
{
    char *path = save(state, &whole);
    uint64_t place = parts_find(path, FILE_NAME, &whole, 0, 5000);
    dcp_checkpoint *checkpoint;
    assert_int_equal(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_OK);
    for (int damaged = 0; damaged < 2; damaged++) {
        assert_int_equal(read_rows(checkpoint, 0, 3000), DCP_OK);
        assert_int_equal(read_rows(checkpoint, 3000, ROWS), damaged ? DCP_ERR_CHECKSUM : DCP_OK);
        scratch_flip(path, FILE_NAME, place, 1);
    }
    assert_int_equal(view_complete_records(checkpoint), DCP_OK);
    dcp_checkpoint_close(checkpoint);
    free(path);
}

/* A small record is read whole for a part of it, and is checked at once. */
static void small_records_are_checked_at_once(void **state)
{
    const struct part small = {
        .shape = {SMALL, COLUMNS}, .sizes = {SMALL, COLUMNS}, .dtype = DCP_F32, .end = 1};
    char *path = save(state, &small);
    dcp_checkpoint *checkpoint;
    float space[COLUMNS];
    const dcp_tensor row = {.dtype = DCP_F32,
                            .ndim = 2,
                            .sharded = true,
                            .global_shape = {SMALL, COLUMNS},
                            .sizes = {1, COLUMNS},
                            .data = space};
    scratch_flip(path, FILE_NAME, parts_find(path, FILE_NAME, &small, 0, SMALL - 1), 1);
    assert_int_equal(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_OK);
    view_join_records(checkpoint);
    assert_int_equal(dcp_checkpoint_read_tensor(checkpoint, 0, &row, NULL), DCP_ERR_CHECKSUM);
    dcp_checkpoint_close(checkpoint);
    free(path);
}

/* Most of it: the rest is read along, unless all of it will be read, and it is checked at once. */
static void most_of_a_record_is_checked_at_once(void **state)
{
    char *path = save(state, &whole);
    scratch_flip(path, FILE_NAME, parts_find(path, FILE_NAME, &whole, 0, ROWS - 1), 1);
    for (int joined = 0; joined < 2; joined++) {
        dcp_checkpoint *checkpoint;
        assert_int_equal(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_OK);
        if (joined)
            view_join_records(checkpoint);
        assert_int_equal(read_rows(checkpoint, 0, ROWS - 100), joined ? DCP_OK : DCP_ERR_CHECKSUM);
        assert_int_equal(view_complete_records(checkpoint), joined ? DCP_ERR_CHECKSUM : DCP_OK);
        dcp_checkpoint_close(checkpoint);
    }
    free(path);
}

/* Far more parts than threads read: memory has an end, and what is read in order counts again. */
static void parts_here_and_there_are_forgotten(void **state)
{
    char *path = save(state, &whole);
    dcp_checkpoint *checkpoint;
    scratch_flip(path, FILE_NAME, parts_find(path, FILE_NAME, &whole, 0, 1), 1);
    assert_int_equal(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_OK);
    for (int64_t row = 0; row < ROWS; row += 2)
        assert_int_equal(read_rows(checkpoint, row, row + 1), DCP_OK);
    for (int64_t row = 1; row < ROWS; row += 2)
        assert_int_equal(read_rows(checkpoint, row, row + 1), DCP_OK);
    assert_int_equal(view_complete_records(checkpoint), DCP_ERR_CHECKSUM);
    dcp_checkpoint_close(checkpoint);
    free(path);
}

/* As when a file has become another one: what was read of it before counts for nothing. */
static void records_of_something_else_are_dropped(void **state)
{
    struct part more = whole;
    more.end = 2;
    char *path = save(state, &whole), *other = scratch_path(*state, "other");
    dcp_checkpoint *checkpoint;
    assert_true(parts_save(other, &more, &(dcp_save_options){.skip_sync = true}));
    scratch_drop_footer(other, FILE_NAME);
    scratch_flip(path, FILE_NAME, parts_find(path, FILE_NAME, &whole, 0, 7), 2);
    assert_int_equal(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_OK);
    assert_int_equal(read_rows(checkpoint, 0, 3000), DCP_OK);
    struct view_records *records = view_detach_records(checkpoint);
    dcp_checkpoint_close(checkpoint);
    assert_int_equal(dcp_checkpoint_open(other, NULL, &checkpoint), DCP_OK);
    view_attach_records(checkpoint, records);
    assert_int_equal(read_rows(checkpoint, 3000, ROWS), DCP_OK);
    assert_int_equal(view_complete_records(checkpoint), DCP_OK);
    dcp_checkpoint_close(checkpoint);
    free(path);
    free(other);
}

static void any_allocation_may_fail(void **state)
{
    char *path = save(state, &whole);
    bool reached = true;
    for (long n = 1; reached; n += TRIAL_STEP) {
        failing_allocator_install(n, false);
        struct outcome outcome = run(path, &trials[2 + n % 3], n % 2);
        reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached)
            assert_int_equal(outcome.read | outcome.completed, DCP_OK);
        else if (outcome.read != DCP_OK || outcome.completed != DCP_OK)
            assert_true(outcome.read == DCP_ERR_NO_MEMORY || outcome.read == DCP_ERR_ARGUMENT ||
                        outcome.completed == DCP_ERR_NO_MEMORY);
    }
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_damaged_is_found),
        TEST(what_is_read_again_is_checked_again),
        TEST(small_records_are_checked_at_once),
        TEST(most_of_a_record_is_checked_at_once),
        TEST(parts_here_and_there_are_forgotten),
        TEST(records_of_something_else_are_dropped),
        TEST(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
