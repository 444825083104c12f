/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of dicts and elements of sets that are equal, as a pickle may have them and Python's dicts
 * may not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "failing_allocator.h"
#include "object_reading.h"
#include "zip_builder.h"

/* That a pickle is read as a value of this JSON text. */
static void check_text(const char *pickle, size_t size, const char *expected)
{
    struct object object;
    char *text;
    assert_int_equal(object_open_pickle(&object, pickle, size, NULL, 0), DCP_OK);
    assert_int_equal(dcp_state_to_json(object.node, 0, &text), DCP_OK);
    assert_string_equal(text, expected);
    dcp_text_free(text);
    object_close(&object);
}

#define CHECK(pickle, expected) check_text(pickle, sizeof(pickle) - 1, expected)

#define ONE  "G\x3f\xf0\0\0\0\0\0\0"
#define NAN_ "G\x7f\xf8\0\0\0\0\0\0"

static void test_the_first_key_stays_and_the_last_value(void **state)
{
    (void)state;
    CHECK("\x80\x02}(K\1K\5K\2K\6\x88K\7" ONE "K\x08u.", "{\"$dict\": [[1, 8], [2, 6]]}");
    CHECK("\x80\x02}(X\1\0\0\0aK\1X\1\0\0\0aK\2C\1aK\3NNu.",
          "{\"$dict\": [[\"a\", 2], [{\"$bytes\": \"61\"}, 3], [null, null]]}");
}

static void test_tuples_are_compared_when_they_are_complete(void **state)
{
    (void)state;
    /* {(1, 'a'): 5, 2: 9, (True, 'a'): 6, (1, 'b'): 7} */
    CHECK("\x80\x02}(K\1X\1\0\0\0a\x86K\5K\2K\x09\x88X\1\0\0\0a\x86K\6K\1X\1\0\0\0b\x86K\7u.",
          "{\"$dict\": [[[1, \"a\"], 6], [2, 9], [[1, \"b\"], 7]]}");
    CHECK("\x80\x02"
          "cbuiltins\nset\n](K\1" ONE "K\1\x85K\2" ONE "\x85)e\x85R.",
          "{\"$set\": [1, [1], 2, []]}");
    /* frozensets in another order, and one that is equal only once its own elements are */
    CHECK("\x80\x04\x8f((K\1K\2\x91(K\2K\1\x91(K\1\x85K\1\x85\x91(K\1\x85\x91\x90.",
          "{\"$set\": [{\"$frozenset\": [1, 2]}, {\"$frozenset\": [[1]]}]}");
}

/* Positions behind a pair that went change, also in the index of a dict that has one. */
static void test_a_dict_with_an_index_is_found_in_again(void **state)
{
    (void)state;
    static const char pickle[] =
        "\x80\x02}()K\0)K\1K\1K\x11K\2K\x12K\3K\x13K\4K\x14K\5K\x15K\6K\x16"
        "K\7K\x17K\x08K\x18K\x09K\x19X\1\0\0\0aK\x1au.";
    struct object object;
    int64_t value;
    assert_int_equal(READ(&object, pickle), DCP_OK);
    assert_int_equal(dcp_state_count(object.node), 11);
    for (int64_t i = 1; i < 10; i++) {
        assert_int_equal(dcp_state_as_int(dcp_state_find_int(object.node, i), &value), DCP_OK);
        assert_int_equal(value, 16 + i);
    }
    assert_int_equal(dcp_state_as_int(dcp_state_find(object.node, "a"), &value), DCP_OK);
    assert_int_equal(value, 26);
    assert_int_equal(dcp_state_as_int(dcp_state_at(object.node, 0), &value), DCP_OK);
    assert_int_equal(value, 1);
    assert_null(dcp_state_find_int(object.node, 10));
    object_close(&object);
}

/* A key is (object, 5), and the object has a dict with that key, and with an equal one, so that the
 * key is used before it has its parts. */
static void test_keys_that_lead_to_themselves(void **state)
{
    (void)state;
    static const char pickle[] = "\x80\x02}cm\nC\n)\x81q\0K\5\x86q\1"
                                 "0h\0}(h\1K\1h\0K\5\x86K\2ub0h\1K\3s.";
    struct object object;
    int64_t value;
    assert_int_equal(READ(&object, pickle), DCP_OK);
    assert_int_equal(dcp_state_count(object.node), 1);
    const dcp_state *key = dcp_state_key_at(object.node, 0), *inner = dcp_state_at(key, 0);
    assert_int_equal(dcp_state_count(key), 2);
    const dcp_state *dict = dcp_state_at(inner, 0);
    assert_int_equal(dcp_state_kind(dict), DCP_KIND_DICT);
    assert_int_equal(dcp_state_count(dict), 1);
    assert_ptr_equal(dcp_state_key_at(dict, 0), key);
    assert_int_equal(dcp_state_as_int(dcp_state_find_key(dict, key), &value), DCP_OK);
    assert_int_equal(value, 2);
    object_close(&object);
}

static void test_nan_equals_itself_alone(void **state)
{
    (void)state;
    CHECK("\x80\x02}(" NAN_ "K\1" NAN_ "K\2u.",
          "{\"$dict\": [[{\"$float\": \"nan\"}, 1], [{\"$float\": \"nan\"}, 2]]}");
    CHECK("\x80\x02}(" NAN_ "q\0K\1h\0K\2u.", "{\"$dict\": [[{\"$float\": \"nan\"}, 2]]}");
}

static void expect_refused(const char *pickle, size_t size, const char *words)
{
    struct object object;
    assert_int_equal(object_open_pickle(&object, pickle, size, NULL, 0), DCP_ERR_FORMAT);
    if (strstr(dcp_error_message(), words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", dcp_error_message(), words);
    object_close(&object);
}

static void test_parts_without_a_hash_are_refused(void **state)
{
    (void)state;
    static const char list_in_key[] = "\x80\x02}K\1]\x86K\1s.";
    static const char dict_in_element[] = "\x80\x04\x8f(}\x85\x85\x90.";
    expect_refused(list_in_key, sizeof list_in_key - 1, "cannot be hashed");
    expect_refused(dict_in_element, sizeof dict_in_element - 1, "cannot be hashed");
}

/* ((((), ()), ((), ())), ...): a key of 2^60 parts in a pickle of some hundred bytes. */
static void test_shared_parts_are_bounded(void **state)
{
    (void)state;
    struct buffer pickle;
    buffer_init(&pickle, 0);
    buffer_append(&pickle, "\x80\x02})", 4);
    for (int i = 0; i < 60; i++)
        buffer_append(&pickle, "q\0h\0\x86", 5);
    buffer_append(&pickle, "K\1s.", 4);
    expect_refused((const char *)pickle.data, pickle.size, "repeats its values");
    buffer_free(&pickle);
}

/* Many keys with one tuple of 2^14 parts in them: none is too large by itself. */
static void test_many_keys_are_bounded_together(void **state)
{
    (void)state;
    struct buffer pickle;
    buffer_init(&pickle, 0);
    buffer_append(&pickle, "\x80\x02})", 4);
    for (int i = 0; i < 14; i++)
        buffer_append(&pickle, "q\0h\0\x86", 5);
    buffer_append(&pickle,
                  "q\1"
                  "0(",
                  4);
    for (int i = 0; i < 256; i++) {
        buffer_append(&pickle, "h\1K", 3);
        buffer_append_u8(&pickle, (uint8_t)i);
        buffer_append(&pickle, "\x86N", 2);
    }
    buffer_append(&pickle, "u.", 2);
    expect_refused((const char *)pickle.data, pickle.size, "repeats its values");
    buffer_free(&pickle);
}

static void test_memory_failures(void **state)
{
    (void)state;
    static const char pickle[] =
        "\x80\x02}()K\0)K\1K\1K\x11K\2K\x12K\3K\x13K\4K\x14K\5K\x15K\6K\x16"
        "K\7K\x17(K\1K\2\x91K\x18(K\2K\1\x91K\x19X\1\0\0\0aK\x1au.";
    struct zip_builder builder;
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, pickle, sizeof pickle - 1);
    zip_builder_finish(&builder);
    for (size_t n = 0;; n++) {
        struct object object;
        failing_allocator_install(n);
        dcp_status status =
            object_open(&object, byte_source_memory(builder.out.data, builder.out.size));
        object_close(&object);
        if (failing_allocator_remove() <= n) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    zip_builder_free(&builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_key_stays_and_the_last_value),
        cmocka_unit_test(test_tuples_are_compared_when_they_are_complete),
        cmocka_unit_test(test_a_dict_with_an_index_is_found_in_again),
        cmocka_unit_test(test_keys_that_lead_to_themselves),
        cmocka_unit_test(test_nan_equals_itself_alone),
        cmocka_unit_test(test_parts_without_a_hash_are_refused),
        cmocka_unit_test(test_shared_parts_are_bounded),
        cmocka_unit_test(test_many_keys_are_bounded_together),
        cmocka_unit_test(test_memory_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
