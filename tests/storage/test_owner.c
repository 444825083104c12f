/* SPDX-License-Identifier: BSD-3-Clause */
/* Marks: when one is in the way of a save and when it is taken over, what the message says, and
 * that a save which was taken for dead harms nothing. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "scratch.h"
#include "storage/commit/save_mark.h"
#include "storage/commit/save_owner.h"
#include "storage/open/directory.h"
#include "storage/shard/shard_writer.h"

/* In place of the C library's: generations are the next one. */
ssize_t getrandom(void *bytes, size_t size, unsigned flags)
{
    if (size != sizeof(uint16_t))
        return syscall(SYS_getrandom, bytes, size, flags);
    memset(bytes, 0, size);
    return (ssize_t)size;
}

#define OTHER_ID "01234567-89ab-8dc9-8def-0123456789ab"

static dcp_status begin(struct save_session *session, const char *path, double takeover_seconds)
{
    return save_session_begin(session, dcp_storage_files(), path, DCP_OVERWRITE_REPLACE, false,
                              takeover_seconds);
}

static void write_mark(const char *path, const struct save_mark *mark)
{
    char text[SAVE_MARK_SIZE];
    size_t length = save_mark_print(mark, text);
    scratch_write(path, OWNER_NAME, text, length);
}

/* A save begins in a directory with that mark, which it takes over or not. */
static void try_mark(const char *path, const struct save_mark *mark, bool taken_over)
{
    struct save_session session;
    write_mark(path, mark);
    dcp_status status = begin(&session, path, 100);
    assert_int_equal(status, taken_over ? DCP_OK : DCP_ERR_BUSY);
    if (taken_over) {
        save_session_free(&session);
        assert_string_equal(scratch_list(path), "");
    } else {
        const char *text = dcp_error_message();
        assert_non_null(strstr(text, mark->save_id));
        assert_non_null(strstr(text, mark->process.host));
        assert_non_null(strstr(text, ".dcp_owner"));
        assert_string_equal(scratch_list(path), OWNER_NAME);
        scratch_remove(path, OWNER_NAME);
    }
}

static void wait_for(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
}

static pid_t start_sleeper(void)
{
    pid_t child = fork();
    if (child == 0) {
        /* A test that fails does not end it. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return child;
}

/* Its own start is not known to a mark that another process writes for it. */
static struct save_mark mark_of(pid_t process)
{
    struct save_mark mark;
    save_mark_init(&mark, OTHER_ID);
    mark.process.pid = (uint64_t)process;
    mark.process.started = 0;
    return mark;
}

static void a_process_that_runs_is_waited_for(void **state)
{
    pid_t child = start_sleeper();
    struct save_mark mark = mark_of(child);
    try_mark(*state, &mark, false);
    assert_non_null(strstr(dcp_error_message(), "end that process"));
    /* However old the mark is. */
    mark.since -= 1000000;
    try_mark(*state, &mark, false);
    /* The process that has the number now is another one. */
    mark.process.started = 1;
    try_mark(*state, &mark, true);
    mark.process.started = 0;
    /* Killed, but nobody has waited for it. */
    siginfo_t information;
    kill(child, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)child, &information, WEXITED | WNOWAIT), 0);
    try_mark(*state, &mark, true);
    wait_for(child);
    try_mark(*state, &mark, true);
}

static void this_process_knows_its_saves(void **state)
{
    struct save_mark mark;
    save_mark_init(&mark, OTHER_ID);
    try_mark(*state, &mark, true);
    struct save_live live = {.save_id = OTHER_ID};
    save_live_add(&live);
    try_mark(*state, &mark, false);
    save_live_remove(&live);
    try_mark(*state, &mark, true);
    /* Of another copy of the library in the process nothing is known but that it runs. */
    mark.process.library++;
    try_mark(*state, &mark, false);
}

static void what_is_elsewhere_is_judged_by_its_age(void **state)
{
    struct save_mark mark;
    save_mark_init(&mark, OTHER_ID);
    snprintf(mark.process.host, sizeof mark.process.host, "elsewhere");
    snprintf(mark.process.boot, sizeof mark.process.boot, "another");
    try_mark(*state, &mark, false);
    assert_non_null(strstr(dcp_error_message(), "100 seconds old (takeover_seconds)"));
    mark.since -= 90;
    try_mark(*state, &mark, false);
    mark.since -= 20;
    try_mark(*state, &mark, true);
    /* A clock that goes ahead, and one that is wrong. */
    mark.since = clock_wall_ns() / 1000000000 + 50;
    try_mark(*state, &mark, false);
    mark.since += 100;
    try_mark(*state, &mark, true);
    /* The same machine, but another container; nobody who knows its boot. */
    save_mark_init(&mark, OTHER_ID);
    snprintf(mark.process.space, sizeof mark.process.space, "pid:[1]");
    try_mark(*state, &mark, false);
    mark.since -= 110;
    try_mark(*state, &mark, true);
    save_mark_init(&mark, OTHER_ID);
    mark.process.boot[0] = '\0';
    try_mark(*state, &mark, false);
}

/* The name of a host that was started anew tells enough, but for containers. */
static void a_host_that_was_started_anew_has_no_saves(void **state)
{
    struct save_mark mark;
    save_mark_init(&mark, OTHER_ID);
    bool outermost = strcmp(mark.process.space, "pid:[4026531836]") == 0;
    snprintf(mark.process.boot, sizeof mark.process.boot, "another");
    try_mark(*state, &mark, outermost);
    snprintf(mark.process.space, sizeof mark.process.space, "pid:[1]");
    try_mark(*state, &mark, false);
}

/* As a power cut may leave it. */
static void a_torn_mark_is_taken_over(void **state)
{
    struct save_mark mark;
    char text[SAVE_MARK_SIZE], zeros[2 * SAVE_MARK_SIZE] = {0};
    save_mark_init(&mark, OTHER_ID);
    size_t length = save_mark_print(&mark, text);
    for (size_t cut = 0; cut <= length; cut += cut + 10 < length ? 10 : 1) {
        struct save_session session;
        /* Of this process, and left by none of its saves: that is stale as a whole. */
        scratch_write(*state, OWNER_NAME, text, cut);
        assert_int_equal(begin(&session, *state, 100), DCP_OK);
        save_session_free(&session);
        struct save_mark parsed;
        assert_int_equal(save_mark_parse(text, cut, &parsed), cut == length);
    }
    for (size_t size = 1; size <= sizeof zeros; size *= 2) {
        struct save_session session;
        scratch_write(*state, OWNER_NAME, zeros, size);
        assert_int_equal(begin(&session, *state, 100), DCP_OK);
        save_session_free(&session);
    }
    assert_string_equal(scratch_list(*state), "");
}

static void a_mark_is_read_as_it_was_written(void **state)
{
    struct save_mark mark, parsed;
    char text[SAVE_MARK_SIZE];
    (void)state;
    save_mark_init(&mark, OTHER_ID);
    assert_true(save_mark_parse(text, save_mark_print(&mark, text), &parsed));
    assert_string_equal(parsed.save_id, mark.save_id);
    assert_string_equal(parsed.process.host, mark.process.host);
    assert_string_equal(parsed.process.boot, mark.process.boot);
    assert_string_equal(parsed.process.space, mark.process.space);
    assert_true(parsed.process.pid == mark.process.pid);
    assert_true(parsed.process.started == mark.process.started);
    assert_true(parsed.process.library == mark.process.library);
    assert_true(parsed.since == mark.since);
    assert_true(mark.process.started != 0 && mark.process.boot[0] && mark.process.host[0]);
    /* What a later version adds is passed over; what is hostile does not get into messages. */
    static const char other[] = "dcp save 1\nsave a\x1b[2J b\nshoe size 46\n\nlone\npid x\nend\n";
    assert_true(save_mark_parse(other, sizeof other - 1, &parsed));
    assert_string_equal(parsed.save_id, "a?[2J?b");
    static const char version[] = "dcp save 2\nsave a\nend\n";
    assert_false(save_mark_parse(version, sizeof version - 1, &parsed));
}

/* ---- a save that was taken for dead ---- */

static dcp_status commit(const struct save_session *session, const char *metadata, bool *visible)
{
    struct save_commit prepared;
    *visible = true;
    dcp_status status =
        save_commit_prepare(&prepared, session, metadata, strlen(metadata), "{\"json\": 1}");
    return status == DCP_OK ? save_commit_publish(&prepared, visible) : status;
}

static void assert_content(const char *directory, const char *name, const char *expected)
{
    size_t size;
    unsigned char *bytes = scratch_read(directory, name, &size);
    assert_string_equal((const char *)bytes, expected);
    free(bytes);
}

/* As if the session's save were one of long ago, elsewhere. */
static void age(const char *path, const struct save_session *session)
{
    struct save_mark mark;
    save_mark_init(&mark, session->save_id);
    snprintf(mark.process.boot, sizeof mark.process.boot, "another");
    snprintf(mark.process.host, sizeof mark.process.host, "elsewhere");
    mark.since -= 4000;
    write_mark(path, &mark);
}

static void the_one_that_was_taken_over_harms_nothing(void **state)
{
    for (int replaces = 0; replaces < 2; replaces++) {
        for (int late = 0; late < 2; late++) {
            struct save_session first, second;
            bool visible;
            if (replaces)
                scratch_write(*state, ".metadata", "old", 3);
            assert_int_equal(begin(&first, *state, 100), DCP_OK);
            age(*state, &first);
            assert_int_equal(begin(&second, *state, 100), DCP_OK);
            assert_int_equal(second.generation, first.generation + 1);
            if (late)
                assert_int_equal(commit(&second, "second", &visible), DCP_OK);
            assert_int_equal(commit(&first, "first", &visible), DCP_ERR_BUSY);
            assert_false(visible);
            assert_non_null(strstr(dcp_error_message(), second.save_id));
            if (!late)
                assert_int_equal(commit(&second, "second", &visible), DCP_OK);
            save_session_abandon(&first);
            save_session_free(&first);
            assert_content(*state, ".metadata", "second");
            assert_content(*state, "metadata.json", "{\"json\": 1}");
            assert_true(scratch_exists(*state, OWNER_NAME));
            save_session_free(&second);
            assert_string_equal(scratch_list(*state), ".metadata metadata.json");
            scratch_remove(*state, ".metadata");
            scratch_remove(*state, "metadata.json");
        }
    }
}

/* By whoever heeds no marks. */
static void what_is_changed_meanwhile_stays(void **state)
{
    static const char *const before[] = {NULL, "old", "old"};
    static const char *const after[] = {"theirs", "theirs", NULL};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        struct save_session session;
        bool visible;
        if (before[i])
            scratch_write(*state, ".metadata", before[i], strlen(before[i]));
        assert_int_equal(begin(&session, *state, 100), DCP_OK);
        if (before[i])
            scratch_remove(*state, ".metadata");
        if (after[i])
            scratch_write(*state, ".metadata", after[i], strlen(after[i]));
        assert_int_equal(commit(&session, "ours", &visible), DCP_ERR_BUSY);
        assert_false(visible);
        assert_non_null(strstr(dcp_error_message(), "was changed during this save"));
        save_session_free(&session);
        assert_string_equal(scratch_list(*state), after[i] ? ".metadata" : "");
        if (after[i]) {
            assert_content(*state, ".metadata", after[i]);
            scratch_remove(*state, ".metadata");
        }
    }
}

static void a_mark_that_was_removed_stops_the_commit(void **state)
{
    struct save_session session;
    bool visible;
    assert_int_equal(begin(&session, *state, 100), DCP_OK);
    scratch_remove(*state, OWNER_NAME);
    assert_int_equal(commit(&session, "ours", &visible), DCP_ERR_BUSY);
    assert_non_null(strstr(dcp_error_message(), "another process has removed the mark"));
    save_session_free(&session);
    assert_string_equal(scratch_list(*state), "");
}

/* Of another save's generation, and rank-local metadata that came later. */
static void what_may_be_of_a_later_save_is_not_swept(void **state)
{
    struct save_session session;
    struct metadata metadata;
    bool visible;
    scratch_write(*state, "__0_0.g2.distcp", "old", 3);
    assert_int_equal(begin(&session, *state, 100), DCP_OK);
    assert_int_equal(session.generation, 3);
    scratch_write(*state, "__0_0.g4.distcp", "later", 5);
    scratch_write(*state, "__0.metadata", "later", 5);
    assert_int_equal(commit(&session, "ours", &visible), DCP_OK);
    metadata_init(&metadata);
    save_session_sweep(&session, &metadata);
    assert_string_equal(scratch_list(*state),
                        ".metadata __0.metadata __0_0.g4.distcp metadata.json");
    save_session_free(&session);
}

/* Temporary files there may be the other save's. */
static void the_one_that_was_taken_over_sweeps_nothing(void **state)
{
    static const char temporary[] = ".metadata.0123456789abcdef.tmp";
    struct save_session first, second;
    struct metadata metadata;
    bool visible;
    assert_int_equal(begin(&first, *state, 100), DCP_OK);
    assert_int_equal(commit(&first, "first", &visible), DCP_OK);
    age(*state, &first);
    assert_int_equal(begin(&second, *state, 100), DCP_OK);
    scratch_write(*state, temporary, "second", 6);
    metadata_init(&metadata);
    save_session_sweep(&first, &metadata);
    assert_true(scratch_exists(*state, temporary));
    assert_true(scratch_exists(*state, OWNER_NAME));
    save_session_free(&first);
    save_session_sweep(&second, &metadata);
    assert_string_equal(scratch_list(*state), ".metadata metadata.json");
    save_session_free(&second);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_process_that_runs_is_waited_for),
        TEST(this_process_knows_its_saves),
        TEST(what_is_elsewhere_is_judged_by_its_age),
        TEST(a_host_that_was_started_anew_has_no_saves),
        TEST(a_torn_mark_is_taken_over),
        TEST(a_mark_is_read_as_it_was_written),
        TEST(the_one_that_was_taken_over_harms_nothing),
        TEST(the_one_that_was_taken_over_sweeps_nothing),
        TEST(what_is_changed_meanwhile_stays),
        TEST(a_mark_that_was_removed_stops_the_commit),
        TEST(what_may_be_of_a_later_save_is_not_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
