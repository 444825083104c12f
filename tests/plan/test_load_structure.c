/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "plan/load/load_structure.h"

/* One tree; of the changes one is made. */
enum change {
    NOTHING,
    VALUES, /* and memory */
    NAME,
    ORDER,
    KIND,
    DTYPE,
    SHAPE,
    OFFSET,
    SIZE,
    CHUNKS,
    ONE_MORE,
    ONE_LESS,
    CHANGES
};

static float memory[2][64];

static dcp_state *tree(enum change change)
{
    dcp_state *root = dcp_state_new();
    float *data = memory[change == VALUES];
    dcp_tensor tensor = {.dtype = change == DTYPE ? DCP_I32 : DCP_F32,
                         .ndim = 2,
                         .sharded = true,
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
    assert_int_equal(dcp_state_status(root), DCP_OK);
    return root;
}

static void sees_what_matters(void **state)
{
    (void)state;
    struct buffer described;
    struct flat_state flat;
    dcp_state *root = tree(NOTHING);
    buffer_init(&described, 0);
    assert_int_equal(flatten_state(root, &flat), DCP_OK);
    assert_int_equal(load_structure_append(&flat, &described), DCP_OK);
    for (size_t size = 0; size < described.size; size++)
        assert_false(load_structure_is(&flat, described.data, size));
    buffer_append_u8(&described, 0);
    assert_false(load_structure_is(&flat, described.data, described.size));
    described.size--;
    flatten_free(&flat);
    dcp_state_free(root);
    for (enum change change = NOTHING; change < CHANGES; change++) {
        root = tree(change);
        assert_int_equal(flatten_state(root, &flat), DCP_OK);
        assert_int_equal(load_structure_is(&flat, described.data, described.size),
                         change == NOTHING || change == VALUES);
        flatten_free(&flat);
        dcp_state_free(root);
    }
    buffer_free(&described);
}

static void an_empty_tree_is_one_too(void **state)
{
    (void)state;
    struct flat_state flat;
    dcp_state *root = dcp_state_new();
    assert_int_equal(flatten_state(root, &flat), DCP_OK);
    assert_true(load_structure_is(&flat, NULL, 0));
    assert_false(load_structure_is(&flat, "x", 1));
    flatten_free(&flat);
    dcp_state_free(root);
}

static void reports_every_failed_allocation(void **state)
{
    (void)state;
    struct flat_state flat;
    dcp_state *root = tree(NOTHING);
    assert_int_equal(flatten_state(root, &flat), DCP_OK);
    for (long n = 1;; n++) {
        struct buffer described;
        buffer_init(&described, 0);
        failing_allocator_install(n, false);
        dcp_status status = load_structure_append(&flat, &described);
        bool reached = failing_allocator_reached();
        buffer_free(&described);
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    flatten_free(&flat);
    dcp_state_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sees_what_matters),
        cmocka_unit_test(an_empty_tree_is_one_too),
        cmocka_unit_test(reports_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
