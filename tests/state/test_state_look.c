/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "state/node.h"

static int root_new(void **state)
{
    dcp_state *root = dcp_state_new();
    dcp_state_none(root, "none");
    dcp_state_bool(root, "bool", true);
    dcp_state_int(root, "int", -7);
    dcp_state_string(root, "string", "text");
    dcp_state_list(root, "list");
    dcp_state_none(dcp_state_find(root, "list"), NULL);
    *state = root;
    return 0;
}

static int root_free(void **state)
{
    dcp_state_free(*state);
    return 0;
}

static void children_are_found_by_position_and_key(void **state)
{
    const dcp_state *root = *state;
    const char *key;
    assert_int_equal(dcp_state_count(root), 5);
    assert_ptr_equal(dcp_state_at(root, 2), dcp_state_find(root, "int"));
    assert_int_equal(dcp_state_as_text(dcp_state_key_at(root, 2), &key, NULL), DCP_OK);
    assert_string_equal(key, "int");
    assert_null(dcp_state_at(root, 5));
    assert_null(dcp_state_key_at(root, 5));
    assert_null(dcp_state_find(root, "in"));
    assert_null(dcp_state_key_at(dcp_state_find(root, "list"), 0));
    assert_non_null(dcp_state_at(dcp_state_find(root, "list"), 0));
}

static void leaves_and_null_have_no_children(void **state)
{
    const dcp_state *leaf = dcp_state_find(*state, "int");
    assert_int_equal(dcp_state_count(leaf), 0);
    assert_null(dcp_state_at(leaf, 0));
    assert_null(dcp_state_key_at(leaf, 0));
    assert_null(dcp_state_find(leaf, "a"));
    assert_null(dcp_state_find(dcp_state_find(*state, "list"), "a"));
    assert_null(dcp_state_find(*state, NULL));
    assert_int_equal(dcp_state_kind(NULL), DCP_KIND_NONE);
    assert_int_equal(dcp_state_count(NULL), 0);
    assert_null(dcp_state_at(NULL, 0));
    assert_null(dcp_state_key_at(NULL, 0));
    assert_null(dcp_state_find(NULL, "a"));
    assert_int_equal(dcp_state_chunk_count(NULL), 0);
    assert_int_equal(dcp_state_chunk_count(leaf), 0);
    assert_null(dcp_state_int_digits(NULL));
    assert_null(dcp_state_int_digits(*state));
    assert_null(dcp_state_opaque_name(NULL));
}

static void reading_the_wrong_kind_is_refused(void **state)
{
    const dcp_state *none = dcp_state_find(*state, "none");
    bool truth;
    int64_t integer;
    uint64_t natural;
    double real;
    double imaginary;
    const char *text;
    const void *bytes;
    size_t length;
    dcp_dtype dtype;
    dcp_tensor tensor;
    assert_int_equal(dcp_state_as_bool(none, &truth), DCP_ERR_KIND);
    assert_string_equal(dcp_error_message(), "expected bool, found None");
    assert_int_equal(dcp_state_as_int(none, &integer), DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_uint(none, &natural), DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_float(none, &real), DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_complex(none, &real, &imaginary), DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_text(none, &text, &length), DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_bytes(none, &bytes, &length), DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_dtype(none, &dtype), DCP_ERR_KIND);
    assert_int_equal(dcp_state_chunk(none, 0, &tensor), DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_bool(NULL, &truth), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_as_text(NULL, &text, NULL), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_as_bytes(NULL, &bytes, &length), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_as_bool(dcp_state_find(*state, "bool"), NULL), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_as_text(dcp_state_find(*state, "string"), NULL, NULL),
                     DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_as_float(dcp_state_find(*state, "int"), NULL), DCP_ERR_ARGUMENT);
}

static void ints_are_read_as_what_they_fit(void **state)
{
    struct state_pool *pool = &((dcp_state *)*state)->root->own;
    int64_t integer;
    uint64_t natural;
    assert_int_equal(dcp_state_as_uint(node_int(pool, -1), &natural), DCP_ERR_KIND);
    assert_string_equal(dcp_error_message(), "the int -1 does not fit uint64_t");
    assert_int_equal(dcp_state_as_int(node_uint(pool, UINT64_MAX), &integer), DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_int(node_uint(pool, 5), &integer), DCP_OK);
    assert_int_equal(integer, 5);
}

static void ints_are_read_as_floats_if_that_is_exact(void **state)
{
    struct state_pool *pool = &((dcp_state *)*state)->root->own;
    double value;
    const int64_t exact[] = {0, -1, INT64_C(1) << 53, INT64_MIN, (INT64_C(1) << 53) * 512 + 1024};
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        assert_int_equal(dcp_state_as_float(node_int(pool, exact[i]), &value), DCP_OK);
        assert_true((int64_t)value == exact[i]);
    }
    assert_int_equal(dcp_state_as_float(node_int(pool, (INT64_C(1) << 53) + 1), &value),
                     DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_float(node_int(pool, INT64_MAX), &value), DCP_ERR_KIND);
    assert_int_equal(dcp_state_as_float(node_uint(pool, UINT64_C(1) << 63), &value), DCP_OK);
    assert_true(value == 9223372036854775808.0);
    assert_int_equal(dcp_state_as_float(node_digits(pool, "18446744073709551616"), &value),
                     DCP_ERR_KIND);
}

static void other_leaves_are_read(void **state)
{
    struct state_pool *pool = &((dcp_state *)*state)->root->own;
    dcp_state *complex = node_new(pool, DCP_KIND_COMPLEX);
    complex->as.complex.real = 1.5;
    complex->as.complex.imaginary = -2;
    dcp_state *dtype = node_new(pool, DCP_KIND_DTYPE);
    dtype->as.dtype = DCP_BF16;
    double real;
    double imaginary;
    dcp_dtype found;
    const char *text;
    assert_int_equal(dcp_state_as_complex(complex, &real, &imaginary), DCP_OK);
    assert_true(real == 1.5 && imaginary == -2);
    assert_int_equal(dcp_state_as_complex(complex, &real, NULL), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_as_dtype(dtype, &found), DCP_OK);
    assert_int_equal(found, DCP_BF16);
    assert_int_equal(dcp_state_as_text(node_text(pool, DCP_KIND_DEVICE, "cuda:1", 6), &text, NULL),
                     DCP_OK);
    assert_string_equal(text, "cuda:1");
    assert_int_equal(dcp_state_as_text(node_text(pool, DCP_KIND_DEVICE, "cpu", 3), NULL, NULL),
                     DCP_ERR_ARGUMENT);
    const void *bytes;
    assert_int_equal(dcp_state_as_bytes(node_text(pool, DCP_KIND_BYTEARRAY, "", 0), &bytes, NULL),
                     DCP_ERR_ARGUMENT);
}

static void digits_need_memory(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        dcp_state *root = dcp_state_new();
        for (int i = 0; i < 200; i++)
            node_int(&root->root->own, i);
        bool failed = false;
        failing_allocator_install(n, false);
        dcp_state *last = node_int(&root->root->own, 5);
        for (int i = 0; i < 2000 && last && !failed; i++) {
            last->as.integer.digits = NULL;
            failed = !dcp_state_int_digits(last);
        }
        failing_allocator_remove();
        dcp_state_free(root);
        if (failed) {
            assert_non_null(strstr(dcp_error_message(), "no memory"));
            break;
        }
        assert_true(n < 10);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, root_new, root_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(children_are_found_by_position_and_key),   TEST(leaves_and_null_have_no_children),
        TEST(reading_the_wrong_kind_is_refused),        TEST(ints_are_read_as_what_they_fit),
        TEST(ints_are_read_as_floats_if_that_is_exact), TEST(other_leaves_are_read),
        cmocka_unit_test(digits_need_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
