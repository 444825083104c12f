/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "format/metadata/piece_table.h"

static void distinguishes_entries_offsets_and_their_absence(void **state)
{
    (void)state;
    static const int64_t offsets[] = {0, 0, 1};
    static const struct piece_key keys[] = {{0, -1, NULL},   {0, 0, NULL},        {0, 1, offsets},
                                            {0, 2, offsets}, {0, 2, offsets + 1}, {1, -1, NULL},
                                            {1, 1, offsets}, {1, 1, offsets + 2}};
    enum { COUNT = sizeof keys / sizeof keys[0] };
    struct piece_table table;
    assert_int_equal(piece_table_init(&table, keys, COUNT), DCP_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(piece_table_find(&table, &keys[i]), PIECE_NOT_FOUND);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(piece_table_add(&table, i), i);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(piece_table_find(&table, &keys[i]), i);
    piece_table_free(&table);
}

static void gives_the_first_of_equal_keys(void **state)
{
    (void)state;
    static const int64_t here[] = {4, 5}, there[] = {4, 5};
    static const struct piece_key keys[] = {{7, 2, here}, {7, 2, there}};
    struct piece_table table;
    assert_int_equal(piece_table_init(&table, keys, 2), DCP_OK);
    assert_int_equal(piece_table_add(&table, 0), 0);
    assert_int_equal(piece_table_add(&table, 1), 0);
    assert_int_equal(piece_table_find(&table, &keys[1]), 0);
    piece_table_free(&table);
}

static void holds_many(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static int64_t offsets[COUNT];
    static struct piece_key keys[COUNT];
    struct piece_table table;
    for (int64_t i = 0; i < COUNT; i++) {
        offsets[i] = i << 20;
        keys[i] = (struct piece_key){(uint32_t)(i % 3), 1, &offsets[i]};
    }
    assert_int_equal(piece_table_init(&table, keys, COUNT), DCP_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(piece_table_add(&table, i), i);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(piece_table_find(&table, &keys[i]), i);
    piece_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distinguishes_entries_offsets_and_their_absence),
        cmocka_unit_test(gives_the_first_of_equal_keys),
        cmocka_unit_test(holds_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
