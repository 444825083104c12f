/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

static void expect_json(const dcp_state *node, const char *expected)
{
    char *text;
    assert_int_equal(dcp_state_to_json(node, 0, &text), DCP_OK);
    assert_string_equal(text, expected);
    dcp_text_free(text);
}

static dcp_state *string(struct state_pool *pool, const char *text)
{
    return node_text(pool, DCP_KIND_STRING, text, strlen(text));
}

static void plain_values_are_plain_json(void **state)
{
    dcp_state *root = *state;
    dcp_state *list = dcp_state_list(root, "list");
    dcp_state_dict(root, "empty");
    dcp_state_tuple(root, "tuple");
    dcp_state_none(list, NULL);
    dcp_state_bool(list, NULL, true);
    dcp_state_bool(list, NULL, false);
    dcp_state_int(list, NULL, INT64_MIN);
    dcp_state_uint(list, NULL, UINT64_MAX);
    dcp_state_float(list, NULL, 1);
    dcp_state_float(list, NULL, 0.1 + 0.2);
    dcp_state_string(list, NULL, "text");
    node_append(pool_of(state), list, NULL,
                node_digits(pool_of(state), "-123456789012345678901234567890"));
    expect_json(root, "{\"list\": [null, true, false, -9223372036854775808, 18446744073709551615, "
                      "1.0, 0.30000000000000004, \"text\", -123456789012345678901234567890], "
                      "\"empty\": {}, \"tuple\": []}");
}

static void strings_are_escaped(void **state)
{
    struct state_pool *pool = pool_of(state);
    expect_json(string(pool, "a\"b\\c/\n\t\x01\x7f"), "\"a\\\"b\\\\c/\\u000a\\u0009\\u0001\x7f\"");
    expect_json(node_text(pool, DCP_KIND_STRING, "\0x", 2), "\"\\u0000x\"");
    expect_json(string(pool, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
                "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    expect_json(string(pool, "a\xed\xa0\xbd\xed\xb8\x80z"), "\"a\\ud83d\\ude00z\"");
    expect_json(string(pool, "\xff\xc3"), "\"\\ufffd\\ufffd\"");
    expect_json(string(pool, "\xe2\x82"), "\"\\ufffd\\ufffd\"");
    expect_json(string(pool, "\xed\xa0"), "\"\\ufffd\\ufffd\"");
    dcp_state_int(*state, "k\"\n", 1);
    expect_json(*state, "{\"k\\\"\\u000a\": 1}");
}

static void what_json_lacks_is_marked(void **state)
{
    struct state_pool *pool = pool_of(state);
    dcp_state *root = *state;
    dcp_state_float(root, "nan", (double)NAN);
    dcp_state_float(root, "inf", -(double)INFINITY);
    dcp_state_bytes(root, "bytes", "\x00\xff\x10", 3);
    expect_json(root, "{\"nan\": {\"$float\": \"nan\"}, \"inf\": {\"$float\": \"-inf\"}, "
                      "\"bytes\": {\"$bytes\": \"00ff10\"}}");
    expect_json(node_text(pool, DCP_KIND_BYTEARRAY, "a", 1), "{\"$bytearray\": \"61\"}");
    expect_json(node_text(pool, DCP_KIND_BYTES, "", 0), "{\"$bytes\": \"\"}");
    expect_json(node_text(pool, DCP_KIND_DEVICE, "cuda:0", 6), "{\"$device\": \"cuda:0\"}");

    dcp_state *node = node_new(pool, DCP_KIND_COMPLEX);
    node->as.complex.real = 1;
    node->as.complex.imaginary = (double)INFINITY;
    expect_json(node, "{\"$complex\": [1.0, {\"$float\": \"inf\"}]}");
    node = node_new(pool, DCP_KIND_DTYPE);
    node->as.dtype = DCP_BF16;
    expect_json(node, "{\"$dtype\": \"bfloat16\"}");

    static const struct {
        dcp_kind kind;
        const char *empty, *one;
    } containers[] = {
        {DCP_KIND_SET, "{\"$set\": []}", "{\"$set\": [7]}"},
        {DCP_KIND_FROZENSET, "{\"$frozenset\": []}", "{\"$frozenset\": [7]}"},
        {DCP_KIND_SIZE, "{\"$size\": []}", "{\"$size\": [7]}"},
        {DCP_KIND_LIST, "[]", "[7]"},
    };
    for (size_t i = 0; i < sizeof containers / sizeof containers[0]; i++) {
        node = node_new(pool, containers[i].kind);
        expect_json(node, containers[i].empty);
        node_append(pool, node, NULL, node_int(pool, 7));
        expect_json(node, containers[i].one);
    }
}

static void opaque_nodes_show_their_name(void **state)
{
    struct state_pool *pool = pool_of(state);
    dcp_state *node = node_text(pool, DCP_KIND_OPAQUE, "m.\"n", 4);
    expect_json(node, "{\"$opaque\": \"m.\\\"n\"}");
    node_append(pool, node, NULL, node_int(pool, 1));
    node_append(pool, node, NULL, node_new(pool, DCP_KIND_TUPLE));
    expect_json(node, "{\"$opaque\": \"m.\\\"n\", \"children\": [1, []]}");
}

static dcp_status no_state(void *context, dcp_state *into)
{
    (void)context;
    (void)into;
    return DCP_OK;
}

static void tensors_show_dtype_and_shape(void **state)
{
    dcp_tensor tensor = {.dtype = DCP_F8_E5M2, .ndim = 2, .global_shape = {3, 4}};
    dcp_tensor scalar = {.dtype = DCP_I64};
    const dcp_stateful stateful = {.state_dict = no_state};
    dcp_state_tensor(*state, "a", &tensor);
    dcp_state_tensor(*state, "b", &scalar);
    dcp_state_stateful(*state, "c", &stateful);
    expect_json(*state, "{\"a\": {\"$tensor\": {\"dtype\": \"float8_e5m2\", \"shape\": [3, 4]}}, "
                        "\"b\": {\"$tensor\": {\"dtype\": \"int64\", \"shape\": []}}, "
                        "\"c\": {\"$stateful\": true}}");
}

static void dicts_with_other_keys_are_pairs(void **state)
{
    struct state_pool *pool = pool_of(state);
    dcp_state *dict = node_new(pool, DCP_KIND_DICT);
    dcp_state *key = node_new(pool, DCP_KIND_TUPLE);
    node_append(pool, key, NULL, node_int(pool, 1));
    node_append(pool, dict, node_int(pool, 0), node_new(pool, DCP_KIND_DICT));
    expect_json(dict, "{\"$dict\": [[0, {}]]}");
    node_append(pool, dict, key, string(pool, "v"));
    node_append(pool, dict, string(pool, "s"), node_new(pool, DCP_KIND_LIST));
    expect_json(dict, "{\"$dict\": [[0, {}], [[1], \"v\"], [\"s\", []]]}");
    dcp_state_int(*state, "$float", 1);
    expect_json(*state, "{\"$dict\": [[\"$float\", 1]]}");
}

static void cycles_end_and_shared_values_repeat(void **state)
{
    struct state_pool *pool = pool_of(state);
    dcp_state *list = node_new(pool, DCP_KIND_LIST);
    dcp_state *dict = node_new(pool, DCP_KIND_DICT);
    dcp_state *shared = node_new(pool, DCP_KIND_LIST);
    node_append(pool, list, NULL, list);
    node_append(pool, list, NULL, shared);
    node_append(pool, list, NULL, shared);
    node_append(pool, list, NULL, dict);
    node_append(pool, dict, string(pool, "up"), list);
    const char *expected = "[{\"$cycle\": true}, [], [], {\"up\": {\"$cycle\": true}}]";
    expect_json(list, expected);
    expect_json(list, expected);
}

static void depth_is_no_limit(void **state)
{
    enum { DEPTH = 200000 };
    struct state_pool *pool = pool_of(state);
    dcp_state *outer = node_new(pool, DCP_KIND_LIST);
    dcp_state *list = outer;
    for (int i = 1; i < DEPTH; i++) {
        dcp_state *inner = node_new(pool, DCP_KIND_LIST);
        node_append(pool, list, NULL, inner);
        list = inner;
    }
    char *text;
    assert_int_equal(dcp_state_to_json(outer, 0, &text), DCP_OK);
    assert_int_equal(strlen(text), 2 * DEPTH);
    dcp_text_free(text);
}

static void text_is_limited(void **state)
{
    struct state_pool *pool = pool_of(state);
    char *text = "untouched";
    assert_int_equal(dcp_state_to_json(string(pool, "12345678"), 10, &text), DCP_OK);
    dcp_text_free(text);
    assert_int_equal(dcp_state_to_json(string(pool, "12345678"), 9, &text), DCP_ERR_UNSUPPORTED);
    assert_null(text);
    assert_non_null(strstr(dcp_error_message(), "more than 9 bytes"));

    /* lists that share lists: 2^60 values */
    dcp_state *bomb = node_new(pool, DCP_KIND_LIST);
    for (int i = 0; i < 60; i++) {
        dcp_state *outer = node_new(pool, DCP_KIND_LIST);
        node_append(pool, outer, NULL, bomb);
        node_append(pool, outer, NULL, bomb);
        bomb = outer;
    }
    assert_int_equal(dcp_state_to_json(bomb, 100000, &text), DCP_ERR_UNSUPPORTED);
    assert_int_equal(dcp_state_to_json(bomb, 0, &text), DCP_ERR_UNSUPPORTED);
    static const char bytes[1000];
    assert_int_equal(
        dcp_state_to_json(node_text(pool, DCP_KIND_BYTES, bytes, sizeof bytes), 1500, &text),
        DCP_ERR_UNSUPPORTED);
}

static void arguments_are_checked(void **state)
{
    char *text;
    assert_int_equal(dcp_state_to_json(NULL, 0, &text), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_to_json(*state, 0, NULL), DCP_ERR_ARGUMENT);
    dcp_text_free(NULL);
}

static void memory_failures_are_reported(void **state)
{
    struct state_pool *pool = pool_of(state);
    dcp_state *outer = *state;
    for (int i = 0; i < 60; i++) {
        dcp_state *dict = dcp_state_dict(outer, "inner");
        dcp_state_bytes(outer, "bytes", "abcdefgh", 8);
        outer = dict;
    }
    node_append(pool, outer, node_int(pool, 1), node_int(pool, 2));
    for (long n = 1;; n++) {
        char *text;
        failing_allocator_install(n, false);
        dcp_status status = dcp_state_to_json(*state, 0, &text);
        if (status == DCP_OK)
            dcp_text_free(text);
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
        TEST(plain_values_are_plain_json),
        TEST(strings_are_escaped),
        TEST(what_json_lacks_is_marked),
        TEST(opaque_nodes_show_their_name),
        TEST(tensors_show_dtype_and_shape),
        TEST(dicts_with_other_keys_are_pairs),
        TEST(cycles_end_and_shared_values_repeat),
        TEST(depth_is_no_limit),
        TEST(text_is_limited),
        TEST(arguments_are_checked),
        TEST(memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
