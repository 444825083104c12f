/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "plan/save/save_plan.h"
#include "plan/save/save_structure.h"

/* One tree; of the changes one is made. */
enum change {
    NOTHING,
    VALUES,  /* and memory */
    LENGTHS, /* of objects */
    NAME,
    ORDER,
    DIVISION, /* of a name into its path */
    EMPTY_KEY,
    KIND,
    DTYPE,
    GRAD,
    SHAPE,
    OFFSET,
    SIZE,
    CHUNKS,
    ONE_MORE,
    ONE_LESS,
    CHANGES
};

static float memory[2][64];

/* "a.b.c" and "list.0" in several ways. */
static void add_nested(dcp_state *root, enum change change)
{
    static float step;
    dcp_tensor scalar = {.dtype = DCP_F32, .data = &step};
    bool divided = change == DIVISION;
    dcp_state_tensor(dcp_state_dict(root, divided ? "a.b" : "a"), divided ? "c" : "b.c", &scalar);
    dcp_state *list =
        change == EMPTY_KEY ? dcp_state_dict(root, "list") : dcp_state_list(root, "list");
    dcp_state_tensor(list, change == EMPTY_KEY ? "" : NULL, &scalar);
}

static dcp_state *tree(enum change change)
{
    dcp_state *root = dcp_state_new();
    float *data = memory[change == VALUES];
    dcp_tensor tensor = {.dtype = change == DTYPE ? DCP_I32 : DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .requires_grad = change == GRAD,
                         .global_shape = {change == SHAPE ? 9 : 8, 4},
                         .offsets = {change == OFFSET ? 3 : 2, 0},
                         .sizes = {change == SIZE ? 1 : 2, 4},
                         .data = data};
    if (change == ORDER)
        dcp_state_int(root, "step", 1);
    dcp_state *node = dcp_state_tensor(root, change == NAME ? "v" : "w", &tensor);
    if (change == CHUNKS) {
        tensor.offsets[0] = 6;
        dcp_state_add_chunk(node, &tensor);
    }
    if (change == KIND)
        dcp_state_tensor(root, "step", &(dcp_tensor){.dtype = DCP_F32, .data = data});
    else if (change != ORDER)
        dcp_state_int(root, "step", change == VALUES ? 7 : 1);
    if (change != ONE_LESS)
        dcp_state_string(root, "text", change == VALUES ? "long" : "");
    if (change == ONE_MORE)
        dcp_state_bool(root, "more", true);
    add_nested(root, change);
    assert_int_equal(dcp_state_status(root), DCP_OK);
    return root;
}

struct held {
    dcp_state *root;
    struct flat_state flat;
    struct save_plan plan;
};

static void held_init(struct held *held, enum change change)
{
    uint64_t lengths[16];
    for (size_t i = 0; i < 16; i++)
        lengths[i] = change == LENGTHS ? 99 : 40;
    held->root = tree(change);
    assert_int_equal(flatten_state(held->root, &held->flat), DCP_OK);
    assert_true(held->flat.count <= 16);
    assert_int_equal(save_plan_local(&held->flat, lengths, &held->plan), DCP_OK);
}

static void held_free(struct held *held)
{
    save_plan_free(&held->plan);
    flatten_free(&held->flat);
    dcp_state_free(held->root);
}

static void sees_what_matters(void **state)
{
    (void)state;
    struct buffer described;
    struct held held;
    buffer_init(&described, 0);
    held_init(&held, NOTHING);
    assert_int_equal(save_structure_append(&held.plan, &described), DCP_OK);
    for (size_t size = 0; size < described.size; size++)
        assert_false(save_structure_is(&held.plan, described.data, size));
    buffer_append_u8(&described, 0);
    assert_false(save_structure_is(&held.plan, described.data, described.size));
    described.size--;
    held_free(&held);
    for (enum change change = NOTHING; change < CHANGES; change++) {
        held_init(&held, change);
        assert_int_equal(save_structure_is(&held.plan, described.data, described.size),
                         change <= LENGTHS);
        held_free(&held);
    }
    buffer_free(&described);
}

static void reports_every_failed_allocation(void **state)
{
    (void)state;
    struct held held;
    held_init(&held, NOTHING);
    for (long n = 1;; n++) {
        struct buffer described;
        buffer_init(&described, 0);
        failing_allocator_install(n, false);
        dcp_status status = save_structure_append(&held.plan, &described);
        bool reached = failing_allocator_reached();
        buffer_free(&described);
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    held_free(&held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sees_what_matters),
        cmocka_unit_test(reports_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
