/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/state.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/random.h"

enum { ELEMENTS_MAX = 5 * 4 * 4 * 3 };

/* Puts the numbers of the range's elements where the chunks say that they are in the tensor; each
 * place must get its own number, once. */
static void check_range(const dcp_tensor *whole, int64_t start, int64_t length)
{
    int64_t numbers[ELEMENTS_MAX];
    int64_t tensor[ELEMENTS_MAX];
    int64_t strides[DCP_MAX_DIMS];
    int64_t elements;
    shape_volume(whole->ndim, whole->global_shape, &elements);
    shape_strides(whole->ndim, whole->global_shape, strides);
    for (int64_t i = 0; i < elements; i++)
        tensor[i] = -1;
    for (int64_t i = 0; i < length; i++)
        numbers[i] = start + i;

    dcp_state *root = dcp_state_new();
    dcp_state *node = dcp_state_flat_range(root, "flat", whole, start, length, numbers);
    assert_non_null(node);
    size_t chunks = dcp_state_chunk_count(node);
    assert_true(chunks <= (size_t)(whole->ndim > 0 ? 2 * whole->ndim - 1 : 1));
    int64_t covered = 0;
    for (size_t i = 0; i < chunks; i++) {
        dcp_tensor chunk;
        assert_int_equal(dcp_state_chunk(node, i, &chunk), DCP_OK);
        assert_false(chunk.strided);
        int64_t at = 0;
        for (int32_t d = 0; d < whole->ndim; d++)
            at += chunk.offsets[d] * strides[d];
        copy_strided(whole->ndim, chunk.sizes, sizeof numbers[0], chunk.data, chunk.strides,
                     tensor + at, strides);
        covered += box_volume((struct box){whole->ndim, chunk.offsets, chunk.sizes});
    }
    assert_int_equal(covered, length);
    for (int64_t i = 0; i < elements; i++)
        assert_int_equal(tensor[i], i >= start && i < start + length ? i : -1);
    dcp_state_free(root);
}

static void every_range_of_small_tensors(void **state)
{
    (void)state;
    static const struct {
        int32_t ndim;
        int64_t shape[5];
    } shapes[] = {{0, {0}},          {1, {7}},          {2, {3, 4}},          {2, {1, 6}},
                  {2, {6, 1}},       {3, {2, 3, 4}},    {3, {3, 1, 4}},       {3, {1, 1, 1}},
                  {4, {2, 3, 2, 3}}, {4, {2, 1, 3, 2}}, {5, {2, 2, 1, 2, 2}}, {3, {4, 3, 1}}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        dcp_tensor whole = {.dtype = DCP_I64, .ndim = shapes[s].ndim};
        int64_t elements;
        memcpy(whole.global_shape, shapes[s].shape, sizeof shapes[s].shape);
        shape_volume(whole.ndim, whole.global_shape, &elements);
        for (int64_t start = 0; start <= elements; start++)
            for (int64_t length = 0; start + length <= elements; length++)
                check_range(&whole, start, length);
    }
}

static void random_ranges(void **state)
{
    (void)state;
    struct random random = {29};
    for (int round = 0; round < 3000; round++) {
        dcp_tensor whole = {.dtype = DCP_I64, .ndim = 4, .global_shape = {5, 4, 4, 3}};
        int64_t start = random_between(&random, 0, ELEMENTS_MAX);
        check_range(&whole, start, random_between(&random, 0, ELEMENTS_MAX - start));
    }
}

static void a_range_may_have_no_memory_yet(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_tensor whole = {.dtype = DCP_F32, .ndim = 2, .global_shape = {4, 4}};
    dcp_tensor chunk;
    dcp_state *node = dcp_state_flat_range(root, "flat", &whole, 2, 9, NULL);
    assert_int_equal(dcp_state_chunk_count(node), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(dcp_state_chunk(node, i, &chunk), DCP_OK);
        assert_true(chunk.sharded);
        assert_null(chunk.data);
    }
    dcp_state_free(root);
}

static void tensors_without_elements_have_a_chunk(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_tensor whole = {.dtype = DCP_F32, .ndim = 2, .global_shape = {4, 0}};
    assert_int_equal(dcp_state_chunk_count(dcp_state_flat_range(root, "none", &whole, 0, 0, NULL)),
                     1);
    whole.global_shape[1] = 2;
    assert_int_equal(
        dcp_state_chunk_count(dcp_state_flat_range(root, "elsewhere", &whole, 8, 0, NULL)), 0);
    assert_int_equal(dcp_state_status(root), DCP_OK);
    dcp_state_free(root);
}

static void wrong_ranges_are_refused(void **state)
{
    (void)state;
    static const int64_t ranges[][2] = {{-1, 2}, {0, -1}, {0, 17}, {17, 0}, {INT64_MAX, INT64_MAX}};
    dcp_tensor whole = {.dtype = DCP_F32, .ndim = 2, .global_shape = {4, 4}};
    dcp_state *root = dcp_state_new();
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        assert_null(dcp_state_flat_range(root, "flat", &whole, ranges[i][0], ranges[i][1], NULL));
    assert_non_null(strstr(dcp_error_message(), "tensor \"flat\": the range of"));
    whole.sharded = true;
    assert_null(dcp_state_flat_range(root, "flat", &whole, 0, 4, NULL));
    whole.sharded = false;
    whole.dtype = DCP_DTYPE_NONE;
    assert_null(dcp_state_flat_range(root, "flat", &whole, 0, 4, NULL));
    assert_null(dcp_state_flat_range(root, "flat", NULL, 0, 4, NULL));
    assert_null(dcp_state_flat_range(NULL, "flat", &whole, 0, 4, NULL));
    assert_int_equal(dcp_state_count(root), 0);
    assert_int_equal(dcp_state_status(root), DCP_ERR_ARGUMENT);
    dcp_state_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_range_of_small_tensors),
        cmocka_unit_test(random_ranges),
        cmocka_unit_test(a_range_may_have_no_memory_yet),
        cmocka_unit_test(tensors_without_elements_have_a_chunk),
        cmocka_unit_test(wrong_ranges_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
