/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of a group: who is in which and in what order, made for all ranks or for none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "fault/failing_allocator.h"
#include "group/collective.h"
#include "group/group.h"
#include "group/thread_ranks.h"

static const dcp_collective patient = {"testing", 20};

/* What a rank asks for. */
struct wish {
    int color;
    int key;
    double timeout_seconds;
};

struct trial {
    struct wish wishes[RANKS_MAX];
};

/* Whom a rank should find in its part, in order: at most three keys are tried, so plain counting
 * is enough. */
static int expected_rank(const struct trial *trial, int size, int rank)
{
    const struct wish *own = &trial->wishes[rank];
    int before = 0;
    for (int r = 0; r < size; r++) {
        const struct wish *wish = &trial->wishes[r];
        if (wish->color == own->color)
            before += wish->key < own->key || (wish->key == own->key && r < rank);
    }
    return before;
}

/* Every member tells its old number, several times, beside other parts that do the same. */
static dcp_status check_members(const struct thread_rank *self, dcp_group *part)
{
    const struct trial *trial = self->context;
    int own = self->rank, members[RANKS_MAX] = {0};
    if (dcp_group_rank(part) != expected_rank(trial, self->size, self->rank))
        return dcp_error_set(DCP_ERR_INTERNAL, "rank %d in the part", dcp_group_rank(part));
    for (int round = 0; round < 50; round++) {
        RETURN_IF_ERROR(collective_all_gather(part, &patient, &own, sizeof own, members));
        for (int r = 0; r < dcp_group_size(part); r++)
            if (trial->wishes[members[r]].color != trial->wishes[own].color ||
                expected_rank(trial, self->size, members[r]) != r)
                return dcp_error_set(DCP_ERR_INTERNAL, "rank %d at place %d", members[r], r);
    }
    return DCP_OK;
}

static dcp_status split_and_talk(struct thread_rank *self)
{
    const struct trial *trial = self->context;
    const struct wish *wish = &trial->wishes[self->rank];
    dcp_group *part, *whole;
    RETURN_IF_ERROR(dcp_group_split(self->group, wish->color, wish->key, 20, &part));
    if (wish->color == DCP_NO_COLOR && part)
        return dcp_error_set(DCP_ERR_INTERNAL, "a part without a color");
    dcp_status status = part ? check_members(self, part) : DCP_OK;
    if (status == DCP_OK)
        status = group_agree(self->group, &patient, DCP_OK);
    if (status == DCP_OK)
        status = dcp_group_split(self->group, 7, 0, 0, &whole);
    if (status == DCP_OK) {
        int size = dcp_group_size(whole);
        status = size == self->size ? group_agree(whole, &patient, DCP_OK) : DCP_ERR_INTERNAL;
        dcp_group_free(whole);
    }
    dcp_group_free(part);
    return status;
}

static void expect_all(const struct thread_rank *ranks, int size, dcp_status status,
                       const char *text)
{
    for (int r = 0; r < size; r++) {
        if (ranks[r].status != status)
            fail_msg("rank %d: %s", r, ranks[r].message);
        if (text)
            assert_non_null(strstr(ranks[r].message, text));
    }
}

static void ranks_of_a_color_are_a_group(void **state)
{
    (void)state;
    for (int size = 1; size <= 6; size++)
        for (int colors = 1; colors <= 3; colors++)
            for (int way = 0; way < 3; way++) {
                struct thread_rank ranks[RANKS_MAX];
                struct trial trial;
                for (int r = 0; r < size; r++)
                    trial.wishes[r] = (struct wish){.color = r % colors, .key = (1 - way) * r / 2};
                if (way == 2)
                    trial.wishes[size / 2].color = DCP_NO_COLOR;
                failing_allocator_install(0, false);
                thread_ranks_run(size, false, split_and_talk, &trial, ranks);
                assert_int_equal(failing_allocator_remove(), 0);
                expect_all(ranks, size, DCP_OK, NULL);
            }
}

static dcp_status split_only(struct thread_rank *self)
{
    const struct trial *trial = self->context;
    const struct wish *wish = &trial->wishes[self->rank];
    dcp_group *part;
    dcp_status status =
        dcp_group_split(self->group, wish->color, wish->key, wish->timeout_seconds, &part);
    if (status != DCP_OK && part)
        return dcp_error_set(DCP_ERR_INTERNAL, "a part in spite of a failure");
    dcp_group_free(part);
    return status;
}

static dcp_status split_into_nothing(struct thread_rank *self)
{
    dcp_group *part = NULL;
    dcp_status status = dcp_group_split(self->group, 0, 0, 20, self->rank == 1 ? NULL : &part);
    dcp_group_free(part);
    return status;
}

/* What one rank asks for wrongly is refused to all, and the group is as good as before. */
static void wrong_arguments_are_everyones(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    struct trial trial = {.wishes = {{0, 0, 0}, {-2, 0, 0}, {0, 0, 0}}};
    dcp_group *part = (dcp_group *)&trial;
    (void)state;
    thread_ranks_run(3, false, split_only, &trial, ranks);
    expect_all(ranks, 3, DCP_ERR_ARGUMENT, "rank 1: dcp_group_split: the color is -2");
    trial.wishes[1] = (struct wish){0, 0, -1};
    thread_ranks_run(3, false, split_only, &trial, ranks);
    expect_all(ranks, 3, DCP_ERR_ARGUMENT, "rank 1: dcp_group_split: the timeout is -1 seconds");
    thread_ranks_run(3, false, split_into_nothing, NULL, ranks);
    expect_all(ranks, 3, DCP_ERR_ARGUMENT, "rank 1: dcp_group_split: part is NULL");
    assert_int_equal(dcp_group_split(NULL, 0, 0, 0, &part), DCP_OK);
    assert_null(part);
    assert_int_equal(dcp_group_split(NULL, 0, 0, 0, NULL), DCP_ERR_ARGUMENT);
}

/* Whoever lacks the memory, nobody gets a part, and nothing is left behind. */
static void failing_allocations_fail_for_all(void **state)
{
    enum { OF_THREE_RANKS = 1 + 3 * 5 /* allocations of the group itself */ };
    struct trial trial = {.wishes = {{0, 2, 20}, {1, 1, 20}, {0, 0, 20}}};
    dcp_status last = DCP_ERR_NO_MEMORY;
    (void)state;
    for (long failing = OF_THREE_RANKS + 1; last != DCP_OK; failing++) {
        struct thread_rank ranks[RANKS_MAX];
        failing_allocator_install(failing, false);
        thread_ranks_run(3, false, split_only, &trial, ranks);
        assert_int_equal(failing_allocator_remove(), 0);
        last = ranks[0].status;
        expect_all(ranks, 3, last, NULL);
        assert_true(last == DCP_OK || last == DCP_ERR_NO_MEMORY);
        assert_true(failing < 200);
    }
}

static dcp_status split_late(struct thread_rank *self)
{
    dcp_group *part = NULL;
    return self->rank == 2 ? DCP_OK : dcp_group_split(self->group, 0, 0, 0.2, &part);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    thread_ranks_run(3, false, split_late, NULL, ranks);
    expect_all(ranks, 2, DCP_ERR_TIMEOUT,
               "splitting the group: rank 2 did not make this call within 0.2 s");
}

/* ---- a caller's own operations ---- */

struct own {
    int color, rank, size;
    bool closed, makes_none;
    struct own *part;
};

static dcp_status own_all_gather(void *context, const dcp_collective *call, const void *send,
                                 size_t bytes, void *receive)
{
    (void)context, (void)call;
    memcpy(receive, send, bytes);
    return DCP_OK;
}

static dcp_status own_broadcast(void *context, const dcp_collective *call, int root, void *data,
                                size_t bytes)
{
    (void)context, (void)call, (void)root, (void)data, (void)bytes;
    return DCP_OK;
}

static void own_close(void *context)
{
    ((struct own *)context)->closed = true;
}

static dcp_status own_split(void *context, const dcp_collective *call, int color, int rank,
                            int size, void **part)
{
    struct own *own = context;
    assert_true(call->timeout_seconds > 0);
    own->color = color;
    own->rank = rank;
    own->size = size;
    *part = own->makes_none ? NULL : own->part;
    return DCP_OK;
}

static void groups_of_the_callers_can_be_split(void **state)
{
    dcp_group_operations operations = {.size_of = sizeof operations,
                                       .all_gather = own_all_gather,
                                       .broadcast = own_broadcast,
                                       .close = own_close,
                                       .split = own_split};
    struct own inner = {0}, outer = {.part = &inner};
    dcp_group *group, *part;
    (void)state;
    assert_int_equal(dcp_group_new(&operations, &outer, 0, 1, &group), DCP_OK);
    assert_int_equal(dcp_group_split(group, 5, -3, 0, &part), DCP_OK);
    assert_int_equal(outer.color, 5);
    assert_int_equal(outer.rank, 0);
    assert_int_equal(outer.size, 1);
    dcp_group_free(part);
    assert_true(inner.closed && !outer.closed);
    outer.makes_none = true;
    assert_int_equal(dcp_group_split(group, 5, 0, 0, &part), DCP_ERR_CALLBACK);
    assert_int_equal(dcp_group_split(group, DCP_NO_COLOR, 0, 0, &part), DCP_OK);
    assert_null(part);
    assert_int_equal(outer.color, DCP_NO_COLOR);
    dcp_group_free(group);
    operations.split = NULL;
    assert_int_equal(dcp_group_new(&operations, &outer, 0, 1, &group), DCP_OK);
    assert_int_equal(dcp_group_split(group, 5, 0, 0, &part), DCP_ERR_UNSUPPORTED);
    assert_non_null(strstr(dcp_error_message(), "groups of this kind cannot be split"));
    dcp_group_free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_color_are_a_group),
        cmocka_unit_test(wrong_arguments_are_everyones),
        cmocka_unit_test(failing_allocations_fail_for_all),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(groups_of_the_callers_can_be_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
