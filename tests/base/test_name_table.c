/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/name_table.h"
#include "fault/failing_allocator.h"

enum { NAMES = 5000 };
static char names[NAMES][32];

static int make_names(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++)
        snprintf(names[i], sizeof names[i], "layers.%d.weight", i);
    return 0;
}

static void names_are_found(void **state)
{
    (void)state;
    struct name_table table;
    name_table_init(&table);
    uint64_t value = 99;
    bool existing;
    assert_false(name_table_find(&table, "", 0, &value));
    for (uint64_t i = 0; i < NAMES; i++) {
        value = i * 3;
        assert_int_equal(name_table_add(&table, names[i], strlen(names[i]), &value, &existing),
                         DCP_OK);
        assert_false(existing);
    }
    assert_int_equal(table.count, NAMES);
    for (uint64_t i = 0; i < NAMES; i++) {
        char copy[32];
        memcpy(copy, names[i], sizeof copy);
        assert_true(name_table_find(&table, copy, strlen(copy), &value));
        assert_int_equal(value, i * 3);
        assert_false(name_table_find(&table, copy, strlen(copy) - 1, &value));
    }
    value = 12345;
    assert_int_equal(name_table_add(&table, names[7], strlen(names[7]), &value, &existing), DCP_OK);
    assert_true(existing);
    assert_int_equal(value, 21);
    assert_int_equal(table.count, NAMES);
    name_table_free(&table);
    assert_false(name_table_find(&table, names[7], strlen(names[7]), &value));
}

static void names_are_bytes(void **state)
{
    (void)state;
    struct name_table table;
    name_table_init(&table);
    uint64_t value = 1;
    bool existing;
    assert_int_equal(name_table_add(&table, "a\0b", 3, &value, &existing), DCP_OK);
    value = 2;
    assert_int_equal(name_table_add(&table, "a\0c", 3, &value, &existing), DCP_OK);
    assert_false(existing);
    value = 3;
    assert_int_equal(name_table_add(&table, "", 0, &value, &existing), DCP_OK);
    assert_false(existing);
    assert_true(name_table_find(&table, "a\0b", 3, &value));
    assert_int_equal(value, 1);
    assert_true(name_table_find(&table, "", 0, &value));
    assert_int_equal(value, 3);
    name_table_free(&table);
}

/* Their places in the index are neighbours. */
static void names_that_differ_at_the_end_are_distinguished(void **state)
{
    (void)state;
    static char siblings[64][256][3];
    struct name_table table;
    uint64_t value;
    bool existing;
    name_table_init(&table);
    for (int first = 0; first < 64; first++) {
        for (int last = 0; last < 256; last++) {
            char *name = siblings[first][last];
            memcpy(name, (char[]){(char)first, 'x', (char)last}, 3);
            value = (uint64_t)(first * 256 + last);
            assert_int_equal(name_table_add(&table, name, 3, &value, &existing), DCP_OK);
            assert_false(existing);
            assert_int_equal(name_table_find(&table, name, 2, &value), false);
        }
    }
    for (int i = 0; i < 64 * 256; i++) {
        char name[3];
        memcpy(name, siblings[i / 256][i % 256], 3);
        assert_true(name_table_find(&table, name, 3, &value));
        assert_int_equal(value, i);
    }
    name_table_free(&table);
}

static void a_failed_add_loses_nothing(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        struct name_table table;
        name_table_init(&table);
        uint64_t failures = 0, missed = 0;
        for (uint64_t i = 0; i < NAMES; i++) {
            uint64_t value = i;
            bool existing;
            if (name_table_add(&table, names[i], strlen(names[i]), &value, &existing) != DCP_OK) {
                failures++;
                missed = i;
            }
        }
        for (uint64_t i = 0; i < NAMES; i++) {
            uint64_t value = 0;
            bool found = name_table_find(&table, names[i], strlen(names[i]), &value);
            assert_int_equal(found, failures == 0 || i != missed);
            assert_true(!found || value == i);
        }
        bool reached = failing_allocator_reached();
        assert_int_equal(failures, reached);
        name_table_free(&table);
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(names_are_bytes),
        cmocka_unit_test(names_that_differ_at_the_end_are_distinguished),
        cmocka_unit_test(a_failed_add_loses_nothing),
    };
    return cmocka_run_group_tests(tests, make_names, NULL);
}
