/* SPDX-License-Identifier: BSD-3-Clause */
/* What a save was told of its step and with its info comes back from metadata.json, exactly; one
 * that is missing, of another save, or hostile is dealt with. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

static void write_json(const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s/metadata.json", path);
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    fclose(file);
}

static void save(const char *path, bool has_step, int64_t step, const dcp_state *info)
{
    dcp_save_options options = {
        .overwrite = DCP_OVERWRITE_REPLACE, .has_step = has_step, .step = step, .info = info};
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "a", 1);
    must(dcp_save(root, path, &options));
    dcp_state_free(root);
}

static dcp_status ask(const char *path, dcp_state *parent, dcp_save_info *info)
{
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    dcp_status status = dcp_checkpoint_info(checkpoint, parent, "info", info);
    dcp_checkpoint_close(checkpoint);
    return status;
}

static dcp_state *sample(void)
{
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "smallest", INT64_MIN);
    dcp_state_uint(root, "largest", UINT64_MAX);
    dcp_state_float(root, "tenth", 0.1);
    dcp_state_float(root, "one", 1.0);
    dcp_state_float(root, "zero", -0.0);
    dcp_state_float(root, "tiny", 5e-324);
    dcp_state_float(root, "huge", 1.7976931348623157e308);
    dcp_state_float(root, "nan", (double)NAN);
    dcp_state_float(root, "inf", -(double)INFINITY);
    dcp_state_bool(root, "yes", true);
    dcp_state_bool(root, "no", false);
    dcp_state_none(root, "none");
    dcp_state_string(root, "text", "\xc3\xa4 \"quoted\"\n");
    dcp_state *list = dcp_state_list(root, "list");
    dcp_state_int(list, NULL, 9007199254740993);
    dcp_state_dict(dcp_state_dict(list, NULL), "empty");
    return root;
}

static void test_round_trip(void **state)
{
    const char *path = path_in(state, "saved");
    dcp_state *given = sample(), *read = dcp_state_new();
    dcp_save_info info;
    char *before, *after;
    save(path, true, -9007199254740993, given);
    must(ask(path, read, &info));
    assert_true(info.found && info.has_step && info.has_info && !info.stale);
    assert_int_equal(info.step, -9007199254740993);
    assert_int_equal(info.world_size, 1);
    assert_true(info.unix_time > 1500000000);
    must(dcp_state_to_json(given, 0, &before));
    must(dcp_state_to_json(dcp_state_find(read, "info"), 0, &after));
    assert_string_equal(before, after);
    assert_int_equal(dcp_state_kind(dcp_state_find(dcp_state_find(read, "info"), "nan")),
                     DCP_KIND_FLOAT);
    dcp_text_free(before);
    dcp_text_free(after);
    dcp_state_free(given);
    dcp_state_free(read);
}

static void take_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    (void)offset;
    assert_string_equal(file, "metadata.json");
    assert_string_equal(name, "");
    snprintf(context, 1024, "%s", fault);
}

/* The one fault that is found; "": none. */
static const char *verified(const char *path)
{
    static char fault[1024];
    uint64_t faults;
    *fault = '\0';
    must(dcp_verify(path, NULL, take_fault, fault, &faults));
    assert_int_equal(faults, *fault != '\0');
    return fault;
}

static void test_without(void **state)
{
    const char *path = path_in(state, "saved");
    dcp_state *read = dcp_state_new();
    dcp_save_info info;
    save(path, false, 7, NULL);
    must(ask(path, read, &info));
    assert_true(info.found && !info.has_step && !info.has_info);
    assert_int_equal(info.step, 0);
    assert_string_equal(verified(path), "");
    must(dcp_storage_remove(NULL, path, "metadata.json"));
    must(ask(path, read, &info));
    assert_string_equal(verified(path), "");
    assert_false(info.found || info.stale || info.has_step);
    must(ask(FIXTURES "/basic/ckpt", read, &info));
    assert_false(info.found || info.stale);
    must(ask(FIXTURES "/hf_single/ckpt", read, &info));
    assert_false(info.found || info.stale);
    assert_int_equal(dcp_state_count(read), 0);
    dcp_state_free(read);
}

/* A metadata.json of a save that has not come to its commit, or of one before. */
static void test_of_another_save(void **state)
{
    const char *path = path_in(state, "saved");
    dcp_state *read = dcp_state_new();
    dcp_save_info info;
    save(path, true, 7, NULL);
    write_json(path, "{\"save_id\": \"00000000-0000-4000-8000-000000000000\", \"step\": 9, "
                     "\"info\": {\"a\": 1}}");
    must(ask(path, read, &info));
    assert_true(info.stale && !info.found && !info.has_step && !info.has_info);
    assert_int_equal(dcp_state_count(read), 0);
    assert_string_equal(verified(path), "");
    /* That names no save is of another framework. */
    write_json(path, "{\"step\": 9}");
    must(ask(path, read, &info));
    assert_false(info.stale || info.found || info.has_step);
    dcp_state_free(read);
}

/* One of this save's id with something else in it. */
static void write_with(const char *path, const char *members)
{
    dcp_save_info info;
    dcp_checkpoint *checkpoint;
    char text[1024];
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_storage_remove(NULL, path, "metadata.json"));
    must(dcp_checkpoint_info(checkpoint, NULL, NULL, &info));
    snprintf(text, sizeof text, "{\"save_id\": \"%s\", %s}", info.save_id, members);
    write_json(path, text);
    dcp_checkpoint_close(checkpoint);
}

static void test_hostile(void **state)
{
    static const char *const texts[] = {"", "[]", "{", "{\"a\": 1} x", "null", "{\"a\": 01}"};
    static const char *const members[] = {
        "\"step\": 1.5", "\"step\": 9223372036854775808", "\"step\": \"7\"",
        "\"info\": [1]", "\"info\": {\"a\": 1e999}",      "\"info\": {\"a\": nul}"};
    const char *path = path_in(state, "saved");
    char deep[200];
    dcp_state *read = dcp_state_new();
    dcp_save_info info;
    save(path, true, 7, NULL);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        write_with(path, members[i]);
        must_fail(ask(path, read, &info), DCP_ERR_FORMAT, "metadata.json");
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_json(path, texts[i]);
        must_fail(ask(path, read, &info), DCP_ERR_FORMAT, "metadata.json");
        assert_non_null(strstr(verified(path), "metadata.json: "));
    }
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    memcpy(deep, "{\"a\":", 5);
    write_json(path, deep);
    must_fail(ask(path, read, &info), DCP_ERR_FORMAT, "nested deeper");
    write_with(path, "\"info\": {\"a\": 123456789012345678901234567890, \"a\": -0, \"b\": 1E2}");
    must(ask(path, NULL, &info));
    must(ask(path, read, &info));
    assert_string_equal(dcp_state_int_digits(dcp_state_find(dcp_state_find(read, "info"), "a")),
                        "0");
    must_fail(ask(path, read, &info), DCP_ERR_DUPLICATE, "info");
    dcp_state_free(read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_without, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_of_another_save, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_hostile, directory_setup, directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
