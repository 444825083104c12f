/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "format/pickle/pickle.h"

static void check_bytes(struct buffer *out, const char *expected, size_t size)
{
    assert_int_equal(buffer_status(out), DCP_OK);
    assert_int_equal(out->size, size);
    assert_memory_equal(out->data, expected, size);
    buffer_clear(out);
}

#define CHECK_BYTES(out, expected) check_bytes(out, expected, sizeof(expected) - 1)

static void writes_integers_as_python_does(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 0);
    pickle_put_int(&out, 0);
    CHECK_BYTES(&out, "K\0");
    pickle_put_int(&out, 255);
    CHECK_BYTES(&out, "K\xff");
    pickle_put_int(&out, 256);
    CHECK_BYTES(&out, "M\0\1");
    pickle_put_int(&out, 65536);
    CHECK_BYTES(&out, "J\0\0\1\0");
    pickle_put_int(&out, -1);
    CHECK_BYTES(&out, "J\xff\xff\xff\xff");
    pickle_put_int(&out, INT32_MIN);
    CHECK_BYTES(&out, "J\0\0\0\x80");
    pickle_put_int(&out, (int64_t)INT32_MIN - 1);
    CHECK_BYTES(&out, "\x8a\5\xff\xff\xff\x7f\xff");
    pickle_put_int(&out, (int64_t)1 << 31);
    CHECK_BYTES(&out, "\x8a\5\0\0\0\x80\0");
    pickle_put_int(&out, (int64_t)1 << 32);
    CHECK_BYTES(&out, "\x8a\5\0\0\0\0\1");
    pickle_put_int(&out, INT64_MIN);
    CHECK_BYTES(&out, "\x8a\x08\0\0\0\0\0\0\0\x80");
    pickle_put_uint(&out, 7);
    CHECK_BYTES(&out, "K\7");
    pickle_put_uint(&out, UINT64_MAX);
    CHECK_BYTES(&out, "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0");
    pickle_put_long(&out, "", 0);
    CHECK_BYTES(&out, "\x8a\0");
    pickle_put_long(&out, "\xff\xff\xff", 3);
    CHECK_BYTES(&out, "\x8a\1\xff");
    buffer_free(&out);
}

static void writes_long_integers_with_a_long_length(void **state)
{
    (void)state;
    struct buffer out;
    unsigned char bytes[256] = {[255] = 1};
    buffer_init(&out, 0);
    pickle_put_long(&out, bytes, sizeof bytes);
    assert_int_equal(out.size, 5 + sizeof bytes);
    assert_memory_equal(out.data, "\x8b\0\1\0\0", 5);
    buffer_free(&out);
}

static void writes_everything_else(void **state)
{
    (void)state;
    struct buffer out;
    buffer_init(&out, 0);
    pickle_put_protocol(&out, 2);
    pickle_put_none(&out);
    pickle_put_bool(&out, true);
    pickle_put_bool(&out, false);
    pickle_put_op(&out, OP_MARK);
    CHECK_BYTES(&out, "\x80\2N\x88\x89(");
    pickle_put_float(&out, 1.5);
    CHECK_BYTES(&out, "G\x3f\xf8\0\0\0\0\0\0");
    pickle_put_string(&out, "ab\0", 3);
    CHECK_BYTES(&out, "X\3\0\0\0ab\0");
    pickle_put_short_string(&out, "ab", 2);
    CHECK_BYTES(&out, "\x8c\2ab");
    pickle_put_global(&out, "torch", "Size");
    CHECK_BYTES(&out, "ctorch\nSize\n");
    pickle_put_memo(&out, 255);
    pickle_put_memo(&out, 256);
    CHECK_BYTES(&out, "q\xffr\0\1\0\0");
    pickle_get_memo(&out, 255);
    pickle_get_memo(&out, 256);
    CHECK_BYTES(&out, "h\xffj\0\1\0\0");
    char long_text[256];
    memset(long_text, 'x', sizeof long_text);
    pickle_put_short_string(&out, long_text, sizeof long_text);
    assert_memory_equal(out.data, "X\0\1\0\0xx", 7);
    buffer_free(&out);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    static const int64_t numbers[] = {0,         1,         -1,        127,       128,
                                      255,       256,       65535,     65536,     INT32_MAX,
                                      INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 40, -(1LL << 40)};
    enum { COUNT = sizeof numbers / sizeof numbers[0] };
    struct buffer out;
    struct pickle_document document;
    buffer_init(&out, 0);
    pickle_put_protocol(&out, 2);
    pickle_put_op(&out, OP_MARK);
    for (size_t i = 0; i < COUNT; i++)
        pickle_put_int(&out, numbers[i]);
    pickle_put_float(&out, -0.1);
    pickle_put_op(&out, OP_TUPLE);
    pickle_put_op(&out, OP_STOP);
    assert_int_equal(pickle_read(out.data, out.size, false, &document), DCP_OK);
    struct pickle_value **items = document.root->as.sequence.items;
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(items[i]->kind, PICKLE_INT);
        assert_true(items[i]->as.integer == numbers[i]);
    }
    assert_true(items[COUNT]->as.number == -0.1);
    pickle_free(&document);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_integers_as_python_does),
        cmocka_unit_test(writes_long_integers_with_a_long_length),
        cmocka_unit_test(writes_everything_else),
        cmocka_unit_test(what_is_written_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
