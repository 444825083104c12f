/* SPDX-License-Identifier: BSD-3-Clause */
/* What a caller is told while it saves and loads, and how it cancels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/slow_clock.h"

#define ROWS    96
#define COLUMNS 16384
#define MINE    ((uint64_t)ROWS / 2 * COLUMNS * sizeof(float))

/* Sees to it that what comes makes sense; cancels at a call, from 1, if that is not 0. */
struct listener {
    atomic_int inside;
    int calls;
    int cancels_at;
    dcp_progress last;
};

static bool listen(void *context, const dcp_progress *progress)
{
    struct listener *listener = context;
    const dcp_progress *last = &listener->last;
    assert_int_equal(atomic_fetch_add(&listener->inside, 1), 0);
    assert_true(listener->calls < listener->cancels_at || listener->cancels_at == 0);
    listener->calls++;
    assert_true(progress->phase >= last->phase && progress->bytes_done >= last->bytes_done);
    assert_true(progress->bytes_done <= progress->bytes_total);
    assert_true(progress->bytes_total == last->bytes_total || last->bytes_total == 0);
    listener->last = *progress;
    atomic_fetch_sub(&listener->inside, 1);
    return listener->calls != listener->cancels_at;
}

static void assert_ended(const struct listener *listener, uint64_t least, int calls)
{
    assert_int_equal(listener->last.phase, DCP_PHASE_COMMIT);
    assert_int_equal(listener->last.bytes_done, listener->last.bytes_total);
    assert_in_range(listener->last.bytes_total, least, least + 200000);
    assert_true(listener->calls >= calls);
}

/* Two matrices of which this rank has some rows, one of them not as they are stored, and a number.
 */
static dcp_state *sample(const struct rank *self, float *rows)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    dcp_placement by_rows = dcp_shard(0);
    dcp_tensor matrix = {.dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    dcp_state *root = dcp_state_new();
    must(dcp_mesh_shard(&mesh, &matrix, &by_rows));
    matrix.data = rows;
    dcp_state_tensor(root, "matrix", &matrix);
    matrix.data = rows + ROWS / self->size * COLUMNS;
    matrix.strided = true;
    matrix.strides[0] = 1;
    matrix.strides[1] = ROWS / self->size;
    dcp_state_tensor(root, "turned", &matrix);
    dcp_state_int(root, "step", 7);
    must(dcp_state_status(root));
    return root;
}

/* What is saved and loaded, and by whom it is cancelled. */
struct trial {
    int saving_cancelled_at;
    int loading_cancelled_at;
    int rank;
    uint32_t io;
};

static void expect(const struct trial *trial, dcp_status status, int cancelled_at)
{
    char text[80];
    if (cancelled_at == 0) {
        must(status);
    } else {
        snprintf(text, sizeof text, "rank %d: ", trial->rank);
        must_fail(status, DCP_ERR_CANCELLED, text);
        must_fail(status, DCP_ERR_CANCELLED, "cancelled by the caller's progress function");
    }
}

static dcp_status save_and_load(struct rank *self)
{
    const struct trial *trial = self->context;
    bool cancels = self->rank == trial->rank;
    float *rows = test_calloc(2 * MINE, 1);
    dcp_state *root = sample(self, rows);
    struct listener listener = {.cancels_at = cancels ? trial->saving_cancelled_at : 0};
    dcp_save_options saving = {.group = self->group,
                               .thread_count = 2,
                               .overwrite = DCP_OVERWRITE_REPLACE,
                               .io = trial->io,
                               .progress = listen,
                               .progress_context = &listener};
    expect(trial, dcp_save(root, self->path, &saving), trial->saving_cancelled_at);
    if (trial->saving_cancelled_at == 0) {
        assert_ended(&listener, 2 * MINE, 20);
        listener = (struct listener){.cancels_at = cancels ? trial->loading_cancelled_at : 0};
        dcp_load_options loading = {.group = self->group,
                                    .thread_count = 2,
                                    .io = trial->io,
                                    .progress = listen,
                                    .progress_context = &listener};
        expect(trial, dcp_load(root, self->path, &loading, NULL), trial->loading_cancelled_at);
        if (trial->loading_cancelled_at == 0)
            assert_ended(&listener, 2 * MINE, 10);
    }
    dcp_state_free(root);
    test_free(rows);
    return DCP_OK;
}

static void test_says_how_far_it_is(void **state)
{
    static const uint32_t ways[] = {DCP_IO_AUTO, DCP_IO_POOL, DCP_IO_BUFFERED};
    slow_clock_install();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct trial trial = {.io = ways[i]};
        ranks_must(2, path_in(state, "c"), save_and_load, &trial);
    }
    slow_clock_remove();
}

/* The calls that a save makes at least: four for the phases, and some while it writes. */
#define CALLS 12

static void test_a_cancelled_save_leaves_nothing(void **state)
{
    slow_clock_install();
    for (int at = 1; at <= CALLS; at++) {
        for (int rank = 0; rank < 2; rank++) {
            struct trial trial = {.saving_cancelled_at = at, .rank = rank};
            ranks_must(2, path_in(state, "c"), save_and_load, &trial);
            assert_int_equal(access(path_in(state, "c"), F_OK), -1);
        }
    }
    struct trial trial = {0};
    ranks_must(2, path_in(state, "c"), save_and_load, &trial);
    slow_clock_remove();
}

static bool accept_until_commit(void *context, const dcp_progress *progress)
{
    (void)context;
    return progress->phase != DCP_PHASE_COMMIT;
}

static void test_cancelled_before_the_commit(void **state)
{
    struct rank alone = {.size = 1};
    float *rows = test_calloc(4 * MINE, 1);
    dcp_state *root = sample(&alone, rows);
    dcp_save_options saving = {.progress = accept_until_commit};
    must_fail(dcp_save(root, path_in(state, "c"), &saving), DCP_ERR_CANCELLED, "cancelled");
    assert_int_equal(access(path_in(state, "c"), F_OK), -1);
    saving.progress = NULL;
    must(dcp_save(root, path_in(state, "c"), &saving));
    dcp_load_options loading = {.progress = accept_until_commit};
    must_fail(dcp_load(root, path_in(state, "c"), &loading, NULL), DCP_ERR_CANCELLED,
              "tensors are filled, objects may not be: cancelled");
    dcp_state_free(root);
    test_free(rows);
}

static void test_a_cancelled_load_is_an_error(void **state)
{
    slow_clock_install();
    for (int at = 1; at <= CALLS - 2; at++) {
        struct trial trial = {.loading_cancelled_at = at, .rank = at % 2};
        ranks_must(2, path_in(state, "c"), save_and_load, &trial);
    }
    slow_clock_remove();
}

static void test_a_check_says_how_far_it_is(void **state)
{
    const char *path = path_in(state, "c");
    struct trial trial = {0};
    uint64_t faults = 1;
    slow_clock_install();
    ranks_must(2, path, save_and_load, &trial);
    struct listener whole = {0};
    dcp_open_options options = {.progress = listen, .progress_context = &whole};
    must(dcp_verify(path, &options, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    assert_int_equal(whole.last.phase, DCP_PHASE_READING);
    assert_int_equal(whole.last.bytes_done, whole.last.bytes_total);
    assert_true(whole.last.bytes_total > 4 * MINE && whole.last.bytes_total < 5 * MINE);
    assert_true(whole.calls > 8);
    struct listener listener = {.cancels_at = whole.calls / 2};
    options.progress_context = &listener;
    assert_int_equal(dcp_verify(path, &options, NULL, NULL, &faults), DCP_ERR_CANCELLED);
    assert_int_equal(listener.calls, whole.calls / 2);
    slow_clock_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_says_how_far_it_is, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_a_cancelled_save_leaves_nothing, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_cancelled_before_the_commit, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_a_cancelled_load_is_an_error, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_a_check_says_how_far_it_is, directory_setup,
                                        directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
