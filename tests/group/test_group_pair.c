/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs of groups: bulk bytes go over one, everything else over the other, and what fails on either
 * is everyone's failure. */
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

/* A duplicate of the rank's group, as bulk of it. */
static dcp_status pair_up(struct thread_rank *self)
{
    dcp_group *bulk;
    RETURN_IF_ERROR(dcp_group_duplicate(self->group, 20, &bulk));
    dcp_status status = dcp_group_pair(self->group, bulk, 20);
    if (status != DCP_OK)
        dcp_group_free(bulk);
    return status;
}

static dcp_status refuse(void *context, const dcp_collective *call, const void *send,
                         const size_t *send_sizes, const size_t *send_offsets, void *receive,
                         const size_t *receive_sizes, const size_t *receive_offsets)
{
    (void)context, (void)call, (void)send, (void)send_sizes, (void)send_offsets;
    (void)receive, (void)receive_sizes, (void)receive_offsets;
    return dcp_error_set(DCP_ERR_GROUP, "this cable is cut");
}

/* Every rank gives its number to every other. */
static dcp_status multicast(dcp_group *group, double timeout_seconds)
{
    dcp_collective call = {"sharing letters", timeout_seconds};
    size_t sizes[RANKS_MAX];
    unsigned char *places[RANKS_MAX];
    bool others[RANKS_MAX];
    unsigned char letter = (unsigned char)('a' + dcp_group_rank(group)), received[RANKS_MAX];
    unsigned char scratch[1];
    for (int r = 0; r < dcp_group_size(group); r++) {
        sizes[r] = 1;
        places[r] = received + r;
        others[r] = r != dcp_group_rank(group);
    }
    if (group_multicast_scratch(group, 1) > sizeof scratch)
        return dcp_error_set(DCP_ERR_INTERNAL, "more scratch than the largest message");
    RETURN_IF_ERROR(group_multicast(group, &call,
                                    &(struct group_multicast){.sizes = sizes,
                                                              .send = &letter,
                                                              .to = others,
                                                              .from = others,
                                                              .places = places,
                                                              .scratch = scratch}));
    for (int r = 0; r < dcp_group_size(group); r++)
        if (others[r] && received[r] != 'a' + r)
            return dcp_error_set(DCP_ERR_INTERNAL, "'%c' of rank %d", received[r], r);
    return DCP_OK;
}

/* The one that must not carry bulk bytes cannot; nor need the other carry messages of one rank to
 * another. */
static dcp_status use_pair(struct thread_rank *self)
{
    struct buffer received = {0};
    RETURN_IF_ERROR(pair_up(self));
    if (self->context)
        self->group->bulk->operations.all_to_all = NULL;
    dcp_group_operations *own = &self->group->operations;
    dcp_group_operations kept = *own;
    own->all_to_all = refuse;
    dcp_status status = multicast(self->group, 20);
    *own = kept;
    self->group->bulk->operations.all_to_all = refuse;
    int to = self->size > 1 && self->rank == 1 ? 0 : -1;
    if (status == DCP_OK)
        status = group_pass(self->group, &patient, DCP_OK, to, "x", to == 0, &received);
    bool passed = self->size == 1 || self->rank != 0 || received.size == 1;
    buffer_free(&received);
    return passed ? status : dcp_error_set(DCP_ERR_INTERNAL, "nothing was passed on");
}

static void bulk_bytes_go_over_the_other_group(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    for (int size = 1; size <= 5; size++)
        for (int derived = 0; derived < 2; derived++) {
            failing_allocator_install(0, false);
            thread_ranks_run(size, false, use_pair, derived ? &size : NULL, ranks);
            assert_int_equal(failing_allocator_remove(), 0);
            for (int r = 0; r < size; r++)
                if (ranks[r].status != DCP_OK)
                    fail_msg("rank %d: %s", r, ranks[r].message);
        }
}

/* One rank cannot send; the others wait for it in vain, and all hear why. */
static dcp_status fail_in_bulk(struct thread_rank *self)
{
    static const dcp_collective after = {"agreeing", 20};
    RETURN_IF_ERROR(pair_up(self));
    group_enter(self->group, "mailing");
    if (self->rank == 0)
        self->group->bulk->operations.all_to_all = refuse;
    struct saved_error error;
    group_agree(self->group, &after, multicast(self->group, 0.2));
    error_save(&error);
    /* Both are broken, on all ranks, and nobody waits any more. */
    if (multicast(self->group, 20) != DCP_ERR_STATE ||
        !strstr(dcp_error_message(), "this cable is cut"))
        return dcp_error_set(DCP_ERR_INTERNAL, "the bulk group is not broken");
    if (group_agree(self->group, &after, DCP_OK) != DCP_ERR_STATE)
        return dcp_error_set(DCP_ERR_INTERNAL, "the group is not broken");
    return error_restore(&error);
}

static void a_failure_in_bulk_is_everyones(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    thread_ranks_run(3, false, fail_in_bulk, NULL, ranks);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_GROUP);
        assert_string_equal(ranks[r].message,
                            "rank 0: mailing: sharing letters: this cable is cut");
    }
}

static dcp_status break_first(struct thread_rank *self)
{
    static const dcp_collective hasty = {"meeting", 0.1};
    RETURN_IF_ERROR(pair_up(self));
    if (self->rank == 0)
        group_agree(self->group, &hasty, DCP_OK);
    else
        return DCP_OK;
    return multicast(self->group, 20);
}

static void without_the_first_nothing_goes_over_the_other(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    thread_ranks_run(2, false, break_first, NULL, ranks);
    assert_int_equal(ranks[0].status, DCP_ERR_STATE);
    assert_non_null(strstr(ranks[0].message, "meeting: rank 1 did not make this call"));
}

static dcp_status split_pair(struct thread_rank *self)
{
    dcp_group *part = NULL, *copy = NULL;
    RETURN_IF_ERROR(pair_up(self));
    self->group->operations.all_to_all = refuse;
    dcp_status status = dcp_group_split(self->group, self->rank % 2, -self->rank, 20, &part);
    if (status == DCP_OK && (!part->bulk || part->bulk->rank != part->rank))
        status = dcp_error_set(DCP_ERR_INTERNAL, "the part is no pair");
    if (status == DCP_OK)
        status = multicast(part, 20);
    if (status == DCP_OK)
        status = dcp_group_duplicate(self->group, 20, &copy);
    if (status == DCP_OK && copy->bulk)
        status = dcp_error_set(DCP_ERR_INTERNAL, "the copy is a pair");
    dcp_group_free(part);
    dcp_group_free(copy);
    return status;
}

static void parts_are_pairs_and_copies_are_not(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    failing_allocator_install(0, false);
    thread_ranks_run(5, false, split_pair, NULL, ranks);
    assert_int_equal(failing_allocator_remove(), 0);
    for (int r = 0; r < 5; r++)
        if (ranks[r].status != DCP_OK)
            fail_msg("rank %d: %s", r, ranks[r].message);
}

static dcp_status split_half_a_pair(struct thread_rank *self)
{
    dcp_group *part = NULL;
    RETURN_IF_ERROR(pair_up(self));
    self->group->bulk->operations.split = NULL;
    dcp_status status = dcp_group_split(self->group, 0, 0, 20, &part);
    return part ? DCP_ERR_INTERNAL : status;
}

static void half_a_pair_is_not_split(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    failing_allocator_install(0, false);
    thread_ranks_run(3, false, split_half_a_pair, NULL, ranks);
    assert_int_equal(failing_allocator_remove(), 0);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_UNSUPPORTED);
        assert_string_equal(ranks[r].message, "rank 0: groups of this kind cannot be split");
    }
}

/* Each is refused to all ranks, and leaves both groups as they were. */
static dcp_status pair_wrongly(struct thread_rank *self)
{
    dcp_group *turned = NULL, *bulk = NULL;
    dcp_status status = dcp_group_split(self->group, 0, -self->rank, 20, &turned);
    if (status == DCP_OK)
        status = dcp_group_duplicate(self->group, 20, &bulk);
    if (status == DCP_OK && dcp_group_pair(self->group, turned, 20) != DCP_ERR_ARGUMENT)
        status = dcp_error_set(DCP_ERR_INTERNAL, "other numbers were accepted");
    dcp_group *some = self->rank == 0 ? NULL : bulk;
    if (status == DCP_OK && dcp_group_pair(self->group, some, 20) != DCP_ERR_ARGUMENT)
        status = dcp_error_set(DCP_ERR_INTERNAL, "NULL was accepted");
    some = self->rank == 0 ? self->group : bulk;
    if (status == DCP_OK && dcp_group_pair(self->group, some, 20) != DCP_ERR_ARGUMENT)
        status = dcp_error_set(DCP_ERR_INTERNAL, "the group itself was accepted");
    if (status == DCP_OK &&
        dcp_group_pair(self->group, bulk, self->rank == 1 ? -1 : 20) != DCP_ERR_ARGUMENT)
        status = dcp_error_set(DCP_ERR_INTERNAL, "a timeout of -1 was accepted");
    if (status == DCP_OK && dcp_group_pair(NULL, bulk, 20) != DCP_ERR_ARGUMENT)
        status = dcp_error_set(DCP_ERR_INTERNAL, "no group was accepted");
    if (status == DCP_OK)
        status = dcp_group_pair(self->group, bulk, 20);
    else
        dcp_group_free(bulk);
    if (status == DCP_OK && dcp_group_pair(self->group, turned, 20) != DCP_ERR_ARGUMENT)
        status = dcp_error_set(DCP_ERR_INTERNAL, "a second one with other numbers was accepted");
    dcp_group *second = NULL;
    if (status == DCP_OK)
        status = dcp_group_duplicate(self->group, 20, &second);
    if (status == DCP_OK && dcp_group_pair(self->group, second, 20) != DCP_ERR_STATE)
        status = dcp_error_set(DCP_ERR_INTERNAL, "a second one was accepted");
    dcp_group_free(second);
    dcp_group_free(turned);
    return status;
}

static void what_cannot_be_paired_is_refused(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    failing_allocator_install(0, false);
    thread_ranks_run(3, false, pair_wrongly, NULL, ranks);
    assert_int_equal(failing_allocator_remove(), 0);
    for (int r = 0; r < 3; r++)
        if (ranks[r].status != DCP_OK)
            fail_msg("rank %d: %s", r, ranks[r].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bulk_bytes_go_over_the_other_group),
        cmocka_unit_test(a_failure_in_bulk_is_everyones),
        cmocka_unit_test(without_the_first_nothing_goes_over_the_other),
        cmocka_unit_test(parts_are_pairs_and_copies_are_not),
        cmocka_unit_test(half_a_pair_is_not_split),
        cmocka_unit_test(what_cannot_be_paired_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
