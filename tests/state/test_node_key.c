/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "state/node_key.h"

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

static void add_opaque(dcp_state *list, enum opaque_form form, const char *name, const char *bytes)
{
    struct state_pool *pool = list->pool;
    dcp_state *node = node_text(pool, DCP_KIND_OPAQUE, name, strlen(name));
    node->as.opaque->form = form;
    if (bytes)
        node_append(pool, node, NULL, node_text(pool, DCP_KIND_BYTES, bytes, strlen(bytes)));
    node_append(pool, list, NULL, node);
}

static void add_numbers(dcp_state *list)
{
    dcp_state_bool(list, NULL, true);
    dcp_state_bool(list, NULL, false);
    dcp_state_int(list, NULL, 0);
    dcp_state_int(list, NULL, 1);
    dcp_state_int(list, NULL, -1);
    dcp_state_int(list, NULL, INT64_MIN);
    dcp_state_int(list, NULL, (INT64_C(1) << 53) + 1);
    dcp_state_uint(list, NULL, UINT64_C(1) << 63);
    dcp_state_uint(list, NULL, UINT64_MAX);
    dcp_state_digits(list, NULL, "18446744073709551616");
    dcp_state_digits(list, NULL, "-18446744073709551616");
    dcp_state_digits(list, NULL, "18446744073709551617");
    dcp_state_float(list, NULL, 0.0);
    dcp_state_float(list, NULL, -0.0);
    dcp_state_float(list, NULL, 1.0);
    dcp_state_float(list, NULL, 1.5);
    dcp_state_float(list, NULL, -0x1p63);
    dcp_state_float(list, NULL, 0x1p53);
    dcp_state_float(list, NULL, 0x1p63);
    dcp_state_float(list, NULL, 0x1p64);
    dcp_state_float(list, NULL, -0x1p64);
    dcp_state_float(list, NULL, (double)INFINITY);
    dcp_state_float(list, NULL, -(double)INFINITY);
    dcp_state_float(list, NULL, (double)NAN);
    dcp_state_float(list, NULL, (double)NAN);
    dcp_state_float(list, NULL, 0x1.fffffffffffffp1023);
    dcp_state_complex(list, NULL, 1, -0.0);
    dcp_state_complex(list, NULL, 0.0, 2);
    dcp_state_complex(list, NULL, -0.0, 2);
    dcp_state_complex(list, NULL, 1, (double)NAN);
    dcp_state_complex(list, NULL, 1.5, 0);
}

static void add_texts(dcp_state *list)
{
    dcp_state_none(list, NULL);
    dcp_state_string(list, NULL, "");
    dcp_state_string(list, NULL, "1");
    dcp_state_string(list, NULL, "None");
    dcp_state_string(list, NULL, "cpu");
    dcp_state_text(list, NULL, "1\0", 2);
    dcp_state_bytes(list, NULL, "1", 1);
    dcp_state_bytes(list, NULL, "", 0);
    dcp_state_device(list, NULL, "cpu");
    dcp_state_device(list, NULL, "cpu");
    dcp_state_dtype(list, NULL, DCP_F32);
    dcp_state_dtype(list, NULL, DCP_F64);
    dcp_state_dtype(list, NULL, DCP_F32);
    add_opaque(list, OPAQUE_NAME, "builtins.int", NULL);
    add_opaque(list, OPAQUE_NAME, "builtins.int", NULL);
    add_opaque(list, OPAQUE_NAME, "builtins.str", NULL);
    add_opaque(list, OPAQUE_CALL, "a.b", NULL);
    add_opaque(list, OPAQUE_CALL, "a.b", NULL);
    add_opaque(list, OPAQUE_STRING, "builtins.str", "\xed\xa0\x80");
    add_opaque(list, OPAQUE_STRING, "builtins.str", "\xed\xa0\x80");
    add_opaque(list, OPAQUE_INTEGER, "builtins.int", "\xed\xa0\x80");
    add_opaque(list, OPAQUE_INTEGER, "builtins.int", "\xed\xa0\x80");
}

/* (), (1,), (True, 2), frozensets of them in two orders, and torch.Sizes. */
static void add_compounds(dcp_state *list)
{
    const int64_t sizes[] = {1, 2};
    dcp_state_tuple(list, NULL);
    dcp_state_frozenset(list, NULL);
    dcp_state_size(list, NULL, NULL, 0);
    dcp_state_int(dcp_state_tuple(list, NULL), NULL, 1);
    dcp_state_float(dcp_state_tuple(list, NULL), NULL, 1);
    dcp_state_string(dcp_state_tuple(list, NULL), NULL, "1");
    dcp_state_tuple(dcp_state_tuple(list, NULL), NULL);
    dcp_state *pair = dcp_state_tuple(list, NULL);
    dcp_state_bool(pair, NULL, true);
    dcp_state_int(pair, NULL, 2);
    dcp_state_size(list, NULL, sizes, 2);
    for (int order = 0; order < 2; order++) {
        dcp_state *outer = dcp_state_tuple(list, NULL), *set = dcp_state_frozenset(outer, NULL);
        for (int i = 0; i < 3; i++) {
            int element = order ? 2 - i : i;
            if (element == 0)
                dcp_state_string(set, NULL, "in a set");
            else if (element == 1)
                dcp_state_int(set, NULL, 7);
            else
                dcp_state_int(dcp_state_frozenset(set, NULL), NULL, 5);
        }
    }
    /* a frozenset that holds equal ones, as a stream may claim: each counts once */
    for (int times = 1; times < 3; times++) {
        dcp_state *set = dcp_state_frozenset(dcp_state_tuple(list, NULL), NULL);
        for (int i = 0; i < times; i++)
            dcp_state_int(dcp_state_tuple(set, NULL), NULL, 9);
    }
}

/* Those that are equal, by positions in their list; all others differ. */
struct equals {
    size_t left, right;
};

static bool are_expected_equal(const struct equals *equals, size_t count, size_t a, size_t b)
{
    for (size_t i = 0; i < count; i++)
        if ((equals[i].left == a && equals[i].right == b) ||
            (equals[i].left == b && equals[i].right == a))
            return true;
    return a == b;
}

static bool keys_equal(const dcp_state *left, const dcp_state *right)
{
    struct buffer a, b;
    struct key_form plain_left, plain_right;
    buffer_init(&a, 0);
    buffer_init(&b, 0);
    assert_int_equal(key_write(left, DCP_ERR_ARGUMENT, &a), DCP_OK);
    assert_int_equal(key_write(right, DCP_ERR_ARGUMENT, &b), DCP_OK);
    bool equal = a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
    key_form(left, &plain_left);
    key_form(right, &plain_right);
    if (!key_is_compound(left))
        assert_int_equal(key_form_equal(&plain_left, &plain_right), equal);
    buffer_free(&a);
    buffer_free(&b);
    return equal;
}

static void check_all(const dcp_state *list, const struct equals *equals, size_t count)
{
    for (size_t i = 0; i < dcp_state_count(list); i++)
        for (size_t j = 0; j < dcp_state_count(list); j++)
            if (keys_equal(dcp_state_at(list, i), dcp_state_at(list, j)) !=
                are_expected_equal(equals, count, i, j))
                fail_msg("%zu and %zu are %sexpected to be equal", i, j,
                         are_expected_equal(equals, count, i, j) ? "" : "not ");
}

#define CHECK_ALL(list, equals) check_all(list, equals, sizeof(equals) / sizeof *(equals))

static void numbers_are_equal_by_value(void **state)
{
    static const struct equals equals[] = {{0, 3},  {0, 14}, {0, 26}, {3, 14},  {3, 26},  {14, 26},
                                           {1, 2},  {1, 12}, {1, 13}, {2, 12},  {2, 13},  {12, 13},
                                           {5, 16}, {7, 18}, {9, 19}, {10, 20}, {27, 28}, {15, 30}};
    dcp_state *list = dcp_state_list(*state, "list");
    add_numbers(list);
    CHECK_ALL(list, equals);
}

static void texts_are_equal_within_their_class(void **state)
{
    static const struct equals equals[] = {{8, 9}, {10, 12}, {13, 14}, {18, 19}, {20, 21}};
    dcp_state *list = dcp_state_list(*state, "list");
    add_texts(list);
    CHECK_ALL(list, equals);
}

static void parts_are_compared(void **state)
{
    static const struct equals equals[] = {{0, 2}, {3, 4}, {7, 8}, {9, 10}, {11, 12}};
    dcp_state *list = dcp_state_list(*state, "list");
    add_compounds(list);
    CHECK_ALL(list, equals);
}

static void what_has_no_hash_is_reported(void **state)
{
    dcp_state *tuple = dcp_state_tuple(*state, "tuple");
    struct buffer form;
    dcp_state_list(dcp_state_tuple(tuple, NULL), NULL);
    buffer_init(&form, 0);
    assert_int_equal(key_write(tuple, DCP_ERR_FORMAT, &form), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "a list, which cannot be hashed"));
    buffer_free(&form);
    static const dcp_kind kinds[] = {DCP_KIND_LIST,      DCP_KIND_DICT,     DCP_KIND_ORDERED_DICT,
                                     DCP_KIND_SET,       DCP_KIND_STATEFUL, DCP_KIND_STREAM,
                                     DCP_KIND_BYTEARRAY, DCP_KIND_PAIR};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_false(key_is_hashable(&(dcp_state){.kind = kinds[i]}));
    assert_true(key_is_hashable(&(dcp_state){.kind = DCP_KIND_FROZENSET}));
}

/* Each level holds the one below twice: a form of 2^60 parts, of which the buffer takes no more
 * than its maximum. */
static void shared_parts_are_limited(void **state)
{
    struct state_pool *pool = ((dcp_state *)*state)->pool;
    dcp_state *below = node_int(pool, 1);
    struct buffer form;
    for (int i = 0; i < 60; i++) {
        dcp_state *tuple = node_new(pool, DCP_KIND_TUPLE);
        node_append(pool, tuple, NULL, below);
        node_append(pool, tuple, NULL, below);
        below = tuple;
    }
    buffer_init(&form, 100000);
    assert_int_equal(key_write(below, DCP_ERR_FORMAT, &form), DCP_ERR_UNSUPPORTED);
    buffer_free(&form);
}

static void memory_failures_are_reported(void **state)
{
    dcp_state *list = dcp_state_list(*state, "list");
    add_compounds(list);
    for (long n = 1;; n++) {
        dcp_status status = DCP_OK;
        failing_allocator_install(n, false);
        for (size_t i = 0; i < dcp_state_count(list) && status == DCP_OK; i++) {
            struct buffer form;
            buffer_init(&form, 0);
            status = key_write(dcp_state_at(list, i), DCP_ERR_FORMAT, &form);
            buffer_free(&form);
        }
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, root_new, root_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_are_equal_by_value), TEST(texts_are_equal_within_their_class),
        TEST(parts_are_compared),         TEST(what_has_no_hash_is_reported),
        TEST(shared_parts_are_limited),   TEST(memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
