/* SPDX-License-Identifier: BSD-3-Clause */
/* Another group of the same ranks: used at the same time as the first, and made by all or by none.
 */
#include <pthread.h>
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

enum { ROUNDS = 200, OF_THREE_RANKS = 1 + 3 * 5 /* allocations of the group itself */ };

struct exchanging {
    dcp_group *group;
    int letter;
    dcp_status status;
};

/* Rounds of a group of which every message has a letter of its own. */
static void *exchange(void *argument)
{
    struct exchanging *own = argument;
    static const dcp_collective call = {"exchanging letters", 20};
    char mine = (char)(own->letter + dcp_group_rank(own->group)), all[RANKS_MAX];
    for (int round = 0; round < ROUNDS && own->status == DCP_OK; round++) {
        own->status = collective_all_gather(own->group, &call, &mine, 1, all);
        for (int rank = 0; rank < dcp_group_size(own->group); rank++)
            if (own->status == DCP_OK && all[rank] != own->letter + rank)
                own->status = dcp_error_set(DCP_ERR_INTERNAL, "a letter of another group");
    }
    return NULL;
}

static dcp_status use_both(struct thread_rank *self)
{
    dcp_group *copy = NULL;
    pthread_t thread;
    RETURN_IF_ERROR(dcp_group_duplicate(self->group, 20, &copy));
    struct exchanging first = {self->group, 'a', DCP_OK}, second = {copy, 'A', DCP_OK};
    if (dcp_group_rank(copy) != self->rank || dcp_group_size(copy) != self->size)
        return dcp_error_set(DCP_ERR_INTERNAL, "another rank in the copy");
    if (pthread_create(&thread, NULL, exchange, &second) != 0)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no thread");
    exchange(&first);
    pthread_join(thread, NULL);
    dcp_group_free(copy);
    return first.status != DCP_OK ? first.status : second.status;
}

static void both_are_used_at_the_same_time(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++) {
        struct thread_rank ranks[RANKS_MAX];
        failing_allocator_install(0, false);
        thread_ranks_run(size, false, use_both, NULL, ranks);
        for (int rank = 0; rank < size; rank++)
            assert_int_equal(ranks[rank].status, DCP_OK);
        assert_int_equal(failing_allocator_remove(), 0);
    }
}

static dcp_status duplicate_only(struct thread_rank *self)
{
    dcp_group *copy;
    dcp_status status = dcp_group_duplicate(self->group, 20, &copy);
    if (status != DCP_OK && copy)
        return dcp_error_set(DCP_ERR_INTERNAL, "a copy in spite of a failure");
    dcp_group_free(copy);
    return status;
}

static void groups_that_cannot_say_so(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    thread_ranks_run(3, true, duplicate_only, NULL, ranks);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(ranks[rank].status, DCP_ERR_UNSUPPORTED);
        assert_non_null(strstr(ranks[rank].message, "cannot be duplicated"));
    }
}

/* Whoever lacks the memory, nobody gets a copy, and nothing is left behind. */
static void failing_allocations_fail_for_all(void **state)
{
    (void)state;
    dcp_status last = DCP_ERR_NO_MEMORY;
    for (long failing = OF_THREE_RANKS + 1; last != DCP_OK; failing++) {
        struct thread_rank ranks[RANKS_MAX];
        failing_allocator_install(failing, false);
        thread_ranks_run(3, false, duplicate_only, NULL, ranks);
        assert_int_equal(failing_allocator_remove(), 0);
        last = ranks[0].status;
        for (int rank = 1; rank < 3; rank++)
            assert_int_equal(ranks[rank].status, last);
        assert_true(failing < 200);
    }
}

static void arguments_are_checked(void **state)
{
    dcp_group *groups[1], *copy = (dcp_group *)&groups;
    (void)state;
    assert_int_equal(dcp_group_duplicate(NULL, 0, &copy), DCP_OK);
    assert_null(copy);
    assert_int_equal(dcp_group_new_threads(1, groups), DCP_OK);
    assert_int_equal(dcp_group_duplicate(groups[0], 0, NULL), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_group_duplicate(groups[0], -1, &copy), DCP_ERR_ARGUMENT);
    dcp_group_free(groups[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_are_used_at_the_same_time),
        cmocka_unit_test(groups_that_cannot_say_so),
        cmocka_unit_test(failing_allocations_fail_for_all),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
