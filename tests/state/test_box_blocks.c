/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "state/box_blocks.h"
#include "storage/layout.h"
#include "storage/scratch.h"

/* Blocks together are the box, in row-major order, and none is larger than asked for. */
static void check_bounded(int32_t ndim, const int64_t *sizes, int64_t most)
{
    struct box_blocks blocks;
    struct box_storage block;
    int64_t strides[DCP_MAX_DIMS], next = 0, whole = 1;
    shape_strides(ndim, sizes, strides);
    for (int32_t i = 0; i < ndim; i++)
        whole *= sizes[i];
    box_blocks_start_bounded(&blocks, ndim, sizes, most);
    while (box_blocks_next(&blocks, &block)) {
        int64_t volume = box_volume(box_of(ndim, &block));
        assert_true(volume > 0 && volume <= most);
        assert_int_equal(layout_offset(ndim, block.offsets, strides), next);
        next += volume;
    }
    assert_int_equal(next, whole);
    assert_false(box_blocks_next(&blocks, &block));
}

static void bounded_blocks_cover_the_box_in_order(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < 2000; round++) {
        int64_t sizes[8];
        int32_t ndim = (int32_t)scratch_below(&random, 6);
        for (int32_t i = 0; i < ndim; i++)
            sizes[i] = scratch_below(&random, 7);
        check_bounded(ndim, sizes, 1 + scratch_below(&random, 200));
    }
}

static void a_scalar_is_one_block(void **state)
{
    (void)state;
    struct box_blocks blocks;
    struct box_storage block;
    box_blocks_start_bounded(&blocks, 0, NULL, 1);
    assert_true(box_blocks_next(&blocks, &block));
    assert_false(box_blocks_next(&blocks, &block));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounded_blocks_cover_the_box_in_order),
        cmocka_unit_test(a_scalar_is_one_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
