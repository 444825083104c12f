/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/json/json_reader.h"

static struct arena arena;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* The text is copied to a block of its own size, so that sanitizers see a read behind its end. */
static void begin(struct json_reader *json, const char *text, size_t size)
{
    json_init(json, "test", arena_copy(&arena, text, size), size, &arena);
}

#define BEGIN(json, text) begin(json, text, sizeof(text) - 1)

static dcp_status skip_all(const char *text, size_t size)
{
    struct json_reader json;
    char *copy = malloc(size != 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    json_init(&json, "test", copy, size, &arena);
    dcp_status status = json_skip(&json);
    if (status == DCP_OK)
        status = json_end(&json);
    free(copy);
    return status;
}

static void test_well_formed_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"{}",
                                        "[]",
                                        " [ ] ",
                                        "[1,2]",
                                        "{\"a\":1}",
                                        "{\"a\" : [ {} , null , true,false ] }\n",
                                        "0",
                                        "-0",
                                        "12.5e-3",
                                        "1E+9",
                                        "-1.0",
                                        "\"\"",
                                        "\"\\u00e9\\\"\\/\\b\\f\\n\\r\\t\"",
                                        "[[[[]]],{\"a\":{\"b\":[]}}]",
                                        "\"\xc3\xa9\xf0\x9f\x98\x80\"",
                                        "\"\\ud83d\\ude00\""};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (skip_all(texts[i], strlen(texts[i])) != DCP_OK)
            fail_msg("%s: %s", texts[i], dcp_error_message());
}

static void test_malformed_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        " ",
                                        "{",
                                        "[",
                                        "}",
                                        "]",
                                        "[1",
                                        "[1,",
                                        "[1,]",
                                        "[,1]",
                                        "[1 2]",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{\"a\":1,}",
                                        "{a:1}",
                                        "{'a':1}",
                                        "{\"a\":1 \"b\":2}",
                                        "{1:2}",
                                        "[}",
                                        "{]",
                                        "tru",
                                        "nul",
                                        "True",
                                        "NaN",
                                        "Infinity",
                                        "01",
                                        "-",
                                        "+1",
                                        "1.",
                                        ".5",
                                        "1e",
                                        "1e+",
                                        "0x1",
                                        "\"",
                                        "\"a",
                                        "\"\\\"",
                                        "\"\\x\"",
                                        "\"\\u12\"",
                                        "\"\\u12g4\"",
                                        "\"\\ud800\"",
                                        "\"\\udc00\"",
                                        "\"\\ud800\\u0041\"",
                                        "\"\\ud800x\"",
                                        "\"\n\"",
                                        "\"\x01\"",
                                        "\"\xff\"",
                                        "\"\xed\xa0\x80\"",
                                        "[] []",
                                        "{} x",
                                        "[1]]",
                                        "//",
                                        "[1]/**/"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (skip_all(texts[i], strlen(texts[i])) != DCP_ERR_FORMAT)
            fail_msg("%s was taken", texts[i]);
    assert_int_equal(skip_all("[\0]", 3), DCP_ERR_FORMAT);
    assert_int_equal(skip_all("\"a\0\"", 4), DCP_ERR_FORMAT);
}

static void test_truncated_text(void **state)
{
    (void)state;
    static const char text[] = "{\"a\\u00e9\":[1.5e3,true,null,{\"b\":\"\\ud83d\\ude00\"}]}";
    assert_int_equal(skip_all(text, sizeof text - 1), DCP_OK);
    for (size_t size = 0; size < sizeof text - 1; size++)
        assert_int_equal(skip_all(text, size), DCP_ERR_FORMAT);
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    char text[200];
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_int_equal(skip_all(text, 128), DCP_OK);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_int_equal(skip_all(text, 130), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "deeper than 64"));
}

static void test_strings(void **state)
{
    (void)state;
    struct json_reader json;
    struct json_text text;
    BEGIN(&json, " \"plain\"");
    assert_int_equal(json_string(&json, &text), DCP_OK);
    assert_true(json_text_is(text, "plain"));
    assert_false(json_text_is(text, "plai"));
    assert_ptr_equal(text.bytes, json.text + 2); /* borrowed */
    BEGIN(&json, "\"\\u0061\\u00E9\\u4e16\\ud83d\\ude00\\u0000\\n\"");
    assert_int_equal(json_string(&json, &text), DCP_OK);
    static const char expected[] = "a\xc3\xa9\xe4\xb8\x96\xf0\x9f\x98\x80\0\n";
    assert_int_equal(text.length, sizeof expected - 1);
    assert_memory_equal(text.bytes, expected, text.length);
    BEGIN(&json, "7");
    assert_int_equal(json_string(&json, &text), DCP_ERR_FORMAT);
    assert_string_equal(dcp_error_message(), "test: byte 0 is '7', expected a string");
}

static void test_numbers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } numbers[] = {{"0", 0},
                   {" 7", 7},
                   {"9007199254740993", UINT64_C(9007199254740993)},
                   {"18446744073709551615", UINT64_MAX}};
    static const char *const others[] = {"18446744073709551616",
                                         "99999999999999999999",
                                         "-1",
                                         "1.0",
                                         "1e3",
                                         "01",
                                         "00",
                                         "\"1\"",
                                         "",
                                         "null"};
    struct json_reader json;
    uint64_t value;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        begin(&json, numbers[i].text, strlen(numbers[i].text));
        assert_int_equal(json_u64(&json, &value), DCP_OK);
        assert_true(value == numbers[i].value);
        assert_int_equal(json_end(&json), DCP_OK);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        begin(&json, others[i], strlen(others[i]));
        if (json_u64(&json, &value) != DCP_ERR_FORMAT)
            fail_msg("%s was taken", others[i]);
    }
}

static void test_pulling(void **state)
{
    (void)state;
    struct json_reader json;
    struct json_text key;
    uint64_t value;
    bool more;
    BEGIN(&json, "{\"a\": [1, 2], \"b\": {}}");
    assert_int_equal(json_enter_object(&json), DCP_OK);
    assert_int_equal(json_next_member(&json, &more, &key), DCP_OK);
    assert_true(more && json_text_is(key, "a"));
    assert_int_equal(json_enter_array(&json), DCP_OK);
    for (uint64_t i = 1; i <= 2; i++) {
        assert_int_equal(json_next_element(&json, &more), DCP_OK);
        assert_true(more);
        assert_int_equal(json_u64(&json, &value), DCP_OK);
        assert_int_equal(value, i);
    }
    assert_int_equal(json_next_element(&json, &more), DCP_OK);
    assert_false(more);
    assert_int_equal(json_next_member(&json, &more, &key), DCP_OK);
    assert_true(more && json_text_is(key, "b"));
    assert_int_equal(json_enter_object(&json), DCP_OK);
    assert_int_equal(json_next_member(&json, &more, &key), DCP_OK);
    assert_false(more);
    assert_int_equal(json_next_member(&json, &more, &key), DCP_OK);
    assert_false(more);
    assert_int_equal(json_end(&json), DCP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_well_formed_text), cmocka_unit_test(test_malformed_text),
        cmocka_unit_test(test_truncated_text),   cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_strings),          cmocka_unit_test(test_numbers_are_exact),
        cmocka_unit_test(test_pulling),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
