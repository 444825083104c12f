/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "state/flatten_key.h"

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

static dcp_state *text(struct state_pool *pool, dcp_kind kind, const char *bytes)
{
    return node_text(pool, kind, bytes, strlen(bytes));
}

static dcp_state *number(struct state_pool *pool, double value)
{
    dcp_state *node = node_new(pool, DCP_KIND_FLOAT);
    node->as.number = value;
    return node;
}

static dcp_state *complex_number(struct state_pool *pool, double real, double imaginary)
{
    dcp_state *node = node_new(pool, DCP_KIND_COMPLEX);
    node->as.complex.real = real;
    node->as.complex.imaginary = imaginary;
    return node;
}

static dcp_state *truth(struct state_pool *pool, bool value)
{
    dcp_state *node = node_new(pool, DCP_KIND_BOOL);
    node->as.boolean = value;
    return node;
}

static dcp_state *tuple(struct state_pool *pool, dcp_state *first, dcp_state *second)
{
    dcp_state *node = node_new(pool, DCP_KIND_TUPLE);
    if (first)
        node_append(pool, node, NULL, first);
    if (second)
        node_append(pool, node, NULL, second);
    return node;
}

static void expect_key(const dcp_state *key, const char *expected)
{
    struct buffer out;
    buffer_init(&out, 0);
    assert_int_equal(key_append(&out, key), DCP_OK);
    buffer_append_u8(&out, 0);
    assert_string_equal((const char *)out.data, expected);
    buffer_free(&out);
}

/* What Python's str() prints. */
static void plain_keys(void **state)
{
    struct state_pool *pool = pool_of(state);
    expect_key(text(pool, DCP_KIND_STRING, "a.b 'c'\n"), "a.b 'c'\n");
    expect_key(node_int(pool, 0), "0");
    expect_key(node_int(pool, -17), "-17");
    expect_key(node_digits(pool, "99999999999999999999"), "99999999999999999999");
    expect_key(truth(pool, true), "True");
    expect_key(truth(pool, false), "False");
    expect_key(node_new(pool, DCP_KIND_NONE), "None");
    expect_key(number(pool, 1), "1.0");
    expect_key(number(pool, 1e-7), "1e-07");
    expect_key(number(pool, (double)INFINITY), "inf");
    expect_key(complex_number(pool, 1, -2), "(1-2j)");
    expect_key(complex_number(pool, 0, 2.5), "2.5j");
    expect_key(complex_number(pool, -0.0, 1), "(-0+1j)");
    expect_key(text(pool, DCP_KIND_BYTES, "a'\\\n\x01\xff"), "b\"a'\\\\\\n\\x01\\xff\"");
    expect_key(text(pool, DCP_KIND_DEVICE, "cuda:1"), "cuda:1");
    dcp_state *dtype = node_new(pool, DCP_KIND_DTYPE);
    dtype->as.dtype = DCP_F32;
    expect_key(dtype, "torch.float32");
}

static void tuples(void **state)
{
    struct state_pool *pool = pool_of(state);
    dcp_state *one = node_int(pool, 1);
    expect_key(tuple(pool, NULL, NULL), "()");
    expect_key(tuple(pool, one, NULL), "(1,)");
    expect_key(tuple(pool, one, node_int(pool, 2)), "(1, 2)");
    expect_key(tuple(pool, tuple(pool, one, NULL), tuple(pool, NULL, NULL)), "((1,), ())");
    expect_key(tuple(pool, text(pool, DCP_KIND_STRING, "a"), text(pool, DCP_KIND_STRING, "it's")),
               "('a', \"it's\")");
    expect_key(tuple(pool, text(pool, DCP_KIND_STRING, "'\""),
                     text(pool, DCP_KIND_STRING, "\t\r\x7f\xc3\xa9")),
               "('\\'\"', '\\t\\r\\x7f\xc3\xa9')");
    expect_key(tuple(pool, node_text(pool, DCP_KIND_STRING, "\0", 1), NULL), "('\\x00',)");
}

static void keys_without_a_text_are_refused(void **state)
{
    struct state_pool *pool = pool_of(state);
    struct buffer out;
    buffer_init(&out, 0);
    assert_int_equal(key_append(&out, text(pool, DCP_KIND_OPAQUE, "a.b")), DCP_ERR_UNSUPPORTED);
    assert_int_equal(key_append(&out, node_new(pool, DCP_KIND_FROZENSET)), DCP_ERR_UNSUPPORTED);
    assert_int_equal(key_append(&out, tuple(pool, node_new(pool, DCP_KIND_LIST), NULL)),
                     DCP_ERR_UNSUPPORTED);
    dcp_state *nested = tuple(pool, NULL, NULL);
    for (int i = 1; i < 16; i++)
        nested = tuple(pool, nested, NULL);
    assert_int_equal(key_append(&out, nested), DCP_OK);
    assert_int_equal(key_append(&out, tuple(pool, nested, NULL)), DCP_ERR_UNSUPPORTED);
    node_append(pool, nested, NULL, nested);
    assert_int_equal(key_append(&out, nested), DCP_ERR_UNSUPPORTED);
    buffer_free(&out);
}

static void memory_failures_are_reported(void **state)
{
    struct state_pool *pool = pool_of(state);
    dcp_state *key =
        tuple(pool, text(pool, DCP_KIND_STRING, "a rather long name of something"),
              text(pool, DCP_KIND_STRING, "and another one after it, so that it grows"));
    for (long n = 1;; n++) {
        struct buffer out;
        buffer_init(&out, 0);
        failing_allocator_install(n, false);
        dcp_status status = key_append(&out, key);
        buffer_free(&out);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, root_new, root_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(plain_keys),
        TEST(tuples),
        TEST(keys_without_a_text_are_refused),
        TEST(memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
