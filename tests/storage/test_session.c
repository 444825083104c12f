/* SPDX-License-Identifier: BSD-3-Clause */
/* Beginning, committing, sweeping and abandoning saves, on real files. What is committed here is
 * just bytes: sessions do not look into the metadata. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fault/failing_allocator.h"
#include "sample.h"
#include "scratch.h"
#include "storage/files/files.h"

static struct save_session begin(const char *path, dcp_overwrite overwrite)
{
    struct save_session session;
    assert_int_equal(save_session_begin(&session, dcp_storage_files(), path, overwrite, true, 1800),
                     DCP_OK);
    return session;
}

static dcp_status prepare_and_publish(const struct save_session *session, const char *metadata,
                                      const char *json, bool *visible)
{
    struct save_commit commit;
    *visible = false;
    RETURN_IF_ERROR(save_commit_prepare(&commit, session, metadata, strlen(metadata), json));
    return save_commit_publish(&commit, visible);
}

static void commit(struct save_session *session, const char *metadata, const char *json)
{
    bool visible;
    assert_int_equal(prepare_and_publish(session, metadata, json, &visible), DCP_OK);
    assert_true(visible);
}

static void assert_content(const char *directory, const char *name, const char *expected)
{
    size_t size;
    unsigned char *bytes = scratch_read(directory, name, &size);
    assert_string_equal((const char *)bytes, expected);
    free(bytes);
}

static void a_fresh_directory_is_made_with_its_parents(void **state)
{
    char *path = scratch_path(*state, "a/b/c");
    struct save_session session = begin(path, DCP_OVERWRITE_REFUSE);
    assert_true(session.made_directory);
    assert_false(session.replaces);
    assert_int_equal(session.generation, 0);
    assert_int_equal(strlen(session.save_id), 36);
    assert_memory_equal(session.save_id + 14, "8dc9", 4);
    assert_string_equal(scratch_list(path), ".dcp_owner");
    commit(&session, "contents", "{}");
    save_session_free(&session);
    assert_string_equal(scratch_list(path), ".metadata metadata.json");
    assert_content(path, ".metadata", "contents");
    free(path);
}

static void an_abandoned_save_leaves_nothing(void **state)
{
    char *path = scratch_path(*state, "fresh");
    struct save_session session = begin(path, DCP_OVERWRITE_REFUSE);
    save_session_abandon(&session);
    save_session_free(&session);
    assert_string_equal(scratch_list(*state), "");

    /* A directory that was there, or that something else is in by now, stays. */
    assert_int_equal(mkdir(path, 0777), 0);
    session = begin(path, DCP_OVERWRITE_REFUSE);
    save_session_abandon(&session);
    save_session_free(&session);
    assert_string_equal(scratch_list(*state), "fresh");
    scratch_remove(*state, "fresh");
    session = begin(path, DCP_OVERWRITE_REFUSE);
    scratch_write(path, "notes.txt", "mine", 4);
    save_session_abandon(&session);
    save_session_free(&session);
    assert_string_equal(scratch_list(path), "notes.txt");
    free(path);
}

static void an_existing_checkpoint_is_refused_untouched(void **state)
{
    static const char *const names[] = {".metadata", "__0.metadata", "__3.metadata",
                                        "model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct save_session session;
        scratch_write(*state, names[i], "old", 3);
        assert_int_equal(save_session_begin(&session, dcp_storage_files(), *state,
                                            DCP_OVERWRITE_REFUSE, true, 1800),
                         DCP_ERR_EXISTS);
        assert_null(session.path);
        assert_non_null(strstr(dcp_error_message(), names[i]));
        assert_string_equal(scratch_list(*state), names[i]);
        session = begin(*state, DCP_OVERWRITE_REPLACE);
        assert_true(session.replaces);
        save_session_free(&session);
        scratch_remove(*state, names[i]);
    }
}

static void what_is_no_checkpoint_is_not_in_the_way(void **state)
{
    static const char *const names[] = {
        "metadata.json", ".metadata.tmp",    "__.metadata",
        "__01.metadata", "__1.metadatas",    "__-1.metadata",
        ".safetensors",  "__0.metadata.tmp", "__99999999999.metadata"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        scratch_write(*state, names[i], "", 0);
    struct save_session session = begin(*state, DCP_OVERWRITE_REFUSE);
    assert_false(session.replaces);
    assert_int_equal(session.generation, 0);
    save_session_free(&session);
}

static void generations_pass_over_everything_that_is_there(void **state)
{
    scratch_write(*state, "__0_0.distcp", "debris", 6);
    struct save_session session = begin(*state, DCP_OVERWRITE_REFUSE);
    assert_int_equal(session.generation, 1);
    save_session_free(&session);
    scratch_write(*state, "__2_7.g41.distcp", "", 0);
    scratch_write(*state, "__2_7.g5.distcp", "", 0);
    scratch_write(*state, "__2_7.gx.distcp", "", 0);
    session = begin(*state, DCP_OVERWRITE_REFUSE);
    assert_int_equal(session.generation, 42);
    save_session_free(&session);
    scratch_write(*state, "__0_0.g4294967295.distcp", "", 0);
    assert_int_equal(
        save_session_begin(&session, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, true, 1800),
        DCP_ERR_UNSUPPORTED);
}

static void a_file_in_place_of_the_directory_is_an_error(void **state)
{
    struct save_session session;
    scratch_write(*state, "file", "", 0);
    char *path = scratch_path(*state, "file");
    assert_int_equal(
        save_session_begin(&session, dcp_storage_files(), path, DCP_OVERWRITE_REPLACE, true, 1800),
        DCP_ERR_ARGUMENT);
    free(path);
    path = scratch_path(*state, "file/below");
    assert_int_not_equal(
        save_session_begin(&session, dcp_storage_files(), path, DCP_OVERWRITE_REPLACE, true, 1800),
        DCP_OK);
    free(path);
    assert_string_equal(scratch_list(*state), "file");
}

static void stale_temporary_files_do_not_stop_a_commit(void **state)
{
    struct metadata metadata;
    scratch_write(*state, ".metadata.0123456789abcdef.tmp", "stale", 5);
    scratch_write(*state, ".metadata.0123456789abcdef.commit.tmp", "stale", 5);
    scratch_write(*state, ".dcp_owner.fedcba9876543210.tmp", "stale", 5);
    scratch_write(*state, "metadata.json.0000000000000000.tmp", "stale", 5);
    /* PyTorch's, and what looks like ours. */
    scratch_write(*state, ".metadata.tmp", "not ours", 8);
    scratch_write(*state, ".metadata.0123456789abcdeg.tmp", "not ours", 8);
    scratch_write(*state, "notes.0123456789abcdef.tmp", "not ours", 8);
    struct save_session session = begin(*state, DCP_OVERWRITE_REFUSE);
    commit(&session, "new", "{}");
    metadata_init(&metadata);
    save_session_sweep(&session, &metadata);
    assert_string_equal(scratch_list(*state),
                        ".metadata .metadata.0123456789abcdeg.tmp .metadata.tmp metadata.json "
                        "notes.0123456789abcdef.tmp");
    assert_content(*state, ".metadata", "new");
    save_session_free(&session);
}

static void a_commit_without_json_leaves_the_old_one(void **state)
{
    struct save_session session = begin(*state, DCP_OVERWRITE_REFUSE);
    commit(&session, "new", NULL);
    save_session_free(&session);
    assert_string_equal(scratch_list(*state), ".metadata");
}

static void replacing_sweeps_what_the_old_save_left(void **state)
{
    scratch_write(*state, ".metadata", "old", 3);
    scratch_write(*state, "metadata.json", "old", 3);
    scratch_write(*state, "__0_0.distcp", "old", 3);
    scratch_write(*state, "__1_0.g3.distcp", "old", 3);
    scratch_write(*state, "__2_0.g3.distcp", "old and named", 13);
    scratch_write(*state, "__1.metadata", "old", 3);
    scratch_write(*state, "notes.distcp", "mine", 4);
    scratch_write(*state, "__1.metadata.txt", "mine", 4);
    struct save_session session = begin(*state, DCP_OVERWRITE_REPLACE);
    assert_int_equal(session.generation, 4);
    scratch_write(*state, "__0_0.g4.distcp", "new", 3);
    scratch_write(*state, "__0_1.g4.distcp", "new and empty", 13);
    commit(&session, "new", "{\"new\": 1}");
    const char *files[] = {"__0_0.g4.distcp", "__2_0.g3.distcp"};
    struct metadata metadata;
    metadata_init(&metadata);
    metadata.files = files;
    metadata.file_count = 2;
    save_session_sweep(&session, &metadata);
    assert_string_equal(
        scratch_list(*state),
        ".metadata __0_0.g4.distcp __0_1.g4.distcp __1.metadata.txt __2_0.g3.distcp metadata.json "
        "notes.distcp");
    assert_content(*state, ".metadata", "new");
    assert_content(*state, "metadata.json", "{\"new\": 1}");
    save_session_free(&session);
}

/* ---- file operations that fail at one point ---- */

enum failing { FAIL_NOTHING, FAIL_RENAME, FAIL_RENAME_AFTERWARDS, FAIL_SYNC_DIRECTORY, FAIL_SYNC };

static enum failing failing;
static const char *failing_at; /* the end of where a rename leads to */

static bool ends_so(const char *path)
{
    size_t length = strlen(path), end = strlen(failing_at);
    return length >= end && strcmp(path + length - end, failing_at) == 0;
}

static int fail_renaming(int (*rename)(void *context, int within, const char *from, const char *to),
                         void *context, int within, const char *from, const char *to)
{
    if (failing == FAIL_RENAME && ends_so(to))
        return EIO;
    int result = rename(context, within, from, to);
    return failing == FAIL_RENAME_AFTERWARDS && ends_so(to) ? EIO : result;
}

static int failing_rename(void *context, int within, const char *from, const char *to)
{
    return fail_renaming(file_ops_system.rename, context, within, from, to);
}

static int failing_rename_new(void *context, int within, const char *from, const char *to)
{
    return fail_renaming(file_ops_system.rename_new, context, within, from, to);
}

static int failing_sync_directory(void *context, int within)
{
    return failing == FAIL_SYNC_DIRECTORY ? EIO : file_ops_system.sync_directory(context, within);
}

static int failing_sync(void *context, int descriptor)
{
    return failing == FAIL_SYNC ? EIO : file_ops_system.sync(context, descriptor);
}

static struct save_session begin_failing(const char *path)
{
    static struct file_ops ops;
    static dcp_storage storage;
    struct save_session session;
    ops = file_ops_system;
    ops.rename = failing_rename;
    ops.rename_new = failing_rename_new;
    ops.sync_directory = failing_sync_directory;
    ops.sync = failing_sync;
    failing = FAIL_NOTHING;
    storage = files_storage(&ops);
    assert_int_equal(
        save_session_begin(&session, &storage, path, DCP_OVERWRITE_REPLACE, true, 1800), DCP_OK);
    return session;
}

/* What a failed commit says and leaves. */
static void check_failed_commit(const char *path, enum failing how, const char *where,
                                bool expect_visible, const char *left)
{
    struct save_session session = begin_failing(path);
    bool visible = !expect_visible;
    failing = how;
    failing_at = where;
    /* What is visible and stays has not failed. */
    assert_int_equal(prepare_and_publish(&session, "new", "{}", &visible),
                     expect_visible && *left ? DCP_ERR_UNCONFIRMED : DCP_ERR_IO);
    assert_int_equal(visible, expect_visible);
    save_session_free(&session);
    assert_string_equal(scratch_list(path), left);
}

static void a_failed_commit_leaves_no_checkpoint(void **state)
{
    check_failed_commit(*state, FAIL_SYNC, "", false, "");
    check_failed_commit(*state, FAIL_RENAME, ".metadata", false, "");
    check_failed_commit(*state, FAIL_RENAME, "metadata.json", false, "");
    /* Renamed, and perhaps durable: files must stay, though nothing is to be seen. */
    check_failed_commit(*state, FAIL_RENAME_AFTERWARDS, ".metadata", true, "");
    check_failed_commit(*state, FAIL_SYNC_DIRECTORY, "", true, "");
}

static void a_failed_commit_leaves_the_old_checkpoint(void **state)
{
    scratch_write(*state, ".metadata", "old", 3);
    scratch_write(*state, "metadata.json", "old", 3);
    check_failed_commit(*state, FAIL_SYNC, "", false, ".metadata metadata.json");
    check_failed_commit(*state, FAIL_RENAME, ".metadata", false, ".metadata metadata.json");
    check_failed_commit(*state, FAIL_RENAME, ".commit.tmp", false, ".metadata metadata.json");
    assert_content(*state, ".metadata", "old");
    assert_content(*state, "metadata.json", "old");
    check_failed_commit(*state, FAIL_SYNC_DIRECTORY, "", true, ".metadata metadata.json");
    assert_content(*state, ".metadata", "new");
}

static void a_failure_after_the_commit_is_none(void **state)
{
    bool visible;
    scratch_write(*state, ".metadata", "old", 3);
    struct save_session session = begin_failing(*state);
    failing = FAIL_RENAME;
    failing_at = "metadata.json";
    assert_int_equal(prepare_and_publish(&session, "new", "{}", &visible), DCP_OK);
    assert_true(visible);
    save_session_free(&session);
    assert_string_equal(scratch_list(*state), ".metadata");
}

/* Prepared early, dropped late: nothing of it is left, and what is there stays. */
static void what_is_prepared_is_not_visible(void **state)
{
    struct save_commit prepared = {0};
    save_commit_drop(&prepared);
    scratch_write(*state, ".metadata", "old", 3);
    struct save_session session = begin_failing(*state);
    assert_int_equal(save_commit_prepare(&prepared, &session, "new", 3, "{}"), DCP_OK);
    assert_true(save_commit_is_prepared(&prepared));
    assert_content(*state, ".metadata", "old");
    save_commit_drop(&prepared);
    assert_false(save_commit_is_prepared(&prepared));
    save_session_free(&session);
    assert_string_equal(scratch_list(*state), ".metadata");
}

static void missing_memory_is_an_error(void **state)
{
    char *path = scratch_path(*state, "fresh");
    for (long n = 1;; n++) {
        struct save_session session;
        bool visible = false;
        failing_allocator_install(n, false);
        dcp_status status = save_session_begin(&session, dcp_storage_files(), path,
                                               DCP_OVERWRITE_REFUSE, false, 1800);
        if (status == DCP_OK) {
            status = prepare_and_publish(&session, "new", "{}", &visible);
            if (status != DCP_OK)
                save_session_abandon(&session);
            save_session_free(&session);
        }
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        /* What is done when the save has ended is tried twice, or left to the next one. */
        if (status == DCP_OK) {
            assert_string_equal(scratch_list(path), ".metadata metadata.json");
            scratch_remove(path, ".metadata");
            scratch_remove(path, "metadata.json");
            scratch_remove(*state, "fresh");
            continue;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
        assert_string_equal(scratch_list(*state), "");
    }
    free(path);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_fresh_directory_is_made_with_its_parents),
        TEST(an_abandoned_save_leaves_nothing),
        TEST(an_existing_checkpoint_is_refused_untouched),
        TEST(what_is_no_checkpoint_is_not_in_the_way),
        TEST(generations_pass_over_everything_that_is_there),
        TEST(a_file_in_place_of_the_directory_is_an_error),
        TEST(stale_temporary_files_do_not_stop_a_commit),
        TEST(a_commit_without_json_leaves_the_old_one),
        TEST(replacing_sweeps_what_the_old_save_left),
        TEST(a_failed_commit_leaves_no_checkpoint),
        TEST(a_failed_commit_leaves_the_old_checkpoint),
        TEST(a_failure_after_the_commit_is_none),
        TEST(what_is_prepared_is_not_visible),
        TEST(missing_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
