/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "format/streams/item.h"
#include "object_reading.h"
#include "tagged.h"
#include "zip_builder.h"

/* ---- what PyTorch wrote ---- */

static const cJSON *expected_value(const struct fixture *fixture, const char *name)
{
    const cJSON *entry = cJSON_GetObjectItem(fixture->expected, "entries")->child;
    for (; entry != NULL; entry = entry->next)
        if (strcmp(cJSON_GetObjectItem(entry, "fqn")->valuestring, name) == 0)
            return cJSON_GetObjectItem(entry, "value");
    return NULL;
}

struct visit {
    const struct fixture *fixture;
    const char *case_name;
    size_t objects;
};

static void check_object(const struct fixture_piece *piece, void *context)
{
    struct visit *visit = context;
    struct object object;
    if (piece->dtype != DCP_DTYPE_NONE || piece->zstd)
        return;
    visit->objects++;
    dcp_status status =
        object_open(&object, byte_source_memory(piece->stream.data, piece->stream.size));
    if (status != DCP_OK)
        fail_msg("%s: %s: %s", visit->case_name, piece->name, dcp_error_message());
    assert_tagged(object.node, expected_value(visit->fixture, piece->name), visit->case_name,
                  piece->name);
    object_close(&object);
}

static void test_objects_of_pytorch(void **state)
{
    (void)state;
    static const char *const cases[] = {"objects",
                                        "basic",
                                        "nesting",
                                        "no_flatten",
                                        "training_state",
                                        "fsdp2_adam_w2",
                                        "fsdp2_tp_w4",
                                        "hsdp_w4",
                                        "python_3.13_single",
                                        "meta_protocol2",
                                        "torch_2.0.1_single",
                                        "torch_2.2.2_single",
                                        "ddp_like_w2",
                                        "torch_2.15.0_single",
                                        "torch_2.4.1_single",
                                        "torch_2.7.1_single"};
    size_t objects = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture fixture;
        fixture_open(&fixture, cases[i]);
        struct visit visit = {.fixture = &fixture, .case_name = cases[i]};
        fixture_each_piece(&fixture, check_object, &visit);
        objects += visit.objects;
        fixture_close(&fixture);
    }
    assert_true(objects > 200);
}

static void check_opaque(const struct fixture_piece *piece, void *context)
{
    static const struct {
        const char *name, *opaque;
        size_t children;
    } expected[] = {{"numpy.f64", "numpy._core.multiarray.scalar", 2},
                    {"numpy.arr", "numpy._core.multiarray._reconstruct", 4},
                    {"std.date", "datetime.datetime", 1},
                    {"std.range", "builtins.range", 3}};
    struct object object;
    size_t *found = context;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        if (strcmp(piece->name, expected[i].name) != 0)
            continue;
        assert_int_equal(
            object_open(&object, byte_source_memory(piece->stream.data, piece->stream.size)),
            DCP_OK);
        assert_string_equal(dcp_state_opaque_name(object.node), expected[i].opaque);
        assert_int_equal(dcp_state_count(object.node), expected[i].children);
        object_close(&object);
        ++*found;
    }
}

static void test_opaque_nodes_keep_name_and_parts(void **state)
{
    (void)state;
    struct fixture fixture;
    size_t found = 0;
    fixture_open(&fixture, "objects");
    fixture_each_piece(&fixture, check_opaque, &found);
    fixture_close(&fixture);
    assert_int_equal(found, 4);
}

/* ---- pickles made for the purpose ---- */

static void expect_refused(const char *pickle, size_t size, const char *words)
{
    struct object object;
    assert_int_equal(object_open_pickle(&object, pickle, size, NULL, 0), DCP_ERR_FORMAT);
    if (strstr(dcp_error_message(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, dcp_error_message());
    object_close(&object);
}

static void test_sharing_is_kept(void **state)
{
    (void)state;
    struct object object;
    /* [a, a] with a = ['x'] */
    assert_int_equal(READ(&object, "\x80\x02](]q\1X\1\0\0\0xah\1e."), DCP_OK);
    assert_ptr_equal(object_child(&object, 0), object_child(&object, 1));
    assert_int_equal(dcp_state_count(object_child(&object, 0)), 1);
    object_close(&object);
}

static void test_cycles_are_kept(void **state)
{
    (void)state;
    struct object object;
    assert_int_equal(READ(&object, "\x80\x02]q\1h\1a."), DCP_OK);
    assert_ptr_equal(object_child(&object, 0), object.node);
    object_close(&object);
    assert_int_equal(READ(&object, "\x80\x02}q\1X\4\0\0\0selfh\1s."), DCP_OK);
    assert_ptr_equal(object_child(&object, 0), object.node);
    object_close(&object);
    /* An object whose state holds it. */
    assert_int_equal(READ(&object, "\x80\x02"
                                   "cm\nC\n)\x81q\1h\1b."),
                     DCP_OK);
    assert_string_equal(dcp_state_opaque_name(object.node), "m.C");
    assert_ptr_equal(object_child(&object, 0), object.node);
    object_close(&object);
}

static void test_depth_costs_no_stack(void **state)
{
    (void)state;
    enum { DEPTH = 60000 };
    struct object object;
    struct buffer pickle;
    buffer_init(&pickle, 0);
    pickle_put_protocol(&pickle, 2);
    pickle_put_none(&pickle);
    for (size_t i = 0; i < DEPTH; i++)
        pickle_put_op(&pickle, OP_TUPLE1);
    pickle_put_op(&pickle, OP_STOP);
    assert_int_equal(object_open_pickle(&object, pickle.data, pickle.size, NULL, 0), DCP_OK);
    size_t depth = 0;
    for (const dcp_state *node = object.node; node->kind == DCP_KIND_TUPLE; depth++)
        node = dcp_state_at(node, 0);
    assert_int_equal(depth, DEPTH);
    object_close(&object);

    /* Calls of what calls return. */
    buffer_clear(&pickle);
    pickle_put_protocol(&pickle, 2);
    pickle_put_global(&pickle, "m", "f");
    for (size_t i = 0; i < DEPTH; i++) {
        pickle_put_op(&pickle, OP_EMPTY_TUPLE);
        pickle_put_op(&pickle, OP_REDUCE);
    }
    pickle_put_op(&pickle, OP_STOP);
    assert_int_equal(object_open_pickle(&object, pickle.data, pickle.size, NULL, 0), DCP_OK);
    assert_string_equal(dcp_state_opaque_name(object.node), "builtins.object");
    object_close(&object);
    buffer_free(&pickle);
}

static void test_doubling_stays_small(void **state)
{
    (void)state;
    struct object object;
    struct buffer pickle;
    buffer_init(&pickle, 0);
    pickle_put_protocol(&pickle, 2);
    pickle_put_op(&pickle, OP_EMPTY_LIST);
    pickle_put_memo(&pickle, 0);
    for (uint32_t i = 1; i <= 60; i++) {
        pickle_put_op(&pickle, OP_POP);
        pickle_put_op(&pickle, OP_EMPTY_LIST);
        pickle_put_memo(&pickle, i);
        pickle_put_op(&pickle, OP_MARK);
        pickle_get_memo(&pickle, i - 1);
        pickle_get_memo(&pickle, i - 1);
        pickle_put_op(&pickle, OP_APPENDS);
    }
    pickle_put_op(&pickle, OP_STOP);
    assert_int_equal(object_open_pickle(&object, pickle.data, pickle.size, NULL, 0), DCP_OK);
    assert_true(object.pool->arena.total < 64 * 1024);
    object_close(&object);
    buffer_free(&pickle);
}

/* Sets copy the list that they are made of: many sets of one long list are no honest pickle. */
static void test_repetition_is_bounded(void **state)
{
    (void)state;
    struct object object;
    struct buffer pickle;
    buffer_init(&pickle, 0);
    pickle_put_protocol(&pickle, 2);
    pickle_put_global(&pickle, "builtins", "set");
    pickle_put_memo(&pickle, 0);
    pickle_put_op(&pickle, OP_EMPTY_LIST);
    pickle_put_op(&pickle, OP_MARK);
    for (int i = 0; i < 1000; i++)
        pickle_put_int(&pickle, i);
    pickle_put_op(&pickle, OP_APPENDS);
    pickle_put_op(&pickle, OP_TUPLE1);
    pickle_put_memo(&pickle, 1);
    pickle_put_op(&pickle, OP_MARK);
    for (int i = 0; i < 1000; i++) {
        pickle_get_memo(&pickle, 0);
        pickle_get_memo(&pickle, 1);
        pickle_put_op(&pickle, OP_REDUCE);
    }
    pickle_put_op(&pickle, OP_TUPLE);
    pickle_put_op(&pickle, OP_TUPLE3);
    pickle_put_op(&pickle, OP_STOP);
    assert_int_equal(object_open_pickle(&object, pickle.data, pickle.size, NULL, 0),
                     DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "repeats its values"));
    object_close(&object);
    buffer_free(&pickle);
}

/* What a pickle of one value must become. */
static void test_forms_of_calls(void **state)
{
    (void)state;
    static const struct {
        const char *pickle;
        size_t size;
        dcp_kind kind;
        size_t count; /* of children */
        const char *text;
        size_t length;
    } forms[] = {
#define FORM(pickle, kind, count, text)                                                            \
    {pickle, sizeof(pickle) - 1, kind, count, text, sizeof(text) - 1}
        FORM("\x80\x02"
             "c__builtin__\nbytes\n)R.",
             DCP_KIND_BYTES, 0, ""),
        FORM("\x80\x03"
             "cbuiltins\nbytes\n)R.",
             DCP_KIND_BYTES, 0, ""),
        FORM("\x80\x02"
             "c_codecs\nencode\nX\3\0\0\0a\xc3\xbfX\6\0\0\0latin1\x86R.",
             DCP_KIND_BYTES, 0, "a\xff"),
        FORM("\x80\x03"
             "C\2xy.",
             DCP_KIND_BYTES, 0, "xy"),
        FORM("\x80\x02"
             "c__builtin__\nbytearray\n)R.",
             DCP_KIND_BYTEARRAY, 0, ""),
        FORM("\x80\x02"
             "cbuiltins\nbytearray\nC\2\0y\x85R.",
             DCP_KIND_BYTEARRAY, 0, "\0y"),
        FORM("\x80\x02"
             "c__builtin__\nbytearray\nX\2\0\0\0\xc2\x80X\7\0\0\0latin-1\x86R.",
             DCP_KIND_BYTEARRAY, 0, "\x80"),
        FORM("\x80\x05\x96\1\0\0\0\0\0\0\0z.", DCP_KIND_BYTEARRAY, 0, "z"),
        FORM("\x80\x02"
             "c__builtin__\nset\n](K\1K\2e\x85R.",
             DCP_KIND_SET, 2, ""),
        FORM("\x80\x02"
             "cbuiltins\nfrozenset\n)R.",
             DCP_KIND_FROZENSET, 0, ""),
        FORM("\x80\x04\x8f(K\1K\2\x90.", DCP_KIND_SET, 2, ""),
        FORM("\x80\x04(K\1\x91.", DCP_KIND_FROZENSET, 1, ""),
        FORM("\x80\x02"
             "ccollections\nOrderedDict\n)R(K\1K\2K\3K\4u}X\1\0\0\0aK\1sb.",
             DCP_KIND_ORDERED_DICT, 2, ""),
        FORM("\x80\x02"
             "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85RK\1]s.",
             DCP_KIND_DICT, 1, ""),
        FORM("\x80\x02"
             "ccollections\nCounter\n}K\1K\2s\x85R.",
             DCP_KIND_DICT, 1, ""),
        FORM("\x80\x02"
             "ctorch\nSize\nK\2K\3\x86\x85R.",
             DCP_KIND_SIZE, 2, ""),
        FORM("\x80\x02"
             "ctorch\nSize\n)\x85R.",
             DCP_KIND_SIZE, 0, ""),
        FORM("\x80\x02"
             "ctorch\ndevice\nX\4\0\0\0cudaK\1\x86R.",
             DCP_KIND_DEVICE, 0, "cuda:1"),
        FORM("\x80\x02"
             "ctorch\nfloat32\n.",
             DCP_KIND_DTYPE, 0, ""),
        /* Other forms of the same names, and other names. */
        FORM("\x80\x02"
             "c_codecs\nencode\nX\1\0\0\0aX\4\0\0\0utf8\x86R.",
             DCP_KIND_OPAQUE, 2, ""),
        FORM("\x80\x02"
             "cbuiltins\nbytearray\nK\4\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "cbuiltins\ncomplex\nK\4\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "cbuiltins\nset\nK\4\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "ctorch\nSize\nX\1\0\0\0a\x85\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "ctorch\ndevice\nK\1\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "ccollections\nCounter\n)R.",
             DCP_KIND_OPAQUE, 0, ""),
        FORM("\x80\x02"
             "ccollections\ndeque\n)K\5\x86R(K\1K\2e.",
             DCP_KIND_OPAQUE, 3, ""),
        FORM("\x80\x02"
             "ccollections\nUserDict\n)\x81K\1K\2s}b.",
             DCP_KIND_OPAQUE, 2, ""),
        FORM("\x80\x02"
             "cos\nsystem\nX\4\0\0\0true\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "ctorch\nload\n.",
             DCP_KIND_OPAQUE, 0, ""),
        FORM("\x80\x02"
             "cbuiltins\nbytes\nK\4\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "cbuiltins\nbytearray\n)RK\1a.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "cbuiltins\nset\n]]\x86R.",
             DCP_KIND_OPAQUE, 2, ""),
        FORM("\x80\x02"
             "ccollections\nOrderedDict\n]\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "ccollections\ndefaultdict\nNN\x86R.",
             DCP_KIND_OPAQUE, 2, ""),
        FORM("\x80\x02"
             "ctorch\nSize\n]\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02"
             "ctorch\nSize\n("
             "NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNt\x85R.",
             DCP_KIND_OPAQUE, 1, ""),
        FORM("\x80\x02X\3\0\0\0\xed\xa0\x80.", DCP_KIND_OPAQUE, 1, ""),
#undef FORM
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct object object;
        const void *bytes;
        size_t length;
        if (object_open_pickle(&object, forms[i].pickle, forms[i].size, NULL, 0) != DCP_OK)
            fail_msg("form %zu: %s", i, dcp_error_message());
        if (object.node->kind != forms[i].kind || dcp_state_count(object.node) != forms[i].count)
            fail_msg("form %zu is a %s of %zu", i, node_kind_name(object.node->kind),
                     dcp_state_count(object.node));
        if (forms[i].kind == DCP_KIND_BYTES || forms[i].kind == DCP_KIND_BYTEARRAY) {
            assert_int_equal(dcp_state_as_bytes(object.node, &bytes, &length), DCP_OK);
            assert_int_equal(length, forms[i].length);
            assert_memory_equal(bytes, forms[i].text, length);
        }
        object_close(&object);
    }
}

static void test_refused_objects(void **state)
{
    (void)state;
    static const char list_key[] = "\x80\x02}]K\1s.";
    static const char set_key[] = "\x80\x02}c__builtin__\nset\n)RK\1s.";
    static const char set_of_lists[] = "\x80\x02"
                                       "c__builtin__\nset\n]]a\x85R.";
    static const char wide_bytes[] = "\x80\x02"
                                     "c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R.";
    static const char name_of_noise[] = "\x80\x04\x8c\3\xed\xa0\x80\x8c\1f\x93.";
    expect_refused(list_key, sizeof list_key - 1, "cannot be hashed");
    expect_refused(set_key, sizeof set_key - 1, "cannot be hashed");
    expect_refused(set_of_lists, sizeof set_of_lists - 1, "cannot be hashed");
    expect_refused(wide_bytes, sizeof wide_bytes - 1, "above 255");
    expect_refused(name_of_noise, sizeof name_of_noise - 1, "not text");
}

static void test_integers_beyond_all_use_stay_bytes(void **state)
{
    (void)state;
    struct object object;
    struct buffer pickle;
    unsigned char number[4096];
    memset(number, 0x5a, sizeof number);
    buffer_init(&pickle, 0);
    pickle_put_protocol(&pickle, 2);
    pickle_put_long(&pickle, number, sizeof number);
    pickle_put_op(&pickle, OP_STOP);
    assert_int_equal(object_open_pickle(&object, pickle.data, pickle.size, NULL, 0), DCP_OK);
    assert_string_equal(dcp_state_opaque_name(object.node), "builtins.int");
    assert_int_equal(object_child(&object, 0)->as.text.length, sizeof number);
    object_close(&object);
    buffer_free(&pickle);
}

/* ---- hostile checkpoints ---- */

static void check_hostile(const char *name, bool must_fail)
{
    char path[256];
    struct object object;
    snprintf(path, sizeof path, "hostile/%s/ckpt/__9_0.distcp", name);
    struct bytes stream = fixture_file(path);
    dcp_status status = object_open(&object, byte_source_memory(stream.data, stream.size));
    if (must_fail && status == DCP_OK)
        fail_msg("%s was read", name);
    object_close(&object);
    bytes_free(&stream);
}

static void test_hostile_objects(void **state)
{
    (void)state;
    check_hostile("object_runs_code", false);
    check_hostile("object_doubling", false);
    check_hostile("object_self_reference", false);
    check_hostile("object_unhashable_key", true);
    check_hostile("object_deep", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects_of_pytorch),
        cmocka_unit_test(test_opaque_nodes_keep_name_and_parts),
        cmocka_unit_test(test_sharing_is_kept),
        cmocka_unit_test(test_cycles_are_kept),
        cmocka_unit_test(test_depth_costs_no_stack),
        cmocka_unit_test(test_doubling_stays_small),
        cmocka_unit_test(test_repetition_is_bounded),
        cmocka_unit_test(test_forms_of_calls),
        cmocka_unit_test(test_refused_objects),
        cmocka_unit_test(test_integers_beyond_all_use_stay_bytes),
        cmocka_unit_test(test_hostile_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
