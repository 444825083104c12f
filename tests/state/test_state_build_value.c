/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/state.h"
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

/* That a building call failed, why, and that its tree knows. A tree for each, as failures stick. */
#define REFUSED(call, expected, words)                                                             \
    do {                                                                                           \
        dcp_state *root = dcp_state_new();                                                         \
        assert_int_equal(call, expected);                                                          \
        if (!strstr(dcp_error_message(), words))                                                   \
            fail_msg("\"%s\" lacks \"%s\"", dcp_error_message(), words);                           \
        assert_int_equal(dcp_state_status(root), expected);                                        \
        assert_int_equal(dcp_state_count(root), 0);                                                \
        dcp_state_free(root);                                                                      \
    } while (0)

static void values_are_kept(void **state)
{
    dcp_state *root = *state, *ordered = dcp_state_ordered_dict(root, "ordered");
    const int64_t sizes[] = {2, 0, INT64_MAX};
    const char *text;
    const void *bytes;
    double real, imaginary;
    size_t length;
    dcp_dtype dtype;
    int64_t number;
    assert_int_equal(dcp_state_complex(ordered, "complex", 1.5, -0.0), DCP_OK);
    assert_int_equal(dcp_state_bytearray(ordered, "bytearray", "a\0b", 3), DCP_OK);
    assert_int_equal(dcp_state_bytearray(ordered, "empty", NULL, 0), DCP_OK);
    assert_int_equal(dcp_state_dtype(ordered, "dtype", DCP_BF16), DCP_OK);
    assert_int_equal(dcp_state_device(ordered, "device", "cuda:1"), DCP_OK);
    assert_int_equal(dcp_state_size(ordered, "size", sizes, 3), DCP_OK);
    assert_int_equal(dcp_state_size(ordered, "no size", NULL, 0), DCP_OK);
    assert_int_equal(dcp_state_status(root), DCP_OK);
    assert_int_equal(dcp_state_kind(ordered), DCP_KIND_ORDERED_DICT);

    const dcp_state *complex_node = dcp_state_find(ordered, "complex");
    assert_int_equal(dcp_state_as_complex(complex_node, &real, &imaginary), DCP_OK);
    assert_true(real == 1.5 && imaginary == 0 && signbit(imaginary));
    const dcp_state *bytearray = dcp_state_find(ordered, "bytearray");
    assert_int_equal(dcp_state_kind(bytearray), DCP_KIND_BYTEARRAY);
    assert_int_equal(dcp_state_as_bytes(bytearray, &bytes, &length), DCP_OK);
    assert_int_equal(length, 3);
    assert_memory_equal(bytes, "a\0b", 3);
    assert_int_equal(dcp_state_as_dtype(dcp_state_find(ordered, "dtype"), &dtype), DCP_OK);
    assert_int_equal(dtype, DCP_BF16);
    assert_int_equal(dcp_state_as_text(dcp_state_find(ordered, "device"), &text, NULL), DCP_OK);
    assert_string_equal(text, "cuda:1");
    const dcp_state *size = dcp_state_find(ordered, "size");
    assert_int_equal(dcp_state_kind(size), DCP_KIND_SIZE);
    assert_int_equal(dcp_state_count(size), 3);
    assert_int_equal(dcp_state_as_int(dcp_state_at(size, 2), &number), DCP_OK);
    assert_int_equal(number, INT64_MAX);
    assert_int_equal(dcp_state_count(dcp_state_find(ordered, "no size")), 0);
}

static void ints_have_any_size(void **state)
{
    static const char *const texts[] = {
        "0",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890",
    };
    dcp_state *list = dcp_state_list(*state, "list");
    int64_t number;
    uint64_t large;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(dcp_state_digits(list, NULL, texts[i]), DCP_OK);
        assert_string_equal(dcp_state_int_digits(dcp_state_at(list, i)), texts[i]);
    }
    assert_int_equal(dcp_state_as_int(dcp_state_at(list, 3), &number), DCP_OK);
    assert_true(number == INT64_MIN);
    assert_int_equal(dcp_state_as_uint(dcp_state_at(list, 4), &large), DCP_OK);
    assert_true(large == UINT64_MAX);
    assert_int_equal(dcp_state_as_uint(dcp_state_at(list, 5), &large), DCP_ERR_KIND);
}

static void values_are_checked(void **state)
{
    static const char *const wrong_ints[] = {"",   "-",    "+1",  "1.0", " 1",
                                             "1 ", "0x10", "007", "-00"};
    static const char *const wrong_devices[] = {"",       ":0",     "cuda:",   "cuda:01",
                                                "cuda:x", "CUDA:0", "cuda:-1", "cuda:1000"};
    const int64_t sizes[] = {2, -1};
    (void)state;
    for (size_t i = 0; i < sizeof wrong_ints / sizeof *wrong_ints; i++)
        REFUSED(dcp_state_digits(root, "key", wrong_ints[i]), DCP_ERR_ARGUMENT, wrong_ints[i]);
    for (size_t i = 0; i < sizeof wrong_devices / sizeof *wrong_devices; i++)
        REFUSED(dcp_state_device(root, "key", wrong_devices[i]), DCP_ERR_ARGUMENT,
                "is not a device");
    REFUSED(dcp_state_digits(root, "key", NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_device(root, "key", NULL), DCP_ERR_ARGUMENT, "is not a device");
    REFUSED(dcp_state_bytearray(root, "key", NULL, 1), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_dtype(root, "key", (dcp_dtype)9999), DCP_ERR_ARGUMENT, "9999");
    REFUSED(dcp_state_dtype(root, "key", (dcp_dtype)5), DCP_ERR_ARGUMENT, "the value 5");
    REFUSED(dcp_state_size(root, "key", NULL, 1), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_size(root, "key", sizes, 2), DCP_ERR_ARGUMENT, "size 1 for \"key\" is -1");
    REFUSED(dcp_state_complex(root, NULL, 1, 2), DCP_ERR_ARGUMENT, "needs a key");
    assert_int_equal(dcp_state_complex(NULL, "key", 1, 2), DCP_ERR_ARGUMENT);
}

static void nothing_is_added_to_a_size(void **state)
{
    dcp_state *root = *state;
    assert_int_equal(dcp_state_size(root, "size", NULL, 0), DCP_OK);
    assert_int_equal(dcp_state_int(dcp_state_find(root, "size"), NULL, 1), DCP_ERR_ARGUMENT);
}

static dcp_status build_everything(dcp_state *root)
{
    const int64_t sizes[] = {1, 2, 3, 4, 5};
    char large[4096] = {0};
    dcp_state_bytearray(dcp_state_ordered_dict(root, "ordered"), "bytes", large, sizeof large);
    dcp_state_size(root, "size", sizes, 5);
    dcp_state_digits(root, "digits", "123456789012345678901234567890");
    dcp_state *tuple = dcp_state_tuple(root, "tuple");
    for (int i = 0; i < 100; i++)
        dcp_state_complex(tuple, NULL, 1, 2);
    dcp_state_dtype(root, "dtype", DCP_F32);
    dcp_state_device(root, "device", "cpu");
    return dcp_state_status(root);
}

static void memory_failures_stick(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_state *root = dcp_state_new();
        dcp_status status = root ? build_everything(root) : DCP_ERR_NO_MEMORY;
        dcp_state_free(root);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

/* A pair whose key is a node of any kind, as loads make it. */
static dcp_state *add_pair(dcp_state *dict, dcp_state *key, int64_t value)
{
    dcp_state *node = node_int(dict->pool, value);
    assert_int_equal(node_append(dict->pool, dict, key, node), DCP_OK);
    return node;
}

static void ints_are_found(void **state)
{
    dcp_state *dict = *state;
    struct state_pool *pool = dict->pool;
    dcp_state *number = node_new(pool, DCP_KIND_FLOAT), *truth = node_new(pool, DCP_KIND_BOOL);
    dcp_state *infinity = node_new(pool, DCP_KIND_FLOAT), *half = node_new(pool, DCP_KIND_FLOAT);
    number->as.number = -3.0;
    infinity->as.number = (double)INFINITY;
    half->as.number = 7.5;
    truth->as.boolean = true;
    add_pair(dict, node_text(pool, DCP_KIND_STRING, "7", 1), 0);
    add_pair(dict, node_uint(pool, UINT64_MAX), 1);
    add_pair(dict, node_digits(pool, "18446744073709551623"), 2);
    add_pair(dict, infinity, 3);
    add_pair(dict, half, 4);
    assert_null(dcp_state_find_int(dict, 7));
    assert_null(dcp_state_find_int(dict, -1));
    assert_ptr_equal(dcp_state_find_int(dict, -3), NULL);
    dcp_state *seven = add_pair(dict, node_int(pool, 7), 5);
    dcp_state *three = add_pair(dict, number, 6), *one = add_pair(dict, truth, 7);
    for (int64_t i = 100; i < 120; i++)
        add_pair(dict, node_int(pool, i), i);
    assert_ptr_equal(dcp_state_find_int(dict, 7), seven);
    assert_ptr_equal(dcp_state_find_int(dict, -3), three);
    assert_ptr_equal(dcp_state_find_int(dict, 1), one);
    assert_non_null(dcp_state_find_int(dict, 119));
    assert_null(dcp_state_find_int(dict, 120));
    assert_null(dcp_state_find_int(NULL, 1));
    assert_null(dcp_state_find_int(seven, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, root_new, root_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(values_are_kept),
        TEST(ints_have_any_size),
        TEST(values_are_checked),
        TEST(nothing_is_added_to_a_size),
        cmocka_unit_test(memory_failures_stick),
        TEST(ints_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
