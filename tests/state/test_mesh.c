/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/mesh.h"
#include "dcp/state.h"
#include "fault/failing_allocator.h"

static const int16_t cases[] = {
#include "mesh_cases.inc"
};

struct mesh_case {
    dcp_tensor tensor;
    dcp_mesh mesh;
    dcp_placement placements[DCP_MAX_MESH_DIMS];
    bool one_box;
    const int16_t *expected; /* offsets, sizes */
};

/* Reads a case; returns where the next one begins. */
static const int16_t *case_read(const int16_t *at, struct mesh_case *out)
{
    memset(out, 0, sizeof *out);
    out->tensor.dtype = DCP_F32;
    out->tensor.ndim = *at++;
    for (int i = 0; i < out->tensor.ndim; i++)
        out->tensor.global_shape[i] = *at++;
    out->mesh.ndim = *at++;
    for (int i = 0; i < out->mesh.ndim; i++)
        out->mesh.shape[i] = *at++;
    for (int i = 0; i < out->mesh.ndim; i++, at += 3)
        out->placements[i] = (dcp_placement){(dcp_placement_kind)at[0], at[1], at[2]};
    out->mesh.rank = *at++;
    out->one_box = *at++ != 0;
    out->expected = at;
    return at + (out->one_box ? 2 * out->tensor.ndim : 0);
}

static void chunks_are_those_of_pytorch(void **state)
{
    (void)state;
    int boxes = 0;
    int refused = 0;
    const int16_t *at = cases;
    while (at < cases + sizeof cases / sizeof cases[0]) {
        struct mesh_case next;
        at = case_read(at, &next);
        dcp_status status = dcp_mesh_shard(&next.mesh, &next.tensor, next.placements);
        if (!next.one_box) {
            assert_int_equal(status, DCP_ERR_UNSUPPORTED);
            refused++;
            continue;
        }
        assert_int_equal(status, DCP_OK);
        assert_true(next.tensor.sharded);
        for (int i = 0; i < next.tensor.ndim; i++) {
            assert_int_equal(next.tensor.offsets[i], next.expected[i]);
            assert_int_equal(next.tensor.sizes[i], next.expected[next.tensor.ndim + i]);
        }
        boxes++;
    }
    assert_true(boxes > 1000);
    assert_true(refused > 10);
}

static dcp_tensor tensor_of(int32_t ndim, int64_t a, int64_t b)
{
    dcp_tensor tensor = {.dtype = DCP_BF16, .ndim = ndim, .global_shape = {a, b}};
    return tensor;
}

static void negative_dimensions_count_from_the_end(void **state)
{
    (void)state;
    dcp_mesh mesh = {.ndim = 1, .shape = {2}, .rank = 1};
    dcp_tensor tensor = tensor_of(2, 4, 7);
    dcp_placement placement = dcp_shard(-1);
    assert_int_equal(dcp_mesh_shard(&mesh, &tensor, &placement), DCP_OK);
    assert_int_equal(tensor.offsets[0], 0);
    assert_int_equal(tensor.sizes[0], 4);
    assert_int_equal(tensor.offsets[1], 4);
    assert_int_equal(tensor.sizes[1], 3);
}

static void huge_sizes_do_not_overflow(void **state)
{
    (void)state;
    dcp_mesh mesh = {.ndim = 2, .shape = {INT64_MAX / 2, 2}, .rank = INT64_MAX - 2};
    dcp_tensor tensor = {.dtype = DCP_U8, .ndim = 1, .global_shape = {INT64_MAX}};
    dcp_placement placements[] = {dcp_shard(0), dcp_replicate()};
    assert_int_equal(dcp_mesh_shard(&mesh, &tensor, placements), DCP_OK);
    assert_int_equal(tensor.sizes[0], 0);
    assert_int_equal(tensor.offsets[0], INT64_MAX);
}

static void a_rank_outside_holds_nothing(void **state)
{
    (void)state;
    dcp_mesh mesh = {.ndim = 1, .shape = {2}, .rank = -1};
    dcp_placement placement = dcp_replicate();
    dcp_tensor tensor = tensor_of(2, 4, 7);
    assert_int_equal(dcp_mesh_shard(&mesh, &tensor, &placement), DCP_OK);
    assert_true(tensor.sharded);
    assert_int_equal(tensor.sizes[0], 0);
    tensor = tensor_of(0, 0, 0);
    assert_int_equal(dcp_mesh_shard(&mesh, &tensor, &placement), DCP_ERR_UNSUPPORTED);
    mesh.rank = 1;
    assert_int_equal(dcp_mesh_shard(&mesh, &tensor, &placement), DCP_OK);
    assert_true(tensor.sharded);
}

static void expect_refused(dcp_mesh mesh, dcp_tensor tensor, const dcp_placement *placements,
                           const char *message)
{
    dcp_tensor before = tensor;
    char expected[300];
    assert_int_equal(dcp_mesh_shard(&mesh, &tensor, placements), DCP_ERR_ARGUMENT);
    if (!strstr(dcp_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", dcp_error_message(), message);
    assert_memory_equal(before.global_shape, tensor.global_shape, sizeof before.global_shape);

    /* Who does not look at the status hears of it from the state, and from its saves. */
    dcp_state *root = dcp_state_new();
    snprintf(expected, sizeof expected, "tensor \"w\": dcp_mesh_shard() had failed: %.200s",
             dcp_error_message());
    assert_null(dcp_state_tensor(root, "w", &tensor));
    assert_string_equal(dcp_error_message(), expected);
    assert_int_equal(dcp_state_status(root), DCP_ERR_ARGUMENT);
    assert_string_equal(dcp_error_message(), expected);
    dcp_state_free(root);
}

static void a_call_that_succeeds_makes_up_for_one_that_failed(void **state)
{
    (void)state;
    const dcp_mesh wrong = {.ndim = 1, .shape = {2}, .rank = 2};
    const dcp_mesh right = {.ndim = 1, .shape = {2}, .rank = 1};
    const dcp_placement rows = dcp_shard(0);
    dcp_tensor tensor = tensor_of(2, 4, 7);
    dcp_state *root = dcp_state_new();
    assert_int_equal(dcp_mesh_shard(&wrong, &tensor, &rows), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_mesh_shard(&right, &tensor, &rows), DCP_OK);
    assert_non_null(dcp_state_tensor(root, "w", &tensor));
    assert_int_equal(tensor.offsets[0], 2);
    assert_int_equal(dcp_mesh_shard(&right, &tensor, NULL), DCP_ERR_ARGUMENT);
    assert_null(dcp_state_tensor(root, "v", &tensor));
    assert_non_null(strstr(dcp_error_message(), "the list of placements is NULL"));
    dcp_state_free(root);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    const dcp_mesh mesh = {.ndim = 2, .shape = {2, 3}, .rank = 5};
    const dcp_tensor tensor = tensor_of(2, 4, 7);
    dcp_placement placements[] = {dcp_shard(0), dcp_shard(1)};
    dcp_tensor copy = tensor;
    assert_int_equal(dcp_mesh_shard(NULL, &copy, placements), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_mesh_shard(&mesh, NULL, placements), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_mesh_shard(&mesh, &copy, NULL), DCP_ERR_ARGUMENT);

    dcp_mesh wrong = mesh;
    wrong.rank = 6;
    expect_refused(wrong, tensor, placements, "rank 6");
    wrong.rank = -2;
    expect_refused(wrong, tensor, placements, "rank -2");
    wrong = mesh;
    wrong.ndim = 0;
    expect_refused(wrong, tensor, placements, "0 dimensions");
    wrong.ndim = DCP_MAX_MESH_DIMS + 1;
    expect_refused(wrong, tensor, placements, "17 dimensions");
    wrong = mesh;
    wrong.shape[1] = 0;
    expect_refused(wrong, tensor, placements, "mesh dimension 1 of size 0");
    wrong.shape[0] = wrong.shape[1] = INT64_MAX;
    expect_refused(wrong, tensor, placements, "impossible");

    placements[1] = dcp_shard(2);
    expect_refused(mesh, tensor, placements, "placement 1 shards dimension 2 of a tensor of 2");
    placements[1] = dcp_shard(-3);
    expect_refused(mesh, tensor, placements, "dimension -3");
    placements[1] = dcp_strided_shard(0, 0);
    expect_refused(mesh, tensor, placements, "split factor 0");
    placements[1] = dcp_strided_shard(0, INT64_MAX);
    expect_refused(mesh, tensor, placements, "split factor 9223372036854775807");
    placements[1] = (dcp_placement){(dcp_placement_kind)7, 0, 0};
    expect_refused(mesh, tensor, placements, "unknown kind 7");
    placements[1] = dcp_replicate();
    expect_refused(mesh, tensor_of(65, 1, 1), placements, "65 dimensions");
    expect_refused(mesh, tensor_of(2, -4, 1), placements, "negative");
}

static void memory_failures_are_reported(void **state)
{
    (void)state;
    dcp_mesh mesh = {.ndim = 2, .shape = {2, 6}, .rank = 3};
    dcp_placement placements[] = {dcp_strided_shard(0, 6), dcp_shard(0)};
    for (long n = 1;; n++) {
        dcp_tensor tensor = tensor_of(2, 144, 2);
        failing_allocator_install(n, false);
        dcp_status status = dcp_mesh_shard(&mesh, &tensor, placements);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            assert_int_equal(tensor.offsets[0], 72);
            assert_int_equal(tensor.sizes[0], 12);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_those_of_pytorch),
        cmocka_unit_test(negative_dimensions_count_from_the_end),
        cmocka_unit_test(huge_sizes_do_not_overflow),
        cmocka_unit_test(a_rank_outside_holds_nothing),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_call_that_succeeds_makes_up_for_one_that_failed),
        cmocka_unit_test(memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
