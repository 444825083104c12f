/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/streams/item.h"
#include "format/zip/zip.h"
#include "object_reading.h"
#include "state/node.h"
#include "state/node_equal.h"

/* A tree to make nodes in, and what encoding one gave. */
struct writing {
    dcp_state *root;
    struct state_pool *pool;
    struct buffer pickle;
};

static int set_up(void **state)
{
    struct writing *writing = calloc(1, sizeof *writing);
    assert_non_null(writing);
    writing->root = dcp_state_new();
    writing->pool = state_pool_new(writing->root->root);
    buffer_init(&writing->pickle, 0);
    *state = writing;
    return 0;
}

static int tear_down(void **state)
{
    struct writing *writing = *state;
    buffer_free(&writing->pickle);
    state_pool_free(writing->pool);
    dcp_state_free(writing->root);
    free(writing);
    return 0;
}

static void expect_bytes(struct writing *writing, const dcp_state *node, const char *pickle,
                         size_t size)
{
    buffer_clear(&writing->pickle);
    assert_int_equal(item_encode_object(node, &writing->pickle), DCP_OK);
    assert_int_equal(writing->pickle.size, size);
    assert_memory_equal(writing->pickle.data, pickle, size);
}

#define EXPECT(writing, node, text) expect_bytes(writing, node, text, sizeof(text) - 1)

static void expect_refused(struct writing *writing, const dcp_state *node, dcp_status expected,
                           const char *words)
{
    buffer_clear(&writing->pickle);
    assert_int_equal(item_encode_object(node, &writing->pickle), expected);
    if (strstr(dcp_error_message(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, dcp_error_message());
}

static dcp_state *container(struct writing *writing, dcp_kind kind)
{
    return node_new(writing->pool, kind);
}

static dcp_state *text(struct writing *writing, const char *value)
{
    return node_text(writing->pool, DCP_KIND_STRING, value, strlen(value));
}

static void append(struct writing *writing, dcp_state *list, dcp_state *value)
{
    assert_int_equal(node_append(writing->pool, list, NULL, value), DCP_OK);
}

static void set(struct writing *writing, dcp_state *dict, const char *key, dcp_state *value)
{
    assert_int_equal(node_append(writing->pool, dict, text(writing, key), value), DCP_OK);
}

/* ---- the bytes that PyTorch writes ---- */

struct comparison {
    size_t same;
    size_t refused;
};

static void compare_piece(const struct fixture_piece *piece, void *context)
{
    struct comparison *comparison = context;
    struct zip_archive archive;
    void *state = NULL, *pickle;
    dcp_state *object;
    if (piece->dtype != DCP_DTYPE_NONE)
        return;
    set_up(&state);
    struct writing *writing = state;
    struct byte_source stream = byte_source_memory(piece->stream.data, piece->stream.size);
    assert_int_equal(item_read_object(stream, writing->pool, &object), DCP_OK);
    assert_int_equal(zip_open(stream, &archive), DCP_OK);
    const struct zip_record *record = zip_find(&archive, "data.pkl");
    assert_int_equal(zip_read(&archive, record, piece->stream.size, &pickle), DCP_OK);
    dcp_status status = item_encode_object(object, &writing->pickle);
    if (status == DCP_ERR_UNSUPPORTED) {
        comparison->refused++;
    } else {
        assert_int_equal(status, DCP_OK);
        /* Empty bytes are the one form that differs. */
        if (strcmp(piece->name, "bytes.empty") != 0) {
            assert_int_equal(writing->pickle.size, record->size);
            assert_memory_equal(writing->pickle.data, pickle, record->size);
            bool equal;
            dcp_state *copy;
            assert_int_equal(node_copy(writing->pool, object, &copy), DCP_OK);
            assert_int_equal(node_equal(object, copy, &equal), DCP_OK);
            assert_true(equal);
            buffer_clear(&writing->pickle);
            assert_int_equal(item_encode_object(copy, &writing->pickle), DCP_OK);
            assert_int_equal(writing->pickle.size, record->size);
            assert_memory_equal(writing->pickle.data, pickle, record->size);
            comparison->same++;
        }
    }
    memory_release(pickle);
    zip_close(&archive);
    tear_down(&state);
}

static void test_bytes_of_pytorch(void **state)
{
    (void)state;
    static const char *const cases[] = {"objects", "training_state", "nesting",
                                        "basic",   "fsdp2_tp_w4",    "no_flatten"};
    struct comparison comparison = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture fixture;
        fixture_open(&fixture, cases[i]);
        fixture_each_piece(&fixture, compare_piece, &comparison);
        fixture_close(&fixture);
    }
    assert_true(comparison.same > 120);
    assert_int_equal(comparison.refused, 3); /* tuples with tensors */
}

/* What is read of a pickle of protocol 2 is written as it was: read, write. */
static void expect_same(const char *pickle, size_t size)
{
    void *state;
    set_up(&state);
    struct writing *writing = state;
    struct object object;
    assert_int_equal(object_open_pickle(&object, pickle, size, NULL, 0), DCP_OK);
    if (item_encode_object(object.node, &writing->pickle) != DCP_OK)
        fail_msg("%s", dcp_error_message());
    assert_int_equal(writing->pickle.size, size);
    assert_memory_equal(writing->pickle.data, pickle, size);
    object_close(&object);
    tear_down(&state);
}

#define EXPECT_SAME(pickle) expect_same(pickle, sizeof(pickle) - 1)

static void test_calls_are_written_as_they_were(void **state)
{
    (void)state;
    EXPECT_SAME("\x80\x02"
                "cm\nC\nq\0.");
    EXPECT_SAME("\x80\x02"
                "cm\nf\nq\0K\1K\2\x86q\1Rq\2.");
    EXPECT_SAME("\x80\x02"
                "cm\nf\nq\0(K\1K\2K\3K\4tq\1Rq\2.");
    EXPECT_SAME("\x80\x02"
                "cm\nC\nq\0)\x81q\1}q\2X\1\0\0\0aq\3K\1sb.");
    EXPECT_SAME("\x80\x02"
                "ccollections\ndeque\nq\0)K\3\x86q\1Rq\2(K\1K\2e.");
    EXPECT_SAME("\x80\x02"
                "ccollections\ndefaultdict\nq\0c__builtin__\nlist\nq\1\x85q\2Rq\3K\1K\2s.");
    EXPECT_SAME("\x80\x02"
                "ccollections\nOrderedDict\nq\0)Rq\1K\1K\2s}q\2X\1\0\0\0aq\3K\1sb.");
    /* appended, set and built, and its own part in each */
    EXPECT_SAME("\x80\x02"
                "cm\nC\nq\0)\x81q\1(K\1h\1e(K\1h\1K\2K\3u}q\2K\1h\1sb.");
    /* what a call returned is called; names of Python 2; a str that is not UTF-8 */
    EXPECT_SAME("\x80\x02"
                "cm\nf\nq\0)Rq\1)Rq\2.");
    EXPECT_SAME("\x80\x02"
                "c__builtin__\nxrange\nq\0K\1K\2\x86q\1Rq\2.");
    EXPECT_SAME("\x80\x02X\3\0\0\0\xed\xa0\x80q\0.");
}

/* What protocol 4 has as "Outer.Inner" is got from Outer; a class whose name has lines is none. */
static void test_names_of_protocol_4(void **state)
{
    struct writing *writing = *state;
    struct object object;
    static const char inner[] = "\x80\x04\x8c\1m\x8c\3A.B\x93.",
                      lines[] = "\x80\x04\x8c\1m\x8c\3A\nB\x93.",
                      expected[] = "\x80\x02"
                                   "c__builtin__\ngetattr\nq\0cm\nA\nq\1X\1\0\0\0Bq\2\x86q\3Rq\4.";
    assert_int_equal(object_open_pickle(&object, inner, sizeof inner - 1, NULL, 0), DCP_OK);
    assert_int_equal(item_encode_object(object.node, &writing->pickle), DCP_OK);
    assert_int_equal(writing->pickle.size, sizeof expected - 1);
    assert_memory_equal(writing->pickle.data, expected, sizeof expected - 1);
    object_close(&object);
    assert_int_equal(object_open_pickle(&object, lines, sizeof lines - 1, NULL, 0), DCP_OK);
    expect_refused(writing, object.node, DCP_ERR_UNSUPPORTED, "several lines");
    object_close(&object);
}

static void test_leaves(void **state)
{
    struct writing *writing = *state;
    struct state_pool *pool = writing->pool;
    dcp_state *node = node_new(pool, DCP_KIND_NONE);
    EXPECT(writing, node, "\x80\x02N.");
    node = node_new(pool, DCP_KIND_BOOL);
    node->as.boolean = true;
    EXPECT(writing, node, "\x80\x02\x88.");
    EXPECT(writing, node_int(pool, 255), "\x80\x02K\xff.");
    EXPECT(writing, node_int(pool, -1), "\x80\x02J\xff\xff\xff\xff.");
    EXPECT(writing, node_int(pool, INT64_MIN), "\x80\x02\x8a\x08\0\0\0\0\0\0\0\x80.");
    EXPECT(writing, node_uint(pool, UINT64_MAX),
           "\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0.");
    EXPECT(writing, node_digits(pool, "-18446744073709551617"),
           "\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xfe.");
    node = node_new(pool, DCP_KIND_FLOAT);
    node->as.number = -1.5;
    EXPECT(writing, node, "\x80\x02G\xbf\xf8\0\0\0\0\0\0.");
    EXPECT(writing, text(writing, "h\xc3\xa9"), "\x80\x02X\3\0\0\0h\xc3\xa9q\0.");
    EXPECT(writing, node_text(pool, DCP_KIND_STRING, "a\0b", 3), "\x80\x02X\3\0\0\0a\0bq\0.");
    node = node_new(pool, DCP_KIND_COMPLEX);
    node->as.complex.real = 1;
    EXPECT(writing, node,
           "\x80\x02"
           "c__builtin__\ncomplex\nq\0G\x3f\xf0\0\0\0\0\0\0G\0\0\0\0\0\0\0\0\x86q\1Rq\2.");
    node = node_new(pool, DCP_KIND_DTYPE);
    node->as.dtype = DCP_BF16;
    EXPECT(writing, node,
           "\x80\x02"
           "ctorch\nbfloat16\nq\0.");
    EXPECT(writing, node_text(pool, DCP_KIND_DEVICE, "cpu", 3),
           "\x80\x02"
           "ctorch\ndevice\nq\0X\3\0\0\0cpuq\1\x85q\2Rq\3.");
    EXPECT(writing, node_text(pool, DCP_KIND_DEVICE, "cuda:1", 6),
           "\x80\x02"
           "ctorch\ndevice\nq\0X\4\0\0\0cudaq\1K\1\x86q\2Rq\3.");
    EXPECT(writing, node_text(pool, DCP_KIND_BYTES, "a\xff", 2),
           "\x80\x02"
           "c_codecs\nencode\nq\0X\3\0\0\0a\xc3\xbfq\1X\6\0\0\0latin1q\2\x86q\3Rq\4.");
    EXPECT(writing, node_text(pool, DCP_KIND_BYTES, "", 0),
           "\x80\x02"
           "c_codecs\nencode\nq\0X\0\0\0\0q\1X\6\0\0\0latin1q\2\x86q\3Rq\4.");
    EXPECT(writing, node_text(pool, DCP_KIND_BYTEARRAY, "", 0),
           "\x80\x02"
           "c__builtin__\nbytearray\nq\0)Rq\1.");
    EXPECT(writing, node_text(pool, DCP_KIND_BYTEARRAY, "a", 1),
           "\x80\x02"
           "c__builtin__\nbytearray\nq\0c_"
           "codecs\nencode\nq\1X\1\0\0\0aq\2X\6\0\0\0latin1q\3\x86q\4Rq\5"
           "\x85q\6Rq\7.");
}

static void test_containers(void **state)
{
    struct writing *writing = *state;
    struct state_pool *pool = writing->pool;
    EXPECT(writing, container(writing, DCP_KIND_LIST), "\x80\x02]q\0.");
    EXPECT(writing, container(writing, DCP_KIND_TUPLE), "\x80\x02).");
    EXPECT(writing, container(writing, DCP_KIND_DICT), "\x80\x02}q\0.");
    EXPECT(writing, container(writing, DCP_KIND_ORDERED_DICT),
           "\x80\x02"
           "ccollections\nOrderedDict\nq\0)Rq\1.");
    EXPECT(writing, container(writing, DCP_KIND_SET),
           "\x80\x02"
           "c__builtin__\nset\nq\0]q\1\x85q\2Rq\3.");
    EXPECT(writing, container(writing, DCP_KIND_SIZE),
           "\x80\x02"
           "ctorch\nSize\nq\0)\x85q\1Rq\2.");

    dcp_state *list = container(writing, DCP_KIND_LIST);
    append(writing, list, node_int(pool, 1));
    EXPECT(writing, list, "\x80\x02]q\0K\1a.");
    append(writing, list, container(writing, DCP_KIND_LIST));
    EXPECT(writing, list, "\x80\x02]q\0(K\1]q\1e.");

    dcp_state *tuple = container(writing, DCP_KIND_TUPLE);
    for (int64_t i = 0; i < 4; i++)
        append(writing, tuple, node_int(pool, i));
    EXPECT(writing, tuple, "\x80\x02(K\0K\1K\2K\3tq\0.");

    dcp_state *dict = container(writing, DCP_KIND_DICT);
    assert_int_equal(node_append(pool, dict, node_int(pool, 7), list), DCP_OK);
    EXPECT(writing, dict, "\x80\x02}q\0K\7]q\1(K\1]q\2es.");

    dcp_state *set_node = container(writing, DCP_KIND_SET);
    append(writing, set_node, node_int(pool, 1));
    append(writing, set_node, node_int(pool, 2));
    EXPECT(writing, set_node,
           "\x80\x02"
           "c__builtin__\nset\nq\0]q\1(K\1K\2e\x85q\2Rq\3.");

    dcp_state *size = container(writing, DCP_KIND_SIZE);
    append(writing, size, node_int(pool, 3));
    EXPECT(writing, size,
           "\x80\x02"
           "ctorch\nSize\nq\0K\3\x85q\1\x85q\2Rq\3.");
    for (int64_t i = 4; i < 7; i++)
        append(writing, size, node_int(pool, i));
    EXPECT(writing, size,
           "\x80\x02"
           "ctorch\nSize\nq\0(K\3K\4K\5K\6tq\1\x85q\2Rq\3.");
}

/* Python's pickler writes in batches of a thousand, and ends exact dicts in a way of its own. */
static void expect_batches(struct writing *writing, dcp_kind kind, int64_t count)
{
    dcp_state *node = container(writing, kind);
    bool is_dict = node_is_dict(node), is_list = kind == DCP_KIND_LIST;
    struct buffer expected;
    buffer_init(&expected, 0);
    pickle_put_protocol(&expected, 2);
    if (kind == DCP_KIND_ORDERED_DICT) {
        pickle_put_global(&expected, "collections", "OrderedDict");
        pickle_put_memo(&expected, 0);
        pickle_put_op(&expected, OP_EMPTY_TUPLE);
        pickle_put_op(&expected, OP_REDUCE);
        pickle_put_memo(&expected, 1);
    } else {
        pickle_put_op(&expected, is_dict ? OP_EMPTY_DICT : OP_EMPTY_LIST);
        pickle_put_memo(&expected, 0);
    }
    for (int64_t i = 0; i < count; i++) {
        bool single = i % 1000 == 0 && i == count - 1 && kind == DCP_KIND_ORDERED_DICT;
        dcp_state *number = node_int(writing->pool, i);
        assert_int_equal(node_append(writing->pool, node, is_dict ? number : NULL, number), DCP_OK);
        if (i % 1000 == 0 && !single)
            pickle_put_op(&expected, OP_MARK);
        pickle_put_int(&expected, i);
        if (is_dict)
            pickle_put_int(&expected, i);
        if (single)
            pickle_put_op(&expected, OP_SETITEM);
        else if (i % 1000 == 999 || i == count - 1)
            pickle_put_op(&expected, is_list ? OP_APPENDS : OP_SETITEMS);
    }
    if (kind == DCP_KIND_DICT && count % 1000 == 0) {
        pickle_put_op(&expected, OP_MARK);
        pickle_put_op(&expected, OP_SETITEMS);
    }
    pickle_put_op(&expected, OP_STOP);
    expect_bytes(writing, node, (const char *)expected.data, expected.size);
    buffer_free(&expected);
}

static void test_batches(void **state)
{
    static const int64_t counts[] = {2, 999, 1000, 1001, 1002, 2000, 2001};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        expect_batches(*state, DCP_KIND_LIST, counts[i]);
        expect_batches(*state, DCP_KIND_DICT, counts[i]);
        expect_batches(*state, DCP_KIND_ORDERED_DICT, counts[i]);
    }
}

static void test_shared_values_go_through_the_memo(void **state)
{
    struct writing *writing = *state;
    dcp_state *list = container(writing, DCP_KIND_LIST), *shared = text(writing, "x");
    append(writing, list, shared);
    append(writing, list, shared);
    EXPECT(writing, list, "\x80\x02]q\0(X\1\0\0\0xq\1h\1e.");

    /* Lists that hold the one before twice, sixty times. */
    dcp_state *node = container(writing, DCP_KIND_LIST);
    for (int i = 0; i < 60; i++) {
        dcp_state *outer = container(writing, DCP_KIND_LIST);
        append(writing, outer, node);
        append(writing, outer, node);
        node = outer;
    }
    buffer_clear(&writing->pickle);
    assert_int_equal(item_encode_object(node, &writing->pickle), DCP_OK);
    assert_true(writing->pickle.size < 1000);

    /* Names and the encoding's name, once each. */
    dcp_state *tuple = container(writing, DCP_KIND_TUPLE);
    append(writing, tuple, node_text(writing->pool, DCP_KIND_BYTES, "a", 1));
    append(writing, tuple, node_text(writing->pool, DCP_KIND_BYTES, "b", 1));
    EXPECT(writing, tuple,
           "\x80\x02"
           "c_codecs\nencode\nq\0X\1\0\0\0aq\1X\6\0\0\0latin1q\2\x86q\3Rq\4"
           "h\0X\1\0\0\0bq\5h\2\x86q\6Rq\7\x86q\10.");
}

static void test_depth_costs_no_stack(void **state)
{
    struct writing *writing = *state;
    enum { DEPTH = 200000 };
    dcp_state *node = node_new(writing->pool, DCP_KIND_NONE);
    for (int i = 0; i < DEPTH; i++) {
        dcp_state *outer = container(writing, i % 2 == 0 ? DCP_KIND_TUPLE : DCP_KIND_LIST);
        append(writing, outer, node);
        node = outer;
    }
    buffer_clear(&writing->pickle);
    assert_int_equal(item_encode_object(node, &writing->pickle), DCP_OK);
}

static void test_cycles_are_refused(void **state)
{
    struct writing *writing = *state;
    dcp_state *list = container(writing, DCP_KIND_LIST);
    append(writing, list, list);
    expect_refused(writing, list, DCP_ERR_ARGUMENT, "object[0] contains itself");

    dcp_state *dict = container(writing, DCP_KIND_DICT),
              *tuple = container(writing, DCP_KIND_TUPLE);
    append(writing, tuple, node_int(writing->pool, 1));
    append(writing, tuple, dict);
    set(writing, dict, "a", tuple);
    expect_refused(writing, dict, DCP_ERR_ARGUMENT, "object['a'][1] contains itself");
}

static void test_what_has_no_form_is_refused(void **state)
{
    struct writing *writing = *state;
    static const float data[4];
    dcp_state *dict = container(writing, DCP_KIND_DICT);
    set(writing, dict, "rng", node_text(writing->pool, DCP_KIND_OPAQUE, "numpy.ndarray", 13));
    expect_refused(writing, dict, DCP_ERR_UNSUPPORTED, "object['rng'] is a numpy.ndarray");

    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {4}, .data = (void *)(uintptr_t)data};
    dcp_state *tuple = container(writing, DCP_KIND_TUPLE);
    append(writing, tuple, node_tensor(writing->pool, &tensor, NULL));
    expect_refused(writing, tuple, DCP_ERR_UNSUPPORTED, "object[0] is a tensor of float32");

    expect_refused(writing, node_new(writing->pool, DCP_KIND_STATEFUL), DCP_ERR_UNSUPPORTED,
                   "stateful");
    expect_refused(writing, node_text(writing->pool, DCP_KIND_DEVICE, "cuda:x", 6),
                   DCP_ERR_ARGUMENT, "not a device");
}

static void test_every_allocation_may_fail(void **state)
{
    struct writing *writing = *state;
    dcp_state *node = container(writing, DCP_KIND_TUPLE);
    for (int i = 0; i < 300; i++) {
        dcp_state *outer = container(writing, DCP_KIND_LIST);
        append(writing, outer, node);
        append(writing, outer, text(writing, "x"));
        node = outer;
    }
    size_t failed = 0;
    for (;; failed++) {
        struct buffer pickle;
        failing_allocator_install(failed);
        buffer_init(&pickle, 0);
        dcp_status status = item_encode_object(node, &pickle);
        buffer_free(&pickle);
        failing_allocator_remove();
        if (status == DCP_OK)
            break;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    assert_true(failed > 10);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_pytorch),
        TEST(test_calls_are_written_as_they_were),
        TEST(test_names_of_protocol_4),
        TEST(test_leaves),
        TEST(test_containers),
        TEST(test_batches),
        TEST(test_shared_values_go_through_the_memo),
        TEST(test_depth_costs_no_stack),
        TEST(test_cycles_are_refused),
        TEST(test_what_has_no_form_is_refused),
        TEST(test_every_allocation_may_fail),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
