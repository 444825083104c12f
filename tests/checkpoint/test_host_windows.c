/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows that ranks of one host read where they are: a rank that is slow reads them before they
 * are overwritten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/ranks.h"
#include "fault/real_syscall.h"
#include "group/collective.h"

/* Many more windows of each rank than it has buffers. */
enum { RANKS = 3, ROWS = 3 * 1280, COLUMNS = 4096 };

static _Thread_local double pause_seconds;
static _Thread_local unsigned only_step; /* that it pauses in; 0: each */
static _Thread_local unsigned steps;     /* that this rank has begun */

/* In place of the C library's. A slow rank takes a while to read what the others have for it after
 * it has begun a round, while they go on. */
long syscall(long number, ...)
{
    va_list list;
    va_start(list, number);
    const struct syscall_arguments arguments = syscall_arguments(list);
    va_end(list);
    long result = real_syscall(number, &arguments);
    bool begins = number == SYS_futex && arguments.values[1] == FUTEX_WAKE;
    steps += begins;
    if (begins && pause_seconds != 0 && (only_step == 0 || only_step == steps))
        clock_sleep_ns((int64_t)(pause_seconds * 1e9));
    return result;
}

static dcp_status send_nothing(void *context, const dcp_collective *call, const void *send,
                               const size_t *send_sizes, const size_t *send_offsets, void *receive,
                               const size_t *receive_sizes, const size_t *receive_offsets)
{
    (void)context, (void)call, (void)send, (void)send_sizes, (void)send_offsets, (void)receive;
    (void)receive_sizes, (void)receive_offsets;
    return dcp_error_set(DCP_ERR_INTERNAL, "messages between ranks of one host");
}

struct trial {
    int slow;       /* a rank */
    double seconds; /* that it pauses */
    double timeout;
    bool held; /* rank 0 has what is stored otherwise */
    unsigned only_step;
    unsigned steps[RANKS];
};

static float value_at(int64_t row, int64_t column)
{
    return (float)(row * 31 + column);
}

/* A part of the rows of the tensor, in a tree; the memory is freed by the caller. */
static dcp_state *make_tree(int64_t first, int64_t count, bool filled, float **data)
{
    dcp_state *root = dcp_state_new();
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 2,
                               .global_shape = {ROWS, COLUMNS},
                               .sharded = true,
                               .offsets = {first, 0},
                               .sizes = {count, COLUMNS},
                               .data = *data = malloc((size_t)(count * COLUMNS) * sizeof **data)};
    assert_non_null(*data);
    for (int64_t i = 0; i < count * COLUMNS; i++)
        (*data)[i] = filled ? value_at(first + i / COLUMNS, i % COLUMNS) : -1;
    assert_non_null(dcp_state_tensor(root, "t", &tensor));
    return root;
}

static dcp_status check(const float *data, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count * COLUMNS; i++)
        if (data[i] != value_at(first + i / COLUMNS, i % COLUMNS))
            return dcp_error_set(DCP_ERR_INTERNAL, "element %ld of rows from %ld on is %g", (long)i,
                                 (long)first, (double)data[i]);
    return DCP_OK;
}

static dcp_status distribute(struct rank *self, dcp_state *root)
{
    const dcp_distribute_state_options options = {.group = self->group,
                                                  .broadcast_from_rank0 = true};
    float *data = NULL;
    dcp_state *whole = self->rank == 0 ? make_tree(0, ROWS, true, &data) : NULL;
    dcp_status status = dcp_distribute_state(root, whole, &options, NULL);
    dcp_state_free(whole);
    free(data);
    return status;
}

static dcp_status take_part(struct rank *self)
{
    struct trial *trial = self->context;
    const dcp_load_options options = {.group = self->group,
                                      .timeout_seconds = trial->timeout,
                                      .reading = DCP_READING_COOPERATIVE};
    int64_t count = trial->held ? ROWS / RANKS : ROWS;
    int64_t first = trial->held ? self->rank * count : 0;
    float *data;
    dcp_state *root = make_tree(first, count, false, &data);
    pause_seconds = self->rank == trial->slow ? trial->seconds : 0;
    only_step = trial->only_step;
    self->group->operations.all_to_all = send_nothing;
    dcp_status status =
        trial->held ? distribute(self, root) : dcp_load(root, self->path, &options, NULL);
    trial->steps[self->rank] = steps;
    if (status == DCP_OK)
        status = check(data, first, count);
    dcp_state_free(root);
    free(data);
    return status;
}

static void must_pass(const char *path, bool held)
{
    for (int slow = 0; slow < RANKS; slow++) {
        struct trial trial = {.slow = slow, .seconds = 0.02, .held = held};
        ranks_must(RANKS, path, take_part, &trial);
        for (int rank = 0; rank < RANKS; rank++)
            assert_true(trial.steps[rank] > 6);
    }
}

static void save(const char *path)
{
    const dcp_save_options options = {.skip_sync = true};
    float *data;
    dcp_state *root = make_tree(0, ROWS, true, &data);
    must(dcp_save(root, path, &options));
    dcp_state_free(root);
    free(data);
}

static void what_ranks_read_for_each_other_arrives(void **state)
{
    save(*state);
    must_pass(*state, false);
}

/* It sends to one rank after the other. */
static void what_rank_0_has_for_the_others_arrives(void **state)
{
    must_pass(*state, true);
}

/* The others leave before it comes. */
static void a_rank_that_is_too_late_is_named_by_all(void **state)
{
    struct trial trial = {.slow = 1, .seconds = 4.5, .only_step = 4, .timeout = 2};
    struct rank ranks[RANKS_MAX];
    save(*state);
    ranks_run(ranks, RANKS, *state, take_part, &trial);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(ranks[rank].status, DCP_ERR_TIMEOUT);
        assert_non_null(
            strstr(ranks[rank].message, "exchanging tensors: rank 1 did not come within 2 s"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_ranks_read_for_each_other_arrives, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(what_rank_0_has_for_the_others_arrives, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(a_rank_that_is_too_late_is_named_by_all, directory_setup,
                                        directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
