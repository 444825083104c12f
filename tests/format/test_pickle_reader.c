/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failing_allocator.h"
#include "format/pickle/pickle.h"
#include "pickle_assembler.h"
#include "rendered_pickle.h"

/* What a script gives; the input stays alive with it. */
struct read {
    struct buffer input;
    struct pickle_document document;
};

static const struct pickle_value *read_script(struct read *read, const char *script)
{
    pickle_assemble(&read->input, script);
    dcp_status status = pickle_read(read->input.data, read->input.size, true, &read->document);
    if (status != DCP_OK)
        fail_msg("%s: %s", script, dcp_error_message());
    return read->document.root;
}

static void read_free(struct read *read)
{
    pickle_free(&read->document);
    buffer_free(&read->input);
}

struct reading {
    const char *script; /* between PROTO and STOP */
    const char *expected;
};

static void check_readings(const struct reading *readings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char script[1024];
        struct read read;
        snprintf(script, sizeof script, "PROTO 4 %s STOP", readings[i].script);
        check_rendered(read_script(&read, script), script, readings[i].expected);
        read_free(&read);
    }
}

#define CHECK_READINGS(...)                                                                        \
    do {                                                                                           \
        const struct reading readings[] = {__VA_ARGS__};                                           \
        check_readings(readings, sizeof readings / sizeof readings[0]);                            \
    } while (0)

static void reads_plain_values(void **state)
{
    (void)state;
    CHECK_READINGS({"NONE", "None"}, {"NEWTRUE", "True"}, {"NEWFALSE", "False"},
                   {"BININT1 255", "255"}, {"BININT2 65535", "65535"}, {"BININT -1", "-1"},
                   {"BININT -2147483648", "-2147483648"}, {"BININT 2147483647", "2147483647"},
                   {"BINFLOAT 1.5", "0x1.8p+0"}, {"BINFLOAT -inf", "-inf"},
                   {"BINUNICODE 'abc'", "'abc'"}, {"SHORT_BINUNICODE '\\xc3\\xa9'", "'\\xc3\\xa9'"},
                   {"BINUNICODE8 ''", "''"}, {"SHORT_BINUNICODE 'a\\x00b'", "'a\\x00b'"},
                   {"BINBYTES '\\xff'", "b'\\xff'"}, {"SHORT_BINBYTES ''", "b''"},
                   {"BINBYTES8 'xyz'", "b'xyz'"}, {"BYTEARRAY8 'xyz'", "bytearray'xyz'"},
                   {"SHORT_BINSTRING 'old'", "'old'"}, {"BINSTRING '\\xff'", "b'\\xff'"},
                   {"BINSTRING ''", "''"});
}

static void reads_integers_of_any_size(void **state)
{
    (void)state;
    CHECK_READINGS(
        {"LONG1 ''", "0"}, {"LONG1 '\\xff'", "-1"}, {"LONG1 '\\x80'", "-128"},
        {"LONG1 '\\x80\\x00'", "128"}, {"LONG4 '\\x01\\x00\\x00'", "1"},
        {"LONG1 '\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x7f'", "9223372036854775807"},
        {"LONG1 '\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80'", "-9223372036854775808"},
        {"LONG1 '\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\xff\\xff'", "-9223372036854775808"},
        {"LONG1 '\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x00\\x00'",
         "long'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x00'"},
        {"LONG4 '\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\xfe'",
         "long'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\xfe'"});
}

static void accepts_lone_surrogates_but_no_other_bad_text(void **state)
{
    (void)state;
    CHECK_READINGS({"SHORT_BINUNICODE '\\xed\\xa0\\x80'", "'\\xed\\xa0\\x80'"},
                   {"SHORT_BINUNICODE 'a\\xed\\xbf\\xbfb\\xed\\xa0\\x81'",
                    "'a\\xed\\xbf\\xbfb\\xed\\xa0\\x81'"});
    static const char *const bad[] = {
        "\xff",    "\xc0\x80", "\xed\xa0", "a\xed\xa0\x80\xed", "\xed\xa0\x80\xf5\x80\x80\x80",
        "\xe2\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pickle_document document;
        struct buffer input;
        buffer_init(&input, 0);
        pickle_put_protocol(&input, 4);
        pickle_put_short_string(&input, bad[i], strlen(bad[i]));
        pickle_put_op(&input, OP_STOP);
        assert_int_equal(pickle_read(input.data, input.size, false, &document), DCP_ERR_FORMAT);
        assert_non_null(strstr(dcp_error_message(), "not UTF-8"));
        buffer_free(&input);
    }
}

static void reads_containers(void **state)
{
    (void)state;
    CHECK_READINGS(
        {"EMPTY_TUPLE", "()"}, {"NONE TUPLE1", "(None)"}, {"NONE NEWTRUE TUPLE2", "(None True)"},
        {"NONE NONE NONE TUPLE3", "(None None None)"},
        {"MARK BININT1 1 BININT1 2 BININT1 3 BININT1 4 TUPLE", "(1 2 3 4)"}, {"MARK TUPLE", "()"},
        {"EMPTY_LIST NONE APPEND MARK BININT1 1 BININT1 2 APPENDS MARK APPENDS", "[None 1 2]"},
        {"EMPTY_DICT BININT1 1 NONE SETITEM MARK BININT1 2 NEWTRUE SETITEMS MARK SETITEMS",
         "{1 None 2 True}"},
        {"EMPTY_SET MARK BININT1 1 BININT1 2 ADDITEMS MARK ADDITEMS", "set{1 2}"},
        {"MARK NONE BININT1 7 FROZENSET", "frozenset{None 7}"},
        {"EMPTY_DICT BININT1 1 MARK BININT1 2 EMPTY_LIST TUPLE SETITEM", "{1 (2 [])}"});
}

static void reads_globals_calls_and_objects(void **state)
{
    (void)state;
    CHECK_READINGS(
        {"GLOBAL 'os' 'system'", "os.system"},
        {"SHORT_BINUNICODE 'torch' SHORT_BINUNICODE 'Size' STACK_GLOBAL", "torch.Size"},
        {"GLOBAL 'm' 'f' NONE TUPLE1 REDUCE", "call(m.f (None))"},
        {"GLOBAL 'm' 'C' EMPTY_TUPLE NEWOBJ EMPTY_DICT BUILD", "object(m.C () state={})"},
        {"GLOBAL 'm' 'C' EMPTY_TUPLE EMPTY_DICT NEWOBJ_EX", "object(m.C ())"},
        {"GLOBAL 'm' 'C' EMPTY_TUPLE REDUCE MARK BININT1 1 APPENDS MARK BININT1 2 NONE SETITEMS",
         "call(m.C () items=1 pairs=2 None)"},
        {"GLOBAL 'm' 'C' EMPTY_TUPLE NEWOBJ NONE APPEND NEWTRUE NONE SETITEM MARK BININT1 5 "
         "ADDITEMS",
         "object(m.C () items=None 5 pairs=True None)"},
        {"GLOBAL 'm' 'f' EMPTY_TUPLE REDUCE EMPTY_TUPLE REDUCE", "call(call(m.f ()) ())"},
        {"NONE TUPLE1 BINPERSID", "persistent (None)"});
}

static void keeps_sharing_and_cycles(void **state)
{
    (void)state;
    CHECK_READINGS(
        {"EMPTY_LIST MEMOIZE BINGET 0 TUPLE2", "([] [])"},
        {"EMPTY_LIST BINPUT 6 BINGET 6 APPEND", "[[[[[[[...]]]]]]]"},
        {"BININT1 1 LONG_BINPUT 3 POP BININT1 2 BINPUT 3 POP LONG_BINGET 3", "2"},
        {"BININT1 1 BINPUT 0 BININT1 2 MEMOIZE BINGET 0 BINGET 1 TUPLE2 TUPLE3", "(1 2 (1 2))"},
        {"GLOBAL 'm' 'C' EMPTY_TUPLE NEWOBJ MEMOIZE EMPTY_DICT NONE BINGET 0 SETITEM BUILD",
         "object(m.C () state={None object(m.C () state={None object(m.C () state={None "
         "object(... ... state=...)})})})"});
    struct read read;
    const struct pickle_value *root =
        read_script(&read, "PROTO 2 EMPTY_LIST BINPUT 0 BINGET 0 TUPLE2 STOP");
    assert_ptr_equal(root->as.sequence.items[0], root->as.sequence.items[1]);
    read_free(&read);
}

static void pops_values_and_marks(void **state)
{
    (void)state;
    CHECK_READINGS({"NONE BININT1 7 POP", "None"}, {"NONE MARK POP", "None"},
                   {"NONE MARK BININT1 1 POP POP", "None"});
}

static void ignores_frames_and_what_follows_stop(void **state)
{
    (void)state;
    struct read read;
    const char *script = "PROTO 4 FRAME 2 NONE STOP NONE NONE #ff";
    check_rendered(read_script(&read, script), script, "None");
    read_free(&read);
}

static void numbers_values_densely(void **state)
{
    (void)state;
    struct read read;
    const struct pickle_value *root =
        read_script(&read, "PROTO 4 BININT1 1 BININT1 2 TUPLE2 MEMOIZE BINGET 0 TUPLE2 STOP");
    assert_int_equal(read.document.value_count, 4);
    assert_int_equal(root->serial, 3);
    assert_int_equal(root->as.sequence.items[0]->serial, 2);
    read_free(&read);
}

struct refusal {
    const char *script;
    const char *message; /* a part of it */
};

static const struct refusal refusals[] = {
    {"", "byte 0: not a pickle"},
    {"#7b22", "byte 0, opcode 0x7b: not a pickle"},
    {"NONE STOP", "byte 0, opcode 0x4e NONE: not a pickle"},
    {"PROTO 1 NONE STOP", "opcode 0x80 PROTO: protocol 1 is not supported, expected 2 to 5"},
    {"PROTO 6 NONE STOP", "protocol 6"},
    {"PROTO 4 #ff", "byte 2, opcode 0xff: unknown opcode"},
    {"PROTO 4 #49", "byte 2, opcode 0x49: unknown opcode"}, /* INT, of protocol 0 */
    {"PROTO 4 NONE", "byte 3: the input ends without STOP"},
    {"PROTO 4 STOP", "opcode 0x2e STOP: 0 values"},
    {"PROTO 4 NONE NONE STOP", "2 values and marks on the stack"},
    {"PROTO 4 NONE MARK STOP", "2 values and marks on the stack"},
    {"PROTO 4 MARK NONE STOP", "2 values and marks on the stack"},
    {"PROTO 4 #4a0000", "BININT: needs 4 bytes more, but the input ends after 2"},
    {"PROTO 4 #58ffffffff61", "BINUNICODE: claims 4294967295 bytes, but the input ends after 1"},
    {"PROTO 4 #8dffffffffffffffff61", "BINUNICODE8: claims 18446744073709551615 bytes"},
    {"PROTO 4 #8effffffffffffff7f", "BINBYTES8: claims"},
    {"PROTO 4 #96ffffffffffffff7f", "BYTEARRAY8: claims"},
    {"PROTO 4 #8b000000ff", "LONG4: the length is negative"},
    {"PROTO 4 #54ffffffff", "BINSTRING: the length is negative"},
    {"PROTO 4 FRAME 1000 NONE STOP",
     "FRAME: the frame claims 1000 bytes, but the input ends after 2"},
    {"PROTO 4 #636f73", "GLOBAL: the input ends within a line"},
    {"PROTO 4 #636f730a73797374656d", "GLOBAL: the input ends within a line"},
    {"PROTO 4 GLOBAL '\\xff' 'x' STOP", "GLOBAL: the text is not UTF-8"},
    {"PROTO 4 POP", "POP: needs 1 values on the stack, found 0"},
    {"PROTO 4 NONE TUPLE2", "TUPLE2: needs 2 values on the stack, found 1"},
    {"PROTO 4 NONE MARK TUPLE1", "TUPLE1: needs 1 values on the stack above the mark, found 0"},
    {"PROTO 4 NONE MARK NONE REDUCE", "REDUCE: needs 2 values on the stack above the mark"},
    {"PROTO 4 NONE TUPLE", "TUPLE: there is no mark"},
    {"PROTO 4 EMPTY_LIST APPENDS", "APPENDS: there is no mark"},
    {"PROTO 4 MARK APPENDS", "APPENDS: needs 1 values"},
    {"PROTO 4 EMPTY_TUPLE NONE APPEND", "APPEND: on a tuple"},
    {"PROTO 4 EMPTY_DICT NONE APPEND", "APPEND: on a dict"},
    {"PROTO 4 EMPTY_LIST NONE NONE SETITEM", "SETITEM: on a list"},
    {"PROTO 4 NONE MARK NONE NONE SETITEMS", "SETITEMS: on None"},
    {"PROTO 4 EMPTY_DICT MARK NONE SETITEMS", "SETITEMS: 1 values above the mark, expected pairs"},
    {"PROTO 4 EMPTY_LIST MARK NONE ADDITEMS", "ADDITEMS: on a list"},
    {"PROTO 4 NONE EMPTY_DICT BUILD", "BUILD: on None"},
    {"PROTO 4 EMPTY_DICT EMPTY_DICT BUILD", "BUILD: on a dict"},
    {"PROTO 4 GLOBAL 'm' 'C' EMPTY_TUPLE NEWOBJ NONE BUILD NONE BUILD",
     "BUILD: the object has been built before"},
    {"PROTO 4 NONE EMPTY_TUPLE REDUCE", "REDUCE: of None"},
    {"PROTO 4 GLOBAL 'm' 'f' EMPTY_LIST REDUCE", "REDUCE: the arguments are a list"},
    {"PROTO 4 SHORT_BINUNICODE 'C' EMPTY_TUPLE NEWOBJ", "NEWOBJ: of a string"},
    {"PROTO 4 GLOBAL 'm' 'C' EMPTY_TUPLE EMPTY_DICT NONE NONE SETITEM NEWOBJ_EX",
     "NEWOBJ_EX: keyword arguments"},
    {"PROTO 4 GLOBAL 'm' 'C' EMPTY_TUPLE NONE NEWOBJ_EX", "NEWOBJ_EX: keyword arguments"},
    {"PROTO 4 NONE SHORT_BINUNICODE 'x' STACK_GLOBAL",
     "STACK_GLOBAL: needs a module and a name, found None and a string"},
    {"PROTO 4 MEMOIZE", "MEMOIZE: needs 1 values"},
    {"PROTO 4 NONE BINGET 0", "BINGET: memo number 0 was never stored"},
    {"PROTO 4 NONE MEMOIZE BINGET 1", "BINGET: memo number 1 was never stored"},
    {"PROTO 4 NONE LONG_BINGET 4294967295", "LONG_BINGET: memo number 4294967295"},
    {"PROTO 4 NONE LONG_BINPUT 4294967295",
     "LONG_BINPUT: memo number 4294967295 is too large for a pickle of 8 bytes"},
    {"PROTO 4 NONE BINPUT 5 MEMOIZE NONE NONE NONE", "MEMOIZE: memo numbers before have gaps"},
    {"PROTO 4 EMPTY_DICT EMPTY_LIST NONE SETITEM",
     "SETITEM: a list cannot be hashed, so it cannot be a key"},
    {"PROTO 4 EMPTY_DICT EMPTY_DICT NONE SETITEM", "a dict cannot be hashed"},
    {"PROTO 4 EMPTY_DICT EMPTY_SET NONE SETITEM", "a set cannot be hashed"},
    {"PROTO 4 EMPTY_DICT BYTEARRAY8 '' NONE SETITEM", "a bytearray cannot be hashed"},
    {"PROTO 4 EMPTY_DICT MARK NONE NONE NONE EMPTY_LIST TUPLE1 TUPLE1 NONE SETITEMS",
     "SETITEMS: 5 values"},
    {"PROTO 4 EMPTY_DICT MARK NONE NONE EMPTY_LIST TUPLE1 TUPLE1 NONE SETITEMS",
     "a tuple cannot be hashed, so it cannot be a key of a dict"},
    {"PROTO 4 EMPTY_SET MARK EMPTY_LIST ADDITEMS",
     "a list cannot be hashed, so it cannot be an element"},
    {"PROTO 4 MARK EMPTY_SET FROZENSET",
     "a set cannot be hashed, so it cannot be an element of a frozenset"},
};

static void refuses_what_breaks_the_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct pickle_document document;
        struct buffer input;
        pickle_assemble(&input, refusals[i].script);
        dcp_status status = pickle_read(input.data, input.size, false, &document);
        if (status != DCP_ERR_FORMAT || strstr(dcp_error_message(), refusals[i].message) == NULL)
            fail_msg("%s: status %d, message \"%s\", expected \"%s\"", refusals[i].script, status,
                     dcp_error_message(), refusals[i].message);
        assert_null(document.root);
        buffer_free(&input);
    }
}

static void refuses_persistent_ids_where_there_are_none(void **state)
{
    (void)state;
    struct pickle_document document;
    struct buffer input;
    pickle_assemble(&input, "PROTO 2 NONE BINPERSID STOP");
    assert_int_equal(pickle_read(input.data, input.size, false, &document), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "BINPERSID: persistent ids are not allowed"));
    buffer_free(&input);
}

/* Something of everything, in which each truncation is an error. */
static const char everything[] =
    "PROTO 4 FRAME 10 EMPTY_LIST MEMOIZE MARK NONE BININT1 1 BININT 2 BINFLOAT 2 LONG1 '\\x01' "
    "SHORT_BINUNICODE 'abc' MEMOIZE BINBYTES 'de' BINGET 1 EMPTY_TUPLE NEWTRUE TUPLE1 "
    "GLOBAL 'm' 'C' EMPTY_TUPLE NEWOBJ MEMOIZE EMPTY_DICT MARK BINGET 1 BININT2 300 SETITEMS BUILD "
    "SHORT_BINUNICODE 'm' SHORT_BINUNICODE 'f' STACK_GLOBAL BINGET 2 TUPLE1 REDUCE "
    "MARK NONE FROZENSET BYTEARRAY8 'xy' APPENDS STOP";

static void refuses_every_truncation(void **state)
{
    (void)state;
    struct read read;
    read_script(&read, everything);
    for (size_t size = 0; size < read.input.size; size++) {
        struct pickle_document document;
        unsigned char *copy = malloc(size != 0 ? size : 1);
        assert_non_null(copy);
        memcpy(copy, read.input.data, size);
        assert_int_equal(pickle_read(copy, size, false, &document), DCP_ERR_FORMAT);
        free(copy);
    }
    read_free(&read);
}

static void reports_every_failed_allocation(void **state)
{
    (void)state;
    struct buffer input;
    pickle_assemble(&input, everything);
    dcp_status status = DCP_ERR_NO_MEMORY;
    for (size_t n = 0; status != DCP_OK; n++) {
        struct pickle_document document;
        failing_allocator_install(n);
        status = pickle_read(input.data, input.size, false, &document);
        if (status == DCP_OK)
            pickle_free(&document);
        else
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
        assert_true(failing_allocator_remove() >= n);
    }
    buffer_free(&input);
}

static void reads_deep_nesting_without_recursion(void **state)
{
    (void)state;
    enum { DEPTH = 300000 };
    struct pickle_document document;
    struct buffer input;
    buffer_init(&input, 0);
    pickle_put_protocol(&input, 4);
    pickle_put_none(&input);
    for (int i = 0; i < DEPTH; i++)
        pickle_put_op(&input, OP_TUPLE1);
    pickle_put_op(&input, OP_STOP);
    assert_int_equal(pickle_read(input.data, input.size, false, &document), DCP_OK);
    const struct pickle_value *value = document.root;
    for (int i = 0; i < DEPTH; i++)
        value = value->as.sequence.items[0];
    assert_int_equal(value->kind, PICKLE_NONE);
    pickle_free(&document);
    buffer_free(&input);
}

static void memory_follows_the_input_not_its_claims(void **state)
{
    (void)state;
    struct pickle_document document;
    struct buffer input;
    buffer_init(&input, 0);
    pickle_put_protocol(&input, 4);
    pickle_put_op(&input, OP_EMPTY_LIST);
    pickle_put_op(&input, OP_MEMOIZE);
    for (uint8_t i = 0; i < 60; i++) { /* each list holds the one before twice */
        pickle_put_op(&input, OP_EMPTY_LIST);
        pickle_put_op(&input, OP_MEMOIZE);
        pickle_put_op(&input, OP_MARK);
        pickle_get_memo(&input, i);
        pickle_get_memo(&input, i);
        pickle_put_op(&input, OP_APPENDS);
        pickle_put_op(&input, OP_TUPLE2);
    }
    pickle_put_op(&input, OP_STOP);
    assert_int_equal(pickle_read(input.data, input.size, false, &document), DCP_OK);
    assert_true(document.arena.total < 64 * input.size);
    pickle_free(&document);
    buffer_free(&input);
}

static void answers_questions_about_values(void **state)
{
    (void)state;
    struct read read;
    const struct pickle_value *root = read_script(
        &read, "PROTO 4 EMPTY_DICT MARK SHORT_BINUNICODE 'a' GLOBAL 'm' 'f' SHORT_BINUNICODE 'b' "
               "GLOBAL 'm' 'f' EMPTY_TUPLE REDUCE SHORT_BINUNICODE 'a' GLOBAL 'm' 'ff' "
               "SHORT_BINBYTES 'b' NONE BININT1 0 NONE SETITEMS STOP");
    assert_true(pickle_is_global(pickle_dict_get(root, "a"), "m", "ff")); /* the later one */
    assert_false(pickle_is_global(pickle_dict_get(root, "a"), "m", "f"));
    assert_false(pickle_is_global(pickle_dict_get(root, "a"), "n", "ff"));
    assert_true(pickle_is_call(pickle_dict_get(root, "b"), "m", "f"));
    assert_false(pickle_is_global(pickle_dict_get(root, "b"), "m", "f"));
    assert_null(pickle_dict_get(root, "c"));
    assert_null(pickle_dict_get(NULL, "c"));
    assert_null(pickle_dict_get(pickle_dict_get(root, "a"), "c"));
    assert_true(pickle_text_is(root->as.sequence.items[0], "a"));
    assert_false(pickle_text_is(root->as.sequence.items[0], "ab"));
    assert_false(pickle_text_is(NULL, "a"));
    assert_string_equal(pickle_kind_name(root), "a dict");
    assert_string_equal(pickle_kind_name(NULL), "nothing");
    read_free(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain_values),
        cmocka_unit_test(reads_integers_of_any_size),
        cmocka_unit_test(accepts_lone_surrogates_but_no_other_bad_text),
        cmocka_unit_test(reads_containers),
        cmocka_unit_test(reads_globals_calls_and_objects),
        cmocka_unit_test(keeps_sharing_and_cycles),
        cmocka_unit_test(pops_values_and_marks),
        cmocka_unit_test(ignores_frames_and_what_follows_stop),
        cmocka_unit_test(numbers_values_densely),
        cmocka_unit_test(refuses_what_breaks_the_rules),
        cmocka_unit_test(refuses_persistent_ids_where_there_are_none),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(reports_every_failed_allocation),
        cmocka_unit_test(reads_deep_nesting_without_recursion),
        cmocka_unit_test(memory_follows_the_input_not_its_claims),
        cmocka_unit_test(answers_questions_about_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
