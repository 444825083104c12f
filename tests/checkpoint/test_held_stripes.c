/* SPDX-License-Identifier: BSD-3-Clause */
/* Stripes that a rank has read for others, until they are sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/share/held_stripes.h"
#include "fault/failing_allocator.h"

#define MIB ((size_t)1 << 20)

static const struct metadata_piece pieces[HELD_STRIPES_MOST + 1] = {[2] = {.file = 1}};

static void hold(struct held_stripes *held, size_t piece, uint64_t lot, int64_t from, size_t size)
{
    const struct share_stripe stripe = {0, from, from + (int64_t)size};
    assert_int_equal(held_stripes_make_room(held, &pieces[piece], lot, size), DCP_OK);
    assert_true(held->capacity - held->size >= size);
    held_stripes_add(held, &pieces[piece], stripe, size);
}

static bool has(struct held_stripes *held, size_t piece, int64_t position)
{
    const struct held_stripe *found = held_stripes_find(held, &pieces[piece], position);
    return found && found->piece == &pieces[piece] && found->stripe.from <= position &&
           position < found->stripe.end && found->place < held->size;
}

static void those_of_a_lot_are_held_together(void **state)
{
    struct held_stripes held = {0};
    (void)state;
    assert_false(has(&held, 0, 0));
    hold(&held, 0, 5, 0, MIB);
    hold(&held, 1, 5, 0, MIB);
    for (int again = 0; again < 2; again++) {
        assert_true(has(&held, 0, 0) && has(&held, 1, 0) && has(&held, 1, MIB - 1));
        assert_false(has(&held, 1, MIB));
        assert_false(has(&held, 3, 0));
    }
    assert_int_equal(held_stripes_find(&held, &pieces[1], 7)->place, MIB);
    hold(&held, 3, 6, 0, MIB); /* of another lot */
    assert_false(has(&held, 0, 0) || has(&held, 1, 0));
    hold(&held, 2, 6, 0, MIB); /* of another file */
    assert_false(has(&held, 3, 0));
    assert_true(has(&held, 2, 0));
    held_stripes_free(&held);
}

static void one_of_a_large_piece_is_held_alone(void **state)
{
    struct held_stripes held = {0};
    (void)state;
    hold(&held, 0, SHARE_NO_LOT, 0, SHARE_STRIPE);
    hold(&held, 0, SHARE_NO_LOT, (int64_t)SHARE_STRIPE, SHARE_STRIPE_MOST);
    assert_false(has(&held, 0, 0));
    assert_true(has(&held, 0, (int64_t)SHARE_STRIPE));
    held_stripes_free(&held);
}

/* Too many, or too large: those that are sent first have been read in vain. */
static void what_has_no_room_takes_that_of_all(void **state)
{
    struct held_stripes held = {0};
    (void)state;
    for (size_t i = 0; i < HELD_STRIPES_MOST; i++)
        hold(&held, i == 2 ? 0 : i, 1, 0, 16);
    assert_true(has(&held, 5, 0));
    hold(&held, HELD_STRIPES_MOST, 1, 0, 16);
    assert_false(has(&held, 5, 0));
    hold(&held, 0, 1, 0, SHARE_STRIPE);
    assert_false(has(&held, HELD_STRIPES_MOST, 0));
    held_stripes_free(&held);
}

static void missing_memory_is_an_error(void **state)
{
    struct held_stripes held = {0};
    (void)state;
    failing_allocator_install(1, false);
    assert_int_equal(held_stripes_make_room(&held, pieces, 1, MIB), DCP_ERR_NO_MEMORY);
    assert_false(has(&held, 0, 0));
    hold(&held, 0, 1, 0, MIB);
    assert_true(has(&held, 0, 0));
    held_stripes_free(&held);
    assert_int_equal(failing_allocator_remove(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_of_a_lot_are_held_together),
        cmocka_unit_test(one_of_a_large_piece_is_held_alone),
        cmocka_unit_test(what_has_no_room_takes_that_of_all),
        cmocka_unit_test(missing_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
