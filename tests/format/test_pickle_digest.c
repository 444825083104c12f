/* SPDX-License-Identifier: BSD-3-Clause */
/* Pickles parts of which are taken while they are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failing_allocator.h"
#include "format/pickle/pickle.h"
#include "pickle_assembler.h"
#include "rendered_pickle.h"

/* Takes all calls and objects of a class named Take. */
static dcp_status take(void *context, const struct pickle_value *value, uint16_t *tag,
                       const void **digest, bool *taken)
{
    size_t *count = context;
    *taken = value->as.call->callable->kind == PICKLE_GLOBAL &&
             value->as.call->callable->as.global.name_length == 4;
    *tag = (uint16_t)++ * count;
    *digest = context;
    return DCP_OK;
}

static void check_digested(const char *script, const char *expected)
{
    struct buffer input;
    struct pickle_document document;
    size_t count = 0;
    const struct pickle_digester digester = {.digest = take, .context = &count};
    pickle_assemble(&input, script);
    if (pickle_read_digested(input.data, input.size, &digester, &document) != DCP_OK)
        fail_msg("%s: %s", script, dcp_error_message());
    check_rendered(document.root, script, expected);
    pickle_free(&document);
    buffer_free(&input);
}

#define TAKE "GLOBAL 'm' 'Take' "
#define KEEP "GLOBAL 'm' 'Keeper' "

static void offers_finished_objects_to_the_digester(void **state)
{
    (void)state;
    check_digested("PROTO 4 " TAKE "NONE TUPLE1 REDUCE STOP", "digest 1");
    check_digested("PROTO 4 " TAKE "EMPTY_TUPLE NEWOBJ STOP", "object(m.Take ())");
    check_digested("PROTO 4 " TAKE "EMPTY_TUPLE NEWOBJ EMPTY_DICT BUILD STOP", "digest 1");
    check_digested("PROTO 4 " KEEP TAKE "NONE TUPLE1 REDUCE TUPLE1 REDUCE STOP",
                   "call(m.Keeper (digest 1))");
    check_digested("PROTO 4 EMPTY_LIST MARK " TAKE "EMPTY_TUPLE REDUCE " TAKE
                   "EMPTY_LIST TUPLE1 REDUCE NONE APPENDS STOP",
                   "[digest 1 digest 2 None]");
}

static void keeps_what_the_memo_gives_out_of_digested_parts(void **state)
{
    (void)state;
    /* a text made inside the first object is fetched after it */
    check_digested("PROTO 4 " TAKE "SHORT_BINUNICODE 'kept' MEMOIZE BININT1 1 TUPLE1 TUPLE2 REDUCE "
                   "BININT1 8 BINGET 0 TUPLE3 STOP",
                   "(digest 1 8 'kept')");
    /* an older list, kept by the memo, got something from inside the object */
    check_digested("PROTO 4 EMPTY_LIST MEMOIZE " TAKE "BINGET 0 BININT1 5 TUPLE1 APPEND TUPLE1 "
                   "REDUCE BININT1 7 BININT1 9 TUPLE2 TUPLE3 STOP",
                   "([(5)] digest 1 (7 9))");
}

static void digests_objects_in_place_when_the_memo_has_them(void **state)
{
    (void)state;
    check_digested("PROTO 4 " TAKE "EMPTY_TUPLE NEWOBJ MEMOIZE EMPTY_DICT BUILD BINGET 0 TUPLE2 "
                   "STOP",
                   "(digest 1 digest 1)");
    struct pickle_document document;
    struct buffer input;
    size_t count = 0;
    const struct pickle_digester digester = {.digest = take, .context = &count};
    pickle_assemble(&input, "PROTO 4 " TAKE "EMPTY_TUPLE REDUCE NONE BUILD STOP");
    assert_int_equal(pickle_read_digested(input.data, input.size, &digester, &document),
                     DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "BUILD: on a finished object"));
    buffer_free(&input);
}

static void digested_parts_take_no_memory(void **state)
{
    (void)state;
    enum { OBJECTS = 20000 };
    struct pickle_document plain, digested;
    struct buffer input;
    size_t count = 0;
    const struct pickle_digester digester = {.digest = take, .context = &count};
    pickle_assemble(&input, "PROTO 4 EMPTY_LIST " TAKE "MEMOIZE POP MARK");
    for (int i = 0; i < OBJECTS; i++) {
        pickle_get_memo(&input, 0);
        for (int k = 0; k < 20; k++)
            pickle_put_int(&input, k);
        for (int k = 0; k < 19; k++)
            pickle_put_op(&input, OP_TUPLE2);
        pickle_put_op(&input, OP_TUPLE1);
        pickle_put_op(&input, OP_REDUCE);
    }
    pickle_put_op(&input, OP_APPENDS);
    pickle_put_op(&input, OP_STOP);
    assert_int_equal(pickle_read(input.data, input.size, false, &plain), DCP_OK);
    assert_int_equal(pickle_read_digested(input.data, input.size, &digester, &digested), DCP_OK);
    assert_int_equal(digested.root->as.sequence.count, OBJECTS);
    assert_int_equal(digested.root->as.sequence.items[OBJECTS - 1]->tag, OBJECTS);
    assert_true(digested.arena.total * 20 < plain.arena.total);
    pickle_free(&plain);
    pickle_free(&digested);
    buffer_free(&input);
}

static void refuses_deep_nesting_when_digesting(void **state)
{
    (void)state;
    struct pickle_document document;
    size_t count = 0;
    const struct pickle_digester digester = {.digest = take, .context = &count};
    for (int depth = PICKLE_NESTING_MAX; depth <= PICKLE_NESTING_MAX + 1; depth++) {
        struct buffer input;
        pickle_assemble(&input, "PROTO 4");
        for (int i = 0; i < depth; i++)
            pickle_put_op(&input, OP_EMPTY_LIST);
        for (int i = 1; i < depth; i++)
            pickle_put_op(&input, OP_APPEND);
        pickle_put_op(&input, OP_TUPLE1);
        pickle_put_op(&input, OP_STOP);
        dcp_status status = pickle_read_digested(input.data, input.size, &digester, &document);
        if (depth == PICKLE_NESTING_MAX) {
            assert_int_equal(status, DCP_OK);
            pickle_free(&document);
        } else {
            assert_int_equal(status, DCP_ERR_FORMAT);
            assert_non_null(strstr(dcp_error_message(), "nested more than 100 deep"));
        }
        buffer_free(&input);
    }
}

static dcp_status refuse(void *context, const struct pickle_value *value, uint16_t *tag,
                         const void **digest, bool *taken)
{
    (void)context, (void)value, (void)tag, (void)digest, (void)taken;
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "not today");
}

static void returns_the_status_of_the_digester(void **state)
{
    (void)state;
    struct pickle_document document;
    struct buffer input;
    const struct pickle_digester digester = {.digest = refuse};
    pickle_assemble(&input, "PROTO 4 " TAKE "EMPTY_TUPLE REDUCE STOP");
    assert_int_equal(pickle_read_digested(input.data, input.size, &digester, &document),
                     DCP_ERR_UNSUPPORTED);
    assert_string_equal(dcp_error_message(), "not today");
    buffer_free(&input);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offers_finished_objects_to_the_digester),
        cmocka_unit_test(keeps_what_the_memo_gives_out_of_digested_parts),
        cmocka_unit_test(digests_objects_in_place_when_the_memo_has_them),
        cmocka_unit_test(digested_parts_take_no_memory),
        cmocka_unit_test(refuses_deep_nesting_when_digesting),
        cmocka_unit_test(returns_the_status_of_the_digester),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
