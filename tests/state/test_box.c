/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "state/box.h"
#include "state/random.h"

static void volumes_are_checked(void **state)
{
    (void)state;
    int64_t elements;
    uint64_t bytes;
    const int64_t big = INT64_C(1) << 40;
    assert_true(shape_volume(0, NULL, &elements));
    assert_int_equal(elements, 1);
    assert_true(shape_volume(2, (const int64_t[]){3, 5}, &elements));
    assert_int_equal(elements, 15);
    assert_true(shape_volume(2, (const int64_t[]){3, 0}, &elements));
    assert_int_equal(elements, 0);
    assert_false(shape_volume(2, (const int64_t[]){3, -1}, &elements));
    assert_true(shape_volume(3, (const int64_t[]){0, big, big}, &elements));
    assert_int_equal(elements, 0);
    assert_true(shape_volume(3, (const int64_t[]){big, big, 0}, &elements));
    assert_int_equal(elements, 0);
    assert_false(shape_volume(3, (const int64_t[]){0, big, -1}, &elements));
    assert_false(shape_volume(2, (const int64_t[]){big, big}, &elements));
    assert_true(shape_volume(1, (const int64_t[]){INT64_MAX}, &elements));

    assert_true(shape_bytes(2, (const int64_t[]){3, 5}, DCP_C128, &bytes));
    assert_int_equal(bytes, 240);
    assert_true(shape_bytes(1, (const int64_t[]){INT64_MAX}, DCP_U8, &bytes));
    assert_false(shape_bytes(1, (const int64_t[]){INT64_MAX}, DCP_F16, &bytes));
    assert_true(shape_bytes(2, (const int64_t[]){INT64_MAX, 0}, DCP_F16, &bytes));
    assert_int_equal(bytes, 0);
    assert_true(shape_bytes(0, NULL, DCP_F64, &bytes));
    assert_int_equal(bytes, 8);
}

static bool inside(int64_t offset, int64_t size, int64_t shape)
{
    return box_check((struct box){1, &offset, &size}, &shape);
}

static void boxes_are_checked(void **state)
{
    (void)state;
    assert_true(inside(0, 4, 4));
    assert_true(inside(4, 0, 4));
    assert_false(inside(5, 0, 4));
    assert_false(inside(1, 4, 4));
    assert_false(inside(-1, 2, 4));
    assert_false(inside(0, -1, 4));
    assert_false(inside(INT64_MAX, 1, 4));
    assert_false(inside(1, INT64_MAX, 4));
    assert_false(inside(0, 0, -1));
    assert_true(inside(INT64_MAX - 1, 1, INT64_MAX));
    const int64_t zeros[2] = {0};
    const int64_t big[2] = {INT64_MAX, 2};
    assert_false(box_check((struct box){2, zeros, big}, big));
    assert_true(box_check((struct box){0, NULL, NULL}, NULL));
}

static void volume_and_equality(void **state)
{
    (void)state;
    const int64_t offsets[] = {1, 2};
    const int64_t sizes[] = {3, 4};
    const int64_t others[] = {3, 0};
    struct box box = {2, offsets, sizes};
    assert_int_equal(box_volume(box), 12);
    assert_int_equal(box_volume((struct box){2, offsets, others}), 0);
    assert_int_equal(box_volume((struct box){0, NULL, NULL}), 1);
    assert_true(box_equal(box, box));
    assert_false(box_equal(box, (struct box){2, offsets, others}));
    assert_false(box_equal(box, (struct box){2, others, sizes}));
    assert_false(box_equal(box, (struct box){1, offsets, sizes}));
}

/* Elements of small boxes, as bits. */
static uint64_t bits_of(const struct box_storage *box)
{
    uint64_t bits = 0;
    for (int64_t i = box->offsets[0]; i < box->offsets[0] + box->sizes[0]; i++)
        for (int64_t j = box->offsets[1]; j < box->offsets[1] + box->sizes[1]; j++)
            bits |= UINT64_C(1) << (i * 8 + j);
    return bits;
}

static void intersections_are_common_elements(void **state)
{
    (void)state;
    struct random random = {7};
    for (int round = 0; round < 20000; round++) {
        struct box_storage a;
        struct box_storage b;
        struct box_storage common;
        for (int d = 0; d < 2; d++) {
            a.offsets[d] = random_between(&random, 0, 7);
            a.sizes[d] = random_between(&random, 0, 8 - a.offsets[d]);
            b.offsets[d] = random_between(&random, 0, 7);
            b.sizes[d] = random_between(&random, 0, 8 - b.offsets[d]);
        }
        uint64_t expected = bits_of(&a) & bits_of(&b);
        bool some = box_intersect(box_of(2, &a), box_of(2, &b), &common);
        assert_int_equal(some, expected != 0);
        if (some)
            assert_int_equal(bits_of(&common), expected);
    }
    struct box_storage common;
    assert_true(box_intersect((struct box){0, NULL, NULL}, (struct box){0, NULL, NULL}, &common));
}

/* The rest of a row, whole rows, the beginning of one. */
static void a_range_of_elements_is_a_few_boxes(void **state)
{
    static const int64_t offsets[] = {100, 7}, sizes[] = {10, 6};
    static const int64_t expected[][5] = {{102, 9, 1, 4, 4}, {103, 7, 2, 6, 12}, {105, 7, 1, 5, 5}};
    const struct box region = {2, offsets, sizes};
    int64_t from = 2 * 6 + 2;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct box_storage box;
        assert_int_equal(box_next(region, from, 5 * 6 + 5, &box), expected[i][4]);
        assert_memory_equal(box.offsets, expected[i], 2 * sizeof(int64_t));
        assert_memory_equal(box.sizes, expected[i] + 2, 2 * sizeof(int64_t));
        from += expected[i][4];
    }
    assert_int_equal(from, 5 * 6 + 5);
}

static bool is_inside(struct box box, const int64_t *at)
{
    for (int32_t d = 0; d < box.ndim; d++)
        if (at[d] < box.offsets[d] || at[d] >= box.offsets[d] + box.sizes[d])
            return false;
    return true;
}

/* Walks over all elements of a box, and finds those of a region in it. */
static void check_order(struct box outer, struct box region)
{
    int64_t found = 0, before = -1, run = 0, length = box_run(outer, region);
    for (int64_t position = 0; position < box_volume(outer); position++) {
        struct box_storage element;
        assert_int_equal(box_next(outer, position, position + 1, &element), 1);
        assert_int_equal(box_elements_before(outer, region, position), found);
        if (!is_inside(region, element.offsets))
            continue;
        assert_int_equal(box_position(outer, region, found), position);
        run = position == before + 1 && run < length ? run + 1 : 1;
        assert_true(run == 1 || position == before + 1);
        found++;
        if (found % length == 0)
            assert_int_equal(run, length);
        before = position;
    }
    assert_int_equal(found, box_volume(region));
    assert_int_equal(box_elements_before(outer, region, box_volume(outer)), found);
}

static void a_region_has_its_order_in_a_box(void **state)
{
    (void)state;
    struct random random = {11};
    for (int round = 0; round < 2000; round++) {
        struct box_storage outer, region;
        int32_t ndim = (int32_t)random_between(&random, 0, 3);
        for (int32_t d = 0; d < ndim; d++) {
            bool all = random_between(&random, 0, 2) == 0;
            outer.offsets[d] = random_between(&random, 0, 9);
            outer.sizes[d] = random_between(&random, 1, 5);
            int64_t from = all ? 0 : random_between(&random, 0, outer.sizes[d] - 1);
            region.offsets[d] = outer.offsets[d] + from;
            region.sizes[d] =
                all ? outer.sizes[d] : random_between(&random, 1, outer.sizes[d] - from);
        }
        check_order(box_of(ndim, &outer), box_of(ndim, &region));
    }
    const struct box rows = {2, (int64_t[]){5, 1}, (int64_t[]){6, 8}};
    assert_int_equal(box_run(rows, (struct box){2, (int64_t[]){5, 2}, (int64_t[]){6, 4}}), 4);
    assert_int_equal(box_run(rows, (struct box){2, (int64_t[]){6, 1}, (int64_t[]){3, 8}}), 24);
}

static void strides_are_those_of_pytorch(void **state)
{
    (void)state;
    int64_t strides[3];
    shape_strides(3, (const int64_t[]){3, 0, 5}, strides);
    assert_int_equal(strides[0], 5);
    assert_int_equal(strides[1], 5);
    assert_int_equal(strides[2], 1);
    shape_strides(3, (const int64_t[]){2, 3, 4}, strides);
    assert_int_equal(strides[0], 12);
    assert_int_equal(strides[1], 4);
}

static void boxes_are_printed(void **state)
{
    (void)state;
    char text[64];
    char small[8];
    const int64_t offsets[] = {0, 3};
    const int64_t sizes[] = {4, 6};
    struct box box = {2, offsets, sizes};
    assert_string_equal(box_format(box, text, sizeof text), "[0:4, 3:9]");
    assert_string_equal(box_format((struct box){0, NULL, NULL}, text, sizeof text), "[]");
    assert_string_equal(shape_format(2, sizes, text, sizeof text), "[4, 6]");
    assert_string_equal(box_format(box, small, sizeof small), "[0:4, 3");
    assert_string_equal(shape_format(2, sizes, small, 3), "[4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(volumes_are_checked),
        cmocka_unit_test(boxes_are_checked),
        cmocka_unit_test(volume_and_equality),
        cmocka_unit_test(intersections_are_common_elements),
        cmocka_unit_test(a_range_of_elements_is_a_few_boxes),
        cmocka_unit_test(a_region_has_its_order_in_a_box),
        cmocka_unit_test(strides_are_those_of_pytorch),
        cmocka_unit_test(boxes_are_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
