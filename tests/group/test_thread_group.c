/* SPDX-License-Identifier: BSD-3-Clause */
/* The meeting room itself: its collectives, ranks that never come, come late or come for
 * something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "fault/failing_allocator.h"
#include "group/collective.h"
#include "group/thread_ranks.h"

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    dcp_group *groups[1];
    assert_int_equal(dcp_group_new_threads(1, NULL), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_group_new_threads(0, groups), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_group_new_threads(-3, groups), DCP_ERR_ARGUMENT);
}

static void handles_are_freed_in_any_order(void **state)
{
    (void)state;
    dcp_group *groups[3];
    failing_allocator_install(0, false);
    assert_int_equal(dcp_group_new_threads(3, groups), DCP_OK);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(dcp_group_rank(groups[rank]), rank);
        assert_int_equal(dcp_group_size(groups[rank]), 3);
    }
    dcp_group_free(groups[1]);
    dcp_group_free(groups[0]);
    dcp_group_free(groups[2]);
    assert_int_equal(failing_allocator_remove(), 0);
}

/* Every collective with every root; rank r's message is r + 1 letters. */
static dcp_status exchange_letters(struct thread_rank *self)
{
    static const dcp_collective call = {"exchanging letters", 20};
    const dcp_group_operations *operations = &self->group->operations;
    void *context = self->group->context;
    char mine[RANKS_MAX], everyone[RANKS_MAX * RANKS_MAX], expected[RANKS_MAX * RANKS_MAX];
    size_t sizes[RANKS_MAX], total = 0;
    memset(mine, 'a' + self->rank, sizeof mine);
    for (int rank = 0; rank < self->size; rank++) {
        sizes[rank] = (size_t)rank + 1;
        memset(expected + total, 'a' + rank, sizes[rank]);
        total += sizes[rank];
    }
    RETURN_IF_ERROR(operations->all_gather(context, &call, mine, 1, everyone));
    for (int rank = 0; rank < self->size; rank++)
        if (everyone[rank] != 'a' + rank)
            return dcp_error_set(DCP_ERR_INTERNAL, "all_gather gave %c", everyone[rank]);
    for (int root = 0; root < self->size; root++) {
        bool is_root = root == self->rank;
        char reported = mine[0];
        RETURN_IF_ERROR(operations->broadcast(context, &call, root, &reported, 1));
        if (reported != 'a' + root)
            return dcp_error_set(DCP_ERR_INTERNAL, "broadcast gave %c", reported);
        RETURN_IF_ERROR(operations->gather(context, &call, root, mine, sizes[self->rank], everyone,
                                           is_root ? sizes : NULL));
        if (is_root && memcmp(everyone, expected, total) != 0)
            return dcp_error_set(DCP_ERR_INTERNAL, "gather gave something else");
        RETURN_IF_ERROR(operations->scatter(context, &call, root, is_root ? expected : NULL,
                                            is_root ? sizes : NULL, everyone, sizes[self->rank]));
        if (memcmp(everyone, mine, sizes[self->rank]) != 0)
            return dcp_error_set(DCP_ERR_INTERNAL, "scatter gave something else");
    }
    return DCP_OK;
}

static void every_collective_moves_the_right_bytes(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    for (int size = 1; size <= RANKS_MAX; size++) {
        thread_ranks_run(size, false, exchange_letters, NULL, ranks);
        for (int rank = 0; rank < size; rank++)
            if (ranks[rank].status != DCP_OK)
                fail_msg("rank %d of %d: %s", rank, size, ranks[rank].message);
    }
}

/* Everyone's letters to everyone: rank r gives rank d the r + d letters from its d-th on. */
static dcp_status exchange_letters_with_all(struct thread_rank *self)
{
    static const dcp_collective call = {"exchanging letters", 20};
    enum { LETTERS = 2 * RANKS_MAX };
    char mine[3 * RANKS_MAX], everyone[RANKS_MAX * LETTERS];
    size_t sizes[2][RANKS_MAX], offsets[2][RANKS_MAX];
    for (size_t i = 0; i < sizeof mine; i++)
        mine[i] = (char)('a' + self->rank + (int)i);
    for (int rank = 0; rank < self->size; rank++) {
        sizes[0][rank] = sizes[1][rank] =
            rank == self->rank ? 0 : (size_t)rank + (size_t)self->rank;
        offsets[0][rank] = (size_t)rank;
        offsets[1][rank] = (size_t)rank * LETTERS;
    }
    for (int times = 0; times < 3; times++) {
        memset(everyone, 0, sizeof everyone);
        RETURN_IF_ERROR(collective_all_to_all(self->group, &call, mine, sizes[0], offsets[0],
                                              everyone, sizes[1], offsets[1]));
        for (int rank = 0; rank < self->size; rank++)
            for (size_t i = 0; i < sizes[1][rank]; i++)
                if (everyone[rank * LETTERS + (int)i] != 'a' + rank + self->rank + (int)i)
                    return dcp_error_set(DCP_ERR_INTERNAL, "letter %zu of rank %d is wrong", i,
                                         rank);
    }
    return DCP_OK;
}

static void everyone_gets_what_is_for_it(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    for (int size = 1; size <= RANKS_MAX; size++) {
        thread_ranks_run(size, false, exchange_letters_with_all, NULL, ranks);
        for (int rank = 0; rank < size; rank++)
            if (ranks[rank].status != DCP_OK)
                fail_msg("rank %d of %d: %s", rank, size, ranks[rank].message);
    }
}

/* Rank 2 expects a byte more from rank 1 than that sends. */
static dcp_status expect_too_much(struct thread_rank *self)
{
    static const dcp_collective call = {"exchanging letters", 20};
    char mine[8] = "letters", everyone[RANKS_MAX * 8];
    size_t sizes[2][RANKS_MAX], offsets[2][RANKS_MAX] = {{0}};
    for (int rank = 0; rank < self->size; rank++) {
        sizes[0][rank] = sizes[1][rank] = rank == self->rank ? 0 : 4;
        offsets[1][rank] = (size_t)rank * 8;
    }
    if (self->rank == 2)
        sizes[1][1]++;
    return collective_all_to_all(self->group, &call, mine, sizes[0], offsets[0], everyone, sizes[1],
                                 offsets[1]);
}

static void messages_that_do_not_fit_fail_for_all(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    thread_ranks_run(3, false, expect_too_much, NULL, ranks);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(ranks[rank].status, DCP_ERR_GROUP);
        assert_string_equal(ranks[rank].message,
                            "exchanging letters: rank 1 sends 4 bytes to rank 2, which expects 5");
    }
}

/* Who comes when. */
struct absence {
    unsigned never; /* bit r: rank r does not come */
    int late;       /* comes after everyone else has given up; -1: nobody */
    double timeout;
    _Atomic int given_up;
};

static dcp_status come_or_not(struct thread_rank *self)
{
    struct absence *absence = self->context;
    dcp_collective call = {"gathering plans", absence->timeout};
    char byte = 0, bytes[RANKS_MAX];
    if (absence->never >> self->rank & 1)
        return DCP_OK;
    if (absence->late == self->rank) {
        int others = self->size - 1 - __builtin_popcount(absence->never);
        while (absence->given_up < others)
            clock_sleep_ns(1000000);
        call.phase = "dealing out plans";
    }
    dcp_status status = collective_all_gather(self->group, &call, &byte, 1, bytes);
    absence->given_up++;
    return status;
}

static void every_waiting_rank_names_the_missing(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    for (int missing = 0; missing < 4; missing++) {
        struct absence absence = {.never = 1u << missing, .late = -1, .timeout = 0.2};
        char expected[128];
        snprintf(expected, sizeof expected,
                 "gathering plans: rank %d did not make this call within 0.2 s", missing);
        int64_t before = clock_monotonic_ns();
        thread_ranks_run(4, false, come_or_not, &absence, ranks);
        int64_t took = clock_monotonic_ns() - before;
        assert_in_range(took, 200000000, 1200000000);
        for (int rank = 0; rank < 4; rank++) {
            assert_int_equal(ranks[rank].status, rank == missing ? DCP_OK : DCP_ERR_TIMEOUT);
            if (rank != missing)
                assert_string_equal(ranks[rank].message, expected);
        }
    }
}

static void several_missing_ranks_are_all_named(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    struct absence absence = {.never = 1u << 1 | 1u << 2 | 1u << 6, .late = -1, .timeout = 0.25};
    thread_ranks_run(8, false, come_or_not, &absence, ranks);
    assert_string_equal(ranks[5].message,
                        "gathering plans: ranks 1, 2, 6 did not make this call within 0.25 s");
}

static void a_late_rank_learns_what_happened(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    struct absence absence = {.late = 2, .timeout = 0.25};
    thread_ranks_run(3, false, come_or_not, &absence, ranks);
    assert_int_equal(ranks[0].status, DCP_ERR_TIMEOUT);
    assert_int_equal(ranks[2].status, DCP_ERR_STATE);
    assert_string_equal(
        ranks[2].message,
        "the group is broken: gathering plans: rank 2 did not make this call within 0.25 s");
}

/* Each rank waits at most its own time; the first whose time is over speaks for all. */
static dcp_status come_with_own_patience(struct thread_rank *self)
{
    dcp_collective call = {"waiting", self->rank == 0 ? 0.25 : 1000};
    char byte = 0;
    return self->rank == 1 ? DCP_OK : collective_broadcast(self->group, &call, 0, &byte, 1);
}

static void the_shortest_deadline_ends_the_wait_of_all(void **state)
{
    (void)state;
    struct thread_rank ranks[RANKS_MAX];
    thread_ranks_run(4, false, come_with_own_patience, NULL, ranks);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(ranks[rank].status, rank == 1 ? DCP_OK : DCP_ERR_TIMEOUT);
    assert_string_equal(ranks[3].message, "waiting: rank 1 did not make this call within 0.25 s");
}

enum misstep {
    MISSTEP_KIND,
    MISSTEP_ROOT,
    MISSTEP_SIZE,
    MISSTEP_GATHER_SIZE,
    MISSTEP_NO_SIZES /* the root itself has none */
};

static dcp_status one_goes_astray(struct thread_rank *self)
{
    static const dcp_collective call = {"keeping step", 20};
    enum misstep misstep = *(enum misstep *)self->context;
    bool astray = self->rank == 2;
    char bytes[64] = {0};
    size_t sizes[3] = {4, 4, 4};
    if (misstep == MISSTEP_KIND && astray)
        return collective_all_gather(self->group, &call, bytes, 1, bytes + 8);
    if (misstep == MISSTEP_NO_SIZES && !astray)
        return collective_gather(self->group, &call, 2, bytes, sizes, NULL, bytes);
    if (misstep == MISSTEP_NO_SIZES)
        return collective_broadcast(self->group, &call, 2, bytes, 4);
    if (misstep == MISSTEP_GATHER_SIZE) {
        sizes[2] = astray ? 40 : 4;
        return collective_gather(self->group, &call, 0, bytes, sizes, NULL, bytes);
    }
    return collective_broadcast(self->group, &call, misstep == MISSTEP_ROOT && astray, bytes,
                                misstep == MISSTEP_SIZE && astray ? 40 : 4);
}

static void ranks_out_of_step_fail_together(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "keeping step: rank 0 called broadcast with root 0, but rank 2 called all_gather with root "
        "0: all ranks must make the same calls",
        "keeping step: rank 0 called broadcast with root 0, but rank 2 called broadcast with root "
        "1: all ranks must make the same calls",
        "keeping step: broadcast of 40 bytes at rank 2, expected 4",
        "keeping step: gather of 40 bytes at rank 2, expected 4",
        "keeping step: rank 0 called gather with root 2, but rank 2 called broadcast with root 2: "
        "all ranks must make the same calls",
    };
    struct thread_rank ranks[RANKS_MAX];
    for (enum misstep misstep = MISSTEP_KIND; misstep <= MISSTEP_NO_SIZES; misstep++) {
        thread_ranks_run(3, false, one_goes_astray, &misstep, ranks);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(ranks[rank].status, DCP_ERR_GROUP);
            assert_string_equal(ranks[rank].message, messages[misstep]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(handles_are_freed_in_any_order),
        cmocka_unit_test(every_collective_moves_the_right_bytes),
        cmocka_unit_test(everyone_gets_what_is_for_it),
        cmocka_unit_test(messages_that_do_not_fit_fail_for_all),
        cmocka_unit_test(every_waiting_rank_names_the_missing),
        cmocka_unit_test(several_missing_ranks_are_all_named),
        cmocka_unit_test(a_late_rank_learns_what_happened),
        cmocka_unit_test(the_shortest_deadline_ends_the_wait_of_all),
        cmocka_unit_test(ranks_out_of_step_fail_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
