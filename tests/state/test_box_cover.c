/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "state/box.h"
#include "state/random.h"

/* Boxes that carry their numbers, and the array that is asked about. */
struct boxes {
    struct box_storage *storages;
    struct box *items;
    size_t count;
};

static struct boxes boxes_new(size_t count)
{
    struct boxes boxes = {malloc(count * sizeof *boxes.storages),
                          malloc(count * sizeof *boxes.items), count};
    assert_non_null(boxes.storages);
    assert_non_null(boxes.items);
    return boxes;
}

static void boxes_free(struct boxes *boxes)
{
    free(boxes->storages);
    free(boxes->items);
}

enum { EDGE = 6 }; /* of the small grids */

/* Number of boxes on each point of a grid of EDGE points a dimension. */
static void count_points(int32_t ndim, const struct boxes *boxes, int *points, int total)
{
    memset(points, 0, (size_t)total * sizeof *points);
    for (size_t b = 0; b < boxes->count; b++) {
        for (int p = 0; p < total; p++) {
            bool in = true;
            int rest = p;
            for (int32_t d = 0; d < ndim; d++, rest /= EDGE) {
                int64_t offset = boxes->items[b].offsets[d];
                in = in && rest % EDGE >= offset && rest % EDGE < offset + boxes->items[b].sizes[d];
            }
            points[p] += in;
        }
    }
}

static void check_against_points(int32_t ndim, const struct boxes *boxes)
{
    int points[EDGE * EDGE * EDGE];
    int total = ndim == 1 ? EDGE : ndim == 2 ? EDGE * EDGE : EDGE * EDGE * EDGE;
    count_points(ndim, boxes, points, total);
    bool overlapped = false;
    bool holed = false;
    for (int p = 0; p < total; p++) {
        overlapped = overlapped || points[p] > 1;
        holed = holed || points[p] == 0;
    }

    bool found;
    size_t first;
    size_t second;
    struct box_storage common;
    assert_int_equal(box_find_overlap(boxes->items, boxes->count, &found, &first, &second), DCP_OK);
    assert_int_equal(found, overlapped);
    if (found) {
        assert_true(first < second && second < boxes->count);
        assert_true(box_intersect(boxes->items[first], boxes->items[second], &common));
    }

    const int64_t zeros[3] = {0};
    const int64_t edges[3] = {EDGE, EDGE, EDGE};
    struct box_storage hole;
    struct box whole = {ndim, zeros, edges};
    assert_int_equal(box_find_hole(whole, boxes->items, boxes->count, &found, &hole), DCP_OK);
    assert_int_equal(found, holed);
    if (found) {
        assert_true(box_check(box_of(ndim, &hole), edges));
        assert_true(box_volume(box_of(ndim, &hole)) > 0);
        for (size_t b = 0; b < boxes->count; b++)
            assert_false(box_intersect(box_of(ndim, &hole), boxes->items[b], &common));
    }
}

static void random_box(struct random *random, int32_t ndim, struct box_storage *box)
{
    for (int32_t d = 0; d < ndim; d++) {
        box->offsets[d] = random_between(random, 0, EDGE);
        box->sizes[d] = random_between(random, 0, EDGE - box->offsets[d]);
        if (random_between(random, 0, 9) == 0) {
            box->offsets[d] = 0;
            box->sizes[d] = EDGE;
        }
    }
}

static void random_boxes_agree_with_points(void **state)
{
    (void)state;
    struct random random = {11};
    for (int round = 0; round < 30000; round++) {
        int32_t ndim = (int32_t)random_between(&random, 1, 3);
        struct boxes boxes = boxes_new((size_t)random_between(&random, 0, 9));
        for (size_t b = 0; b < boxes.count; b++) {
            random_box(&random, ndim, &boxes.storages[b]);
            boxes.items[b] = box_of(ndim, &boxes.storages[b]);
        }
        check_against_points(ndim, &boxes);
        boxes_free(&boxes);
    }
}

/* Cuts the whole into disjoint boxes at random, then perhaps damages one. */
static void random_partitions_agree_with_points(void **state)
{
    (void)state;
    struct random random = {13};
    for (int round = 0; round < 10000; round++) {
        int32_t ndim = (int32_t)random_between(&random, 1, 3);
        struct boxes boxes = boxes_new(24);
        boxes.count = 1;
        for (int32_t d = 0; d < ndim; d++) {
            boxes.storages[0].offsets[d] = 0;
            boxes.storages[0].sizes[d] = EDGE;
        }
        for (int64_t cuts = random_between(&random, 0, 20); cuts > 0; cuts--) {
            struct box_storage *box =
                &boxes.storages[random_between(&random, 0, (int64_t)boxes.count - 1)];
            int64_t d = random_between(&random, 0, ndim - 1);
            if (box->sizes[d] < 2)
                continue;
            int64_t low = random_between(&random, 1, box->sizes[d] - 1);
            boxes.storages[boxes.count] = *box;
            boxes.storages[boxes.count].offsets[d] += low;
            boxes.storages[boxes.count++].sizes[d] -= low;
            box->sizes[d] = low;
        }
        if (random_between(&random, 0, 1) == 0) {
            struct box_storage *box =
                &boxes.storages[random_between(&random, 0, (int64_t)boxes.count - 1)];
            int64_t d = random_between(&random, 0, ndim - 1);
            int64_t change = random_between(&random, -1, 1);
            if (box->offsets[d] + box->sizes[d] + change <= EDGE && box->sizes[d] + change >= 0)
                box->sizes[d] += change;
        }
        for (size_t b = 0; b < boxes.count; b++)
            boxes.items[b] = box_of(ndim, &boxes.storages[b]);
        check_against_points(ndim, &boxes);
        boxes_free(&boxes);
    }
}

static void boxes_without_dimensions(void **state)
{
    (void)state;
    const struct box boxes[2] = {{0, NULL, NULL}, {0, NULL, NULL}};
    bool found;
    size_t first;
    size_t second;
    struct box_storage hole;
    assert_int_equal(box_find_overlap(boxes, 1, &found, &first, &second), DCP_OK);
    assert_false(found);
    assert_int_equal(box_find_overlap(boxes, 2, &found, &first, &second), DCP_OK);
    assert_true(found);
    assert_int_equal(box_find_hole(boxes[0], boxes, 0, &found, &hole), DCP_OK);
    assert_true(found);
    assert_int_equal(box_find_hole(boxes[0], boxes, 1, &found, &hole), DCP_OK);
    assert_false(found);
}

/* Wanted boxes need not be the whole: holes outside of them do not matter. */
static void holes_are_looked_for_inside_the_wanted_box(void **state)
{
    (void)state;
    const int64_t offsets[2][2] = {{0, 0}, {4, 2}};
    const int64_t sizes[2][2] = {{4, 10}, {6, 4}};
    const struct box boxes[2] = {{2, offsets[0], sizes[0]}, {2, offsets[1], sizes[1]}};
    bool found;
    struct box_storage hole;
    const struct box covered = {2, (const int64_t[]){2, 2}, (const int64_t[]){6, 4}};
    assert_int_equal(box_find_hole(covered, boxes, 2, &found, &hole), DCP_OK);
    assert_false(found);
    const struct box partly = {2, (const int64_t[]){2, 1}, (const int64_t[]){3, 4}};
    assert_int_equal(box_find_hole(partly, boxes, 2, &found, &hole), DCP_OK);
    assert_true(found);
    assert_int_equal(hole.offsets[0], 4);
    assert_int_equal(hole.sizes[0], 1);
    assert_int_equal(hole.offsets[1], 1);
    assert_int_equal(hole.sizes[1], 1);
    const struct box empty = {2, (const int64_t[]){20, 20}, (const int64_t[]){0, 4}};
    assert_int_equal(box_find_hole(empty, boxes, 2, &found, &hole), DCP_OK);
    assert_false(found);
}

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

/* Asks about boxes of which none overlap and that cover the whole, and about the same without one.
 */
static void check_large(const struct boxes *boxes, struct box whole, double budget)
{
    bool found;
    size_t first;
    size_t second;
    struct box_storage hole;
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    assert_int_equal(box_find_overlap(boxes->items, boxes->count, &found, &first, &second), DCP_OK);
    assert_false(found);
    assert_int_equal(box_find_hole(whole, boxes->items, boxes->count, &found, &hole), DCP_OK);
    assert_false(found);
    if (seconds_since(&start) > budget)
        fail_msg("%zu boxes took %.1f s", boxes->count, seconds_since(&start));

    struct box left_out = boxes->items[boxes->count / 3];
    boxes->items[boxes->count / 3] = boxes->items[0];
    assert_int_equal(box_find_overlap(boxes->items, boxes->count, &found, &first, &second), DCP_OK);
    assert_true(found);
    assert_int_equal(first, 0);
    assert_int_equal(second, boxes->count / 3);
    assert_int_equal(box_find_hole(whole, boxes->items, boxes->count, &found, &hole), DCP_OK);
    assert_true(found);
    assert_true(box_equal(box_of(whole.ndim, &hole), left_out));
}

static void a_large_grid_is_fast(void **state)
{
    (void)state;
    enum { SIDE = 400 };
    struct boxes boxes = boxes_new((size_t)SIDE * SIDE);
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++) {
            /* in an order that is not the one of the grid */
            size_t at = (size_t)((i * SIDE + j) * 7919 % ((int64_t)SIDE * SIDE));
            boxes.storages[at] =
                (struct box_storage){.offsets = {i * 3, 0, j * 5}, .sizes = {3, 7, 5}};
            boxes.items[at] = box_of(3, &boxes.storages[at]);
        }
    const int64_t sizes[] = {SIDE * 3, 7, SIDE * 5};
    check_large(&boxes, (struct box){3, (const int64_t[]){0, 0, 0}, sizes}, 10);
    boxes_free(&boxes);
}

/* No cut separates these without going through others: pinwheels of four strips around a square. */
static void pinwheels_are_fast(void **state)
{
    (void)state;
    enum { SIDE = 150 };
    const int64_t wheel[5][4] = {
        {0, 0, 1, 2}, {0, 2, 2, 1}, {2, 1, 1, 2}, {1, 0, 2, 1}, {1, 1, 1, 1}};
    struct boxes boxes = boxes_new((size_t)5 * SIDE * SIDE);
    size_t at = 0;
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++)
            for (int k = 0; k < 5; k++, at++) {
                boxes.storages[at] =
                    (struct box_storage){.offsets = {3 * i + wheel[k][0], 3 * j + wheel[k][1]},
                                         .sizes = {wheel[k][2], wheel[k][3]}};
                boxes.items[at] = box_of(2, &boxes.storages[at]);
            }
    const int64_t sizes[] = {3 * SIDE, 3 * SIDE};
    check_large(&boxes, (struct box){2, (const int64_t[]){0, 0}, sizes}, 10);
    boxes_free(&boxes);
}

/* A hypercube's corners: as many dimensions as there are. */
static void many_dimensions_are_fast(void **state)
{
    (void)state;
    enum { DIMS = 14 };
    struct boxes boxes = boxes_new(1 << DIMS);
    for (size_t b = 0; b < boxes.count; b++) {
        for (int d = 0; d < DIMS; d++) {
            boxes.storages[b].offsets[d] = b >> d & 1 ? 3 : 0;
            boxes.storages[b].sizes[d] = b >> d & 1 ? 2 : 3;
        }
        boxes.items[b] = box_of(DIMS, &boxes.storages[b]);
    }
    int64_t zeros[DIMS] = {0};
    int64_t sizes[DIMS];
    for (int d = 0; d < DIMS; d++)
        sizes[d] = 5;
    check_large(&boxes, (struct box){DIMS, zeros, sizes}, 10);
    boxes_free(&boxes);
}

static void memory_failures_are_reported(void **state)
{
    (void)state;
    struct boxes boxes = boxes_new(100);
    for (size_t b = 0; b < boxes.count; b++) {
        boxes.storages[b] = (struct box_storage){.offsets = {(int64_t)b / 10 * 2, (int64_t)b % 10},
                                                 .sizes = {2, 1}};
        boxes.items[b] = box_of(2, &boxes.storages[b]);
    }
    const struct box whole = {2, (const int64_t[]){0, 0}, (const int64_t[]){21, 10}};
    for (long n = 1;; n++) {
        bool overlap;
        bool found = false;
        size_t first;
        size_t second;
        struct box_storage hole;
        failing_allocator_install(n, false);
        dcp_status status = box_find_overlap(boxes.items, boxes.count, &overlap, &first, &second);
        if (status == DCP_OK)
            status = box_find_hole(whole, boxes.items, boxes.count, &found, &hole);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            assert_false(overlap);
            assert_true(found);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    boxes_free(&boxes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_boxes_agree_with_points),
        cmocka_unit_test(random_partitions_agree_with_points),
        cmocka_unit_test(boxes_without_dimensions),
        cmocka_unit_test(holes_are_looked_for_inside_the_wanted_box),
        cmocka_unit_test(a_large_grid_is_fast),
        cmocka_unit_test(pinwheels_are_fast),
        cmocka_unit_test(many_dimensions_are_fast),
        cmocka_unit_test(memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
