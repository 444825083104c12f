/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "fault/failing_allocator.h"
#include "state/node.h"

static int root_new(void **state)
{
    *state = dcp_state_new();
    return *state ? 0 : -1;
}

static int root_free(void **state)
{
    dcp_state_free(*state);
    return 0;
}

static struct state_pool *pool_of(void **state)
{
    return &((dcp_state *)*state)->root->own;
}

static dcp_state *string(struct state_pool *pool, const char *text)
{
    return node_text(pool, DCP_KIND_STRING, text, strlen(text));
}

static void ints_have_any_size(void **state)
{
    static const struct {
        const char *digits;
        bool is_int, is_uint;
        int64_t as_int;
        uint64_t as_uint;
    } ints[] = {
        {"0", true, true, 0, 0},
        {"-1", true, false, -1, 0},
        {"9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"-9223372036854775808", true, false, INT64_MIN, 0},
        {"9223372036854775808", false, true, 0, (uint64_t)INT64_MAX + 1},
        {"18446744073709551615", false, true, 0, UINT64_MAX},
        {"18446744073709551616", false, false, 0, 0},
        {"-9223372036854775809", false, false, 0, 0},
        {"123456789012345678901234567890123456789012345678901234567890", false, false, 0, 0},
    };
    struct state_pool *pool = pool_of(state);
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        int64_t as_int;
        uint64_t as_uint;
        dcp_state *node = node_digits(pool, ints[i].digits);
        assert_non_null(node);
        assert_string_equal(dcp_state_int_digits(node), ints[i].digits);
        assert_ptr_equal(dcp_state_int_digits(node), dcp_state_int_digits(node));
        assert_int_equal(dcp_state_as_int(node, &as_int) == DCP_OK, ints[i].is_int);
        assert_int_equal(dcp_state_as_uint(node, &as_uint) == DCP_OK, ints[i].is_uint);
        if (ints[i].is_int)
            assert_int_equal(as_int, ints[i].as_int);
        if (ints[i].is_uint)
            assert_int_equal(as_uint, ints[i].as_uint);
    }
    assert_null(node_digits(pool, ""));
    assert_null(node_digits(pool, "-"));
    assert_null(node_digits(pool, "12a"));
    assert_string_equal(dcp_state_int_digits(node_int(pool, INT64_MIN)), "-9223372036854775808");
    assert_string_equal(dcp_state_int_digits(node_uint(pool, UINT64_MAX)), "18446744073709551615");
}

static void texts_are_copied_and_may_contain_nul(void **state)
{
    char bytes[] = {'a', 0, 'b'};
    size_t length;
    const char *text;
    const void *data;
    dcp_state *node = node_text(pool_of(state), DCP_KIND_STRING, bytes, 3);
    dcp_state *binary = node_text(pool_of(state), DCP_KIND_BYTEARRAY, bytes, 3);
    bytes[0] = 'x';
    assert_int_equal(dcp_state_as_text(node, &text, &length), DCP_OK);
    assert_int_equal(length, 3);
    assert_memory_equal(text, "a\0b", 4);
    assert_int_equal(dcp_state_as_bytes(binary, &data, &length), DCP_OK);
    assert_memory_equal(data, "a\0b", 4);
}

static void equal_keys_are_replaced(void **state)
{
    struct state_pool *pool = pool_of(state);
    dcp_state *dict = node_new(pool, DCP_KIND_ORDERED_DICT);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 12; i++) {
            char key[8];
            snprintf(key, sizeof key, "k%d", i);
            assert_int_equal(node_append(pool, dict, string(pool, key), node_int(pool, i + round)),
                             DCP_OK);
        }
    assert_int_equal(dcp_state_count(dict), 12);
    int64_t value;
    assert_int_equal(dcp_state_as_int(dcp_state_find(dict, "k11"), &value), DCP_OK);
    assert_int_equal(value, 12);
    for (int round = 0; round < 2; round++)
        assert_int_equal(node_append(pool, dict, node_int(pool, 7), node_int(pool, round)), DCP_OK);
    assert_int_equal(dcp_state_count(dict), 13);
    assert_int_equal(dcp_state_kind(dcp_state_key_at(dict, 12)), DCP_KIND_INT);
    assert_int_equal(dcp_state_as_int(dcp_state_find_int(dict, 7), &value), DCP_OK);
    assert_int_equal(value, 1);
    /* that of a tuple may not be known yet */
    for (int round = 0; round < 2; round++)
        assert_int_equal(
            node_append(pool, dict, node_new(pool, DCP_KIND_TUPLE), node_int(pool, round)), DCP_OK);
    assert_int_equal(dcp_state_count(dict), 15);
    assert_null(dcp_state_find(dict, "7"));
    assert_non_null(dcp_state_find(dict, "k0"));
}

static void large_dicts_are_found_in_fast(void **state)
{
    enum { KEYS = 100000 };
    struct state_pool *pool = pool_of(state);
    dcp_state *dict = *state;
    char key[32];
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "layers.%d", i);
        assert_int_equal(dcp_state_int(dict, key, i), DCP_OK);
    }
    for (int i = 0; i < KEYS; i++) {
        int64_t value;
        snprintf(key, sizeof key, "layers.%d", i);
        assert_int_equal(dcp_state_as_int(dcp_state_find(dict, key), &value), DCP_OK);
        assert_int_equal(value, i);
    }
    assert_null(dcp_state_find(dict, "layers"));
    assert_int_equal(node_append(pool, dict, string(pool, "layers.5"), node_int(pool, -1)), DCP_OK);
    assert_int_equal(dcp_state_count(dict), KEYS);
}

static void opaque_nodes_have_children(void **state)
{
    struct state_pool *pool = pool_of(state);
    dcp_state *node = node_text(pool, DCP_KIND_OPAQUE, "datetime.date", 13);
    assert_string_equal(dcp_state_opaque_name(node), "datetime.date");
    assert_int_equal(dcp_state_count(node), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(node_append(pool, node, NULL, node_int(pool, i)), DCP_OK);
    assert_int_equal(dcp_state_count(node), 20);
    assert_int_equal(dcp_state_kind(dcp_state_at(node, 19)), DCP_KIND_INT);
    assert_null(dcp_state_key_at(node, 0));
    assert_string_equal(dcp_state_opaque_name(node_new(pool, DCP_KIND_OPAQUE)), "");
    assert_null(dcp_state_opaque_name(node_int(pool, 1)));
}

static void every_kind_has_a_name(void **state)
{
    (void)state;
    static const dcp_kind kinds[] = {DCP_KIND_NONE,     DCP_KIND_BOOL,      DCP_KIND_INT,
                                     DCP_KIND_FLOAT,    DCP_KIND_COMPLEX,   DCP_KIND_STRING,
                                     DCP_KIND_BYTES,    DCP_KIND_BYTEARRAY, DCP_KIND_LIST,
                                     DCP_KIND_TUPLE,    DCP_KIND_DICT,      DCP_KIND_ORDERED_DICT,
                                     DCP_KIND_SET,      DCP_KIND_FROZENSET, DCP_KIND_TENSOR,
                                     DCP_KIND_STATEFUL, DCP_KIND_DTYPE,     DCP_KIND_SIZE,
                                     DCP_KIND_DEVICE,   DCP_KIND_OPAQUE,    DCP_KIND_PAIR};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(node_kind_name(kinds[i]), node_kind_name(kinds[j]));
    assert_string_equal(node_kind_name((dcp_kind)77), "node of an unknown kind");
}

static dcp_status make_everything(void)
{
    dcp_state *root = dcp_state_new();
    if (!root)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = DCP_ERR_NO_MEMORY;
    struct state_pool *pool = state_pool_new(root->root);
    dcp_state *dict = pool ? node_new(pool, DCP_KIND_DICT) : NULL;
    if (!dict)
        goto done;
    for (int i = 0; i < 200; i++) {
        char key[160];
        snprintf(key, sizeof key, "%0150d", i);
        dcp_state *name = string(pool, key);
        dcp_state *value = i % 3 ? node_digits(pool, "-99999999999999999999999")
                                 : node_text(pool, DCP_KIND_OPAQUE, "a.b", 3);
        if (!name || !value)
            goto done;
        status = node_append(pool, dict, name, value);
        if (status != DCP_OK)
            goto done;
        status = DCP_ERR_NO_MEMORY;
        if (!dcp_state_int_digits(node_int(pool, i)))
            goto done;
    }
    status = DCP_OK;
done:
    state_pool_free(pool);
    dcp_state_free(root);
    return status;
}

static void memory_failures_are_reported(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = make_everything();
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
        assert_non_null(strstr(dcp_error_message(), "no memory"));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, root_new, root_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ints_have_any_size),
        TEST(texts_are_copied_and_may_contain_nul),
        TEST(equal_keys_are_replaced),
        TEST(large_dicts_are_found_in_fast),
        TEST(opaque_nodes_have_children),
        TEST(every_kind_has_a_name),
        cmocka_unit_test(memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
