/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "plan/save/save_plan.h"
#include "state/flatten.h"

struct fixture {
    dcp_state *root;
    struct flat_state flat;
};

static float memory[64];

static int make_tree(void **state)
{
    static struct fixture fixture;
    dcp_state *root = fixture.root = dcp_state_new();
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_tensor whole = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {4, 3}, .requires_grad = true, .data = memory};
    dcp_state_tensor(model, "whole", &whole);
    dcp_tensor chunk = {.dtype = DCP_F32,
                        .ndim = 1,
                        .global_shape = {10},
                        .sharded = true,
                        .offsets = {2},
                        .sizes = {3},
                        .data = memory};
    dcp_state *sharded = dcp_state_tensor(model, "sharded", &chunk);
    chunk.offsets[0] = 9;
    chunk.sizes[0] = 1;
    dcp_state_add_chunk(sharded, &chunk);
    chunk.offsets[0] = 10;
    chunk.sizes[0] = 0;
    dcp_state_tensor(model, "empty", &chunk);
    dcp_tensor flat = {.dtype = DCP_F32, .ndim = 2, .global_shape = {4, 3}};
    dcp_state_flat_range(model, "range", &flat, 5, 0, memory);
    dcp_state_int(root, "step", 7);
    assert_int_equal(dcp_state_status(root), DCP_OK);
    assert_int_equal(flatten_state(root, &fixture.flat), DCP_OK);
    *state = &fixture;
    return 0;
}

static int free_tree(void **state)
{
    struct fixture *fixture = *state;
    flatten_free(&fixture->flat);
    dcp_state_free(fixture->root);
    return 0;
}

static const uint64_t lengths[] = {0, 0, 0, 0, 1261};

static void each_chunk_and_object_is_an_item(void **state)
{
    static const char *const names[] = {"model.whole", "model.sharded", "model.sharded",
                                        "model.empty", "model.range",   "step"};
    static const uint32_t entries[] = {0, 1, 1, 2, 3, 4};
    const struct fixture *fixture = *state;
    struct save_plan plan;
    assert_int_equal(save_plan_local(&fixture->flat, lengths, &plan), DCP_OK);
    assert_int_equal(plan.count, 6);
    for (size_t i = 0; i < plan.count; i++) {
        assert_string_equal(plan.items[i].name, names[i]);
        assert_int_equal(plan.items[i].entry, entries[i]);
        assert_int_equal(plan.items[i].chunk, i == 2);
        assert_int_equal(plan.items[i].is_tensor, i < 5);
        assert_int_equal(plan.items[i].requires_grad, i == 0);
    }
    assert_string_equal(plan.items[0].path[0].key, "model");
    assert_int_equal(plan.items[0].box.sizes[0], 4);
    assert_int_equal(plan.items[2].box.offsets[0], 9);
    assert_int_equal(plan.items[2].global_shape[0], 10);
    assert_int_equal(plan.items[3].box.sizes[0], 0);
    assert_int_equal(plan.items[5].object_length, 1261);
    save_plan_free(&plan);
}

/* A range without elements leaves the node without a chunk, but others must not be able to forget
 * the tensor. */
static void a_tensor_of_which_nothing_is_here_is_reported(void **state)
{
    const struct fixture *fixture = *state;
    struct save_plan plan;
    assert_int_equal(save_plan_local(&fixture->flat, lengths, &plan), DCP_OK);
    assert_int_equal(plan.items[4].ndim, 2);
    assert_int_equal(box_volume(plan.items[4].box), 0);
    assert_true(box_check(plan.items[4].box, plan.items[4].global_shape));
    save_plan_free(&plan);
}

static void an_empty_tree_is_an_empty_plan(void **state)
{
    (void)state;
    struct flat_state empty = {0};
    struct save_plan plan;
    assert_int_equal(save_plan_local(&empty, NULL, &plan), DCP_OK);
    assert_int_equal(plan.count, 0);
    save_plan_free(&plan);
}

static void memory_may_run_out(void **state)
{
    const struct fixture *fixture = *state;
    struct save_plan plan;
    failing_allocator_install(1, false);
    assert_int_equal(save_plan_local(&fixture->flat, lengths, &plan), DCP_ERR_NO_MEMORY);
    save_plan_free(&plan);
    assert_int_equal(failing_allocator_remove(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_chunk_and_object_is_an_item),
        cmocka_unit_test(a_tensor_of_which_nothing_is_here_is_reported),
        cmocka_unit_test(an_empty_tree_is_an_empty_plan),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, make_tree, free_tree);
}
