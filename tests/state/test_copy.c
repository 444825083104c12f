/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "state/box.h"
#include "state/copy.h"
#include "state/random.h"

enum { NDIM_MAX = 5, ROOM = 1 << 16 };

static unsigned char source[ROOM];
static unsigned char destination[ROOM];
static unsigned char expected[ROOM];

/* One element after the other. */
static void copy_naive(int32_t ndim, const int64_t *sizes, size_t element,
                       const unsigned char *from, const int64_t *from_strides, unsigned char *to,
                       const int64_t *to_strides)
{
    int64_t total;
    shape_volume(ndim, sizes, &total);
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i;
        int64_t from_at = 0;
        int64_t to_at = 0;
        for (int32_t d = ndim - 1; d >= 0; d--) {
            from_at += rest % sizes[d] * from_strides[d];
            to_at += rest % sizes[d] * to_strides[d];
            rest /= sizes[d];
        }
        memcpy(to + to_at * (int64_t)element, from + from_at * (int64_t)element, element);
    }
}

/* Row-major strides of dimensions in random order, with gaps, perhaps backwards; *origin is the
 * place of element 0. Returns the elements that are spanned. */
static int64_t random_strides(struct random *random, int32_t ndim, const int64_t *sizes,
                              bool may_repeat, int64_t *strides, int64_t *origin)
{
    int32_t order[NDIM_MAX];
    for (int32_t d = 0; d < ndim; d++)
        order[d] = d;
    if (random_between(random, 0, 1))
        for (int32_t d = ndim - 1; d > 0; d--) {
            int64_t other = random_between(random, 0, d);
            int32_t swap = order[d];
            order[d] = order[other];
            order[other] = swap;
        }
    int64_t span = 1;
    *origin = 0;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        int32_t d = order[i];
        strides[d] = span;
        if (may_repeat && random_between(random, 0, 9) == 0)
            strides[d] = 0;
        else if (sizes[d] > 0)
            span *= sizes[d] + (random_between(random, 0, 4) == 0);
        if (random_between(random, 0, 9) == 0 && sizes[d] > 0) {
            *origin += strides[d] * (sizes[d] - 1);
            strides[d] = -strides[d];
        }
    }
    return span;
}

static void random_boxes_are_copied_element_by_element(void **state)
{
    (void)state;
    static const size_t elements[] = {1, 2, 4, 8, 16};
    struct random random = {23};
    for (size_t i = 0; i < ROOM; i++)
        source[i] = (unsigned char)(random_next(&random) >> 40);
    int copied = 0;
    for (int round = 0; round < 20000; round++) {
        int32_t ndim = (int32_t)random_between(&random, 0, NDIM_MAX);
        size_t element = elements[random_between(&random, 0, 4)];
        int64_t sizes[NDIM_MAX], from[NDIM_MAX], to[NDIM_MAX], from_origin, to_origin;
        for (int32_t d = 0; d < ndim; d++)
            sizes[d] = random_between(&random, round % 20 == 0 ? 0 : 1, ndim < 3 ? 90 : 5);
        size_t shift = (size_t)random_between(&random, 0, 3); /* memory need not be aligned */
        size_t room = (ROOM - 4) / element;
        if ((size_t)random_strides(&random, ndim, sizes, true, from, &from_origin) > room ||
            (size_t)random_strides(&random, ndim, sizes, false, to, &to_origin) > room)
            continue;
        memset(destination, 0xee, ROOM);
        memset(expected, 0xee, ROOM);
        const unsigned char *first = source + shift + (size_t)from_origin * element;
        copy_naive(ndim, sizes, element, first, from,
                   expected + shift + (size_t)to_origin * element, to);
        copy_strided(ndim, sizes, element, first, from,
                     destination + shift + (size_t)to_origin * element, to);
        assert_memory_equal(destination, expected, ROOM);
        copied++;
    }
    assert_true(copied > 10000);
}

static void a_box_without_dimensions_is_one_element(void **state)
{
    (void)state;
    const double from = 3.5;
    double to[2] = {0, 1};
    copy_strided(0, NULL, sizeof from, &from, NULL, to, NULL);
    assert_true(to[0] == 3.5 && to[1] == 1);
}

static void all_dimensions_may_be_used(void **state)
{
    (void)state;
    int64_t sizes[DCP_MAX_DIMS];
    int64_t strides[DCP_MAX_DIMS];
    int64_t reversed[DCP_MAX_DIMS];
    for (int d = 0; d < DCP_MAX_DIMS; d++)
        sizes[d] = d % 5 == 0 ? 2 : 1;
    shape_strides(DCP_MAX_DIMS, sizes, strides);
    int64_t stride = 1;
    for (int d = 0; d < DCP_MAX_DIMS; d++) {
        reversed[d] = stride;
        stride *= sizes[d];
    }
    memset(destination, 0, ROOM);
    memset(expected, 0, ROOM);
    copy_strided(DCP_MAX_DIMS, sizes, 1, source, reversed, destination, strides);
    copy_naive(DCP_MAX_DIMS, sizes, 1, source, reversed, expected, strides);
    assert_memory_equal(destination, expected, ROOM);
}

static void bytes_are_swapped_by_component(void **state)
{
    (void)state;
    static const struct {
        dcp_dtype dtype;
        size_t component;
    } swaps[] = {{DCP_U8, 1},  {DCP_BOOL, 1},       {DCP_F8_E5M2, 1}, {DCP_F4_E2M1FN_X2, 1},
                 {DCP_I16, 2}, {DCP_F16, 2},        {DCP_BF16, 2},    {DCP_BITS16, 2},
                 {DCP_C32, 2}, {DCP_BCOMPLEX32, 2}, {DCP_U32, 4},     {DCP_F32, 4},
                 {DCP_C64, 4}, {DCP_F64, 8},        {DCP_U64, 8},     {DCP_C128, 8}};
    for (size_t i = 0; i < sizeof swaps / sizeof swaps[0]; i++) {
        unsigned char bytes[3 * 16 + 1];
        size_t total = 3 * dcp_dtype_size(swaps[i].dtype);
        for (size_t b = 0; b < sizeof bytes; b++)
            bytes[b] = (unsigned char)b;
        copy_swap_bytes(swaps[i].dtype, bytes, 3);
        for (size_t b = 0; b < total; b++) {
            size_t begin = b / swaps[i].component * swaps[i].component;
            assert_int_equal(bytes[b], begin + swaps[i].component - 1 - (b - begin));
        }
        assert_int_equal(bytes[total], total);
    }
}

static void density_is_reported(void **state)
{
    (void)state;
    const int64_t sizes[] = {2, 1, 3};
    assert_true(copy_is_dense(3, sizes, (const int64_t[]){3, 99, 1}));
    assert_false(copy_is_dense(3, sizes, (const int64_t[]){4, 99, 1}));
    assert_false(copy_is_dense(3, sizes, (const int64_t[]){1, 1, 2}));
    assert_false(copy_is_dense(3, sizes, (const int64_t[]){3, 3, -1}));
    assert_true(copy_is_dense(2, (const int64_t[]){5, 0}, (const int64_t[]){7, 7}));
    assert_true(copy_is_dense(0, NULL, NULL));
}

static bool overlaps(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
{
    return copy_may_overlap(2, (const int64_t[]){rows, columns},
                            (const int64_t[]){row_stride, column_stride});
}

static void overlaps_are_found(void **state)
{
    (void)state;
    assert_false(overlaps(3, 4, 4, 1));
    assert_false(overlaps(3, 4, 1, 3));
    assert_false(overlaps(3, 4, -4, 1));
    assert_false(overlaps(3, 4, 9, -2));
    assert_false(overlaps(1, 4, 0, 1));
    assert_false(overlaps(0, 4, 0, 0));
    assert_false(overlaps(3, 4, 4, -1));
    assert_true(overlaps(3, 4, 0, 1));
    assert_true(overlaps(3, 4, 3, 1));
    assert_true(overlaps(3, 4, 1, 1));
    assert_true(overlaps(3, 4, -3, 1));
    assert_true(overlaps(3, 3, 2, 3)); /* interleaved */
    assert_false(copy_may_overlap(0, NULL, NULL));
    assert_false(copy_may_overlap(1, (const int64_t[]){1}, (const int64_t[]){0}));
    assert_true(copy_may_overlap(1, (const int64_t[]){2}, (const int64_t[]){0}));
}

/* What is called free of overlap is. */
static void overlaps_are_not_missed(void **state)
{
    (void)state;
    struct random random = {37};
    int nested = 0;
    for (int round = 0; round < 20000; round++) {
        int64_t sizes[3], strides[3];
        bool used[512] = {false};
        bool overlapping = false;
        for (int d = 0; d < 3; d++) {
            sizes[d] = random_between(&random, 1, 4);
            strides[d] = random_between(&random, -12, 20);
        }
        for (int64_t i = 0; i < sizes[0]; i++)
            for (int64_t j = 0; j < sizes[1]; j++)
                for (int64_t k = 0; k < sizes[2]; k++) {
                    int64_t at = 256 + i * strides[0] + j * strides[1] + k * strides[2];
                    overlapping = overlapping || used[at];
                    used[at] = true;
                }
        if (!copy_may_overlap(3, sizes, strides)) {
            assert_false(overlapping);
            nested++;
        }
    }
    assert_true(nested > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_boxes_are_copied_element_by_element),
        cmocka_unit_test(a_box_without_dimensions_is_one_element),
        cmocka_unit_test(all_dimensions_may_be_used),
        cmocka_unit_test(bytes_are_swapped_by_component),
        cmocka_unit_test(density_is_reported),
        cmocka_unit_test(overlaps_are_found),
        cmocka_unit_test(overlaps_are_not_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
