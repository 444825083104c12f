/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "plan/load/load_intersect.h"
#include "samples.h"

enum { ROWS = 64, COLUMNS = 32, PIECES = ROWS * COLUMNS };

static struct metadata_piece pieces[PIECES];
static int64_t numbers[PIECES][4];
static const struct metadata_entry grid = {.name = "grid",
                                           .is_tensor = true,
                                           .dtype = DCP_F32,
                                           .ndim = 2,
                                           .global_shape = (const int64_t[]){ROWS * 5, COLUMNS * 7},
                                           .pieces = pieces,
                                           .piece_count = PIECES};

/* A grid of pieces of 5 x 7, in no order, some of them empty. */
static int make_grid(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (size_t i = 0; i < PIECES; i++) {
        numbers[i][0] = (int64_t)(i / COLUMNS) * 5;
        numbers[i][1] = (int64_t)(i % COLUMNS) * 7;
        numbers[i][2] = i % 50 != 0 ? 5 : 0;
        numbers[i][3] = 7;
        pieces[i].offsets = numbers[i];
        pieces[i].sizes = numbers[i] + 2;
    }
    for (size_t i = PIECES - 1; i > 0; i--) {
        size_t other = random_below(&seed, i + 1);
        struct metadata_piece kept = pieces[i];
        pieces[i] = pieces[other];
        pieces[other] = kept;
    }
    return 0;
}

/* How many pieces touch a box, by the index and by looking at all; *looked counts what the index
 * did not exclude. */
static void compare(const struct piece_index *index, struct box box, size_t *looked)
{
    struct box_storage common;
    size_t first, end, found = 0, expected = 0;
    piece_index_find(index, box, &first, &end);
    *looked += end - first;
    for (; first < end; first++)
        found += box_intersect(box, piece_box(&grid, piece_index_at(index, first)), &common);
    for (uint32_t i = 0; i < PIECES; i++)
        expected += box_intersect(box, piece_box(&grid, i), &common);
    assert_int_equal(found, expected);
}

static void an_index_finds_what_a_scan_finds(void **state)
{
    (void)state;
    uint64_t seed = 2;
    struct piece_index index;
    size_t looked = 0;
    assert_int_equal(piece_index_init(&index, &grid, 1000), DCP_OK);
    assert_non_null(index.order);
    assert_int_equal(index.dim, 0);
    for (int i = 0; i < 1000; i++) {
        int64_t top = (int64_t)random_below(&seed, ROWS * 5);
        int64_t left = (int64_t)random_below(&seed, COLUMNS * 7);
        int64_t height = (int64_t)random_below(&seed, 12), width = (int64_t)random_below(&seed, 12);
        if (height > ROWS * 5 - top)
            height = ROWS * 5 - top;
        if (width > COLUMNS * 7 - left)
            width = COLUMNS * 7 - left;
        compare(&index, BOX(2, DIMS(top, left), DIMS(height, width)), &looked);
    }
    assert_true(looked < 1000 * 5 * COLUMNS);
    looked = 0;
    compare(&index, BOX(2, DIMS(0, 0), DIMS(ROWS * 5, COLUMNS * 7)), &looked);
    piece_index_free(&index);
}

/* Pieces that begin behind a large one do not hide it. */
static void a_large_piece_in_front_of_small_ones_is_found(void **state)
{
    enum { SMALL = 4096, FAR = 3000 };
    static int64_t places[SMALL + 1][2];
    static struct metadata_piece many[SMALL + 1];
    const struct metadata_entry entry = {.name = "uneven",
                                         .is_tensor = true,
                                         .dtype = DCP_F32,
                                         .ndim = 1,
                                         .global_shape = (const int64_t[]){SMALL},
                                         .pieces = many,
                                         .piece_count = SMALL + 1};
    struct piece_index index;
    bool found = false;
    (void)state;
    for (int64_t i = 0; i <= SMALL; i++) {
        places[i][0] = i == 0 ? 0 : i - 1;
        places[i][1] = i == 0 ? SMALL : 1;
        many[i].offsets = &places[i][0];
        many[i].sizes = &places[i][1];
    }
    assert_int_equal(piece_index_init(&index, &entry, 1000), DCP_OK);
    size_t first, end;
    piece_index_find(&index, BOX(1, DIMS(FAR), DIMS(1)), &first, &end);
    for (; first < end; first++)
        found = found || piece_index_at(&index, first) == 0;
    assert_true(found);
    piece_index_free(&index);
}

static void few_lookups_need_no_sorting(void **state)
{
    (void)state;
    struct piece_index index;
    size_t looked = 0;
    assert_int_equal(piece_index_init(&index, &grid, 1), DCP_OK);
    assert_null(index.order);
    compare(&index, BOX(2, DIMS(3, 3), DIMS(9, 9)), &looked);
    assert_int_equal(looked, PIECES);
    piece_index_free(&index);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    for (long n = 1; n <= 2; n++) {
        struct piece_index index;
        failing_allocator_install(n, false);
        assert_int_equal(piece_index_init(&index, &grid, 1000), DCP_ERR_NO_MEMORY);
        assert_int_equal(failing_allocator_remove(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_finds_what_a_scan_finds),
        cmocka_unit_test(a_large_piece_in_front_of_small_ones_is_found),
        cmocka_unit_test(few_lookups_need_no_sorting),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, make_grid, NULL);
}
