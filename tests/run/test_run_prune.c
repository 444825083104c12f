/* SPDX-License-Identifier: BSD-3-Clause */
/* Which checkpoints of a run stay, and that nothing else is ever removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "run/job_scene.h"
#include "run/run_retention.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

/* ---- rules ---- */

/* Whole ones of this run at 10, 20 ... with metrics. */
static void make_candidates(struct run_candidate *candidates, size_t count)
{
    for (size_t i = 0; i < count; i++)
        candidates[i] = (struct run_candidate){.name = "x",
                                               .step = 10 * (int64_t)(i + 1),
                                               .ours = true,
                                               .whole = true,
                                               .unix_time = 1000 + (int64_t)i,
                                               .has_metric = true,
                                               .metric = (double)((i * 7) % 5)};
}

/* A letter for each: k(ept), r(emoved), l(eft). */
static void expect_verdicts(const dcp_run_keep *keep, const struct run_bounds *bounds,
                            struct run_candidate *candidates, size_t count, const char *expected)
{
    const struct run_bounds none = {.now = 2000};
    char found[64] = "";
    run_retention_decide(keep, bounds ? bounds : &none, candidates, count);
    for (size_t i = 0; i < count; i++)
        found[i] = candidates[i].verdict == DCP_RUN_KEPT      ? 'k'
                   : candidates[i].verdict == DCP_RUN_REMOVED ? 'r'
                                                              : 'l';
    assert_string_equal(found, expected);
}

static void each_rule_keeps_its_own(void **state)
{
    (void)state;
    struct run_candidate all[8];
    make_candidates(all, 8); /* metrics 0 2 4 1 3 0 2 4 */
    expect_verdicts(&(dcp_run_keep){0}, NULL, all, 8, "kkkkkkkk");
    expect_verdicts(&(dcp_run_keep){.last = 3}, NULL, all, 8, "rrrrrkkk");
    expect_verdicts(&(dcp_run_keep){.every_steps = 30}, NULL, all, 8, "rrkrrkrk");
    expect_verdicts(&(dcp_run_keep){.best = 2, .metric = "m"}, NULL, all, 8, "krrrrkrk");
    expect_verdicts(&(dcp_run_keep){.best = 1, .metric = "m", .higher_is_better = true}, NULL, all,
                    8, "rrrrrrrk");
    expect_verdicts(&(dcp_run_keep){.younger_seconds = 997}, NULL, all, 8, "rrrrkkkk");
    expect_verdicts(&(dcp_run_keep){.last = 2, .every_steps = 40}, NULL, all, 8, "rrrkrrkk");
    all[1].pinned = true;
    expect_verdicts(&(dcp_run_keep){.last = 1}, NULL, all, 8, "rkrrrrrk");
}

static void what_is_not_whole_or_not_ours_uses_no_slot(void **state)
{
    (void)state;
    struct run_candidate all[6];
    make_candidates(all, 6);
    all[5].whole = false; /* in flight, or about to be replaced */
    all[4].ours = false;
    all[3].whole = false; /* of a dead save */
    expect_verdicts(&(dcp_run_keep){.last = 2}, NULL, all, 6, "rkklll");
    all[5].removing = true;
    expect_verdicts(&(dcp_run_keep){.last = 2}, NULL, all, 6, "rkkllr");
    all[0].whole = false; /* older than a whole one */
    expect_verdicts(&(dcp_run_keep){.last = 1}, NULL, all, 6, "rrkllr");
}

static void nothing_beyond_the_committed_step_is_touched(void **state)
{
    (void)state;
    struct run_candidate all[6];
    make_candidates(all, 6);
    const struct run_bounds bounds = {.now = 2000, .has_bound = true, .bound = 40};
    expect_verdicts(&(dcp_run_keep){.last = 1}, &bounds, all, 6, "rrrkkk");
    for (size_t i = 4; i < 6; i++)
        assert_string_equal(all[i].why, "newer than the save that was committed");
}

static void a_clock_that_was_set_back_removes_nothing(void **state)
{
    (void)state;
    struct run_candidate all[3];
    make_candidates(all, 3);
    const struct run_bounds bounds = {.now = 500};
    expect_verdicts(&(dcp_run_keep){.younger_seconds = 10}, &bounds, all, 3, "kkk");
    all[0].unix_time = 0;
    expect_verdicts(&(dcp_run_keep){.younger_seconds = 10}, NULL, all, 3, "krk");
}

/* ---- directories ---- */

struct reported {
    char text[4096];
};

static void report(void *context, const char *name, dcp_run_verdict verdict, const char *why)
{
    struct reported *reported = context;
    size_t length = strlen(reported->text);
    snprintf(reported->text + length, sizeof reported->text - length, "%s %d (%s)\n", name,
             (int)verdict, why);
}

static uint64_t prune(const char *run, const dcp_run_keep *keep, bool dry,
                      struct reported *reported)
{
    const dcp_run_prune_options options = {
        .keep = keep, .dry_run = dry, .verdict = report, .verdict_context = reported};
    uint64_t removed;
    reported->text[0] = '\0';
    must(dcp_run_prune(run, &options, &removed));
    return removed;
}

static const int64_t six[] = {10, 20, 30, 40, 50, 60};

static void a_run_keeps_the_last_behind_training(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 2, .every_steps = 30};
    const dcp_run_options options = {.keep = &keep};
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    for (int64_t step = 10; step <= 60; step += 10)
        job_save(&job, step);
    must(dcp_run_flush(job.run));
    for (int i = 0; i < 500 && scratch_exists(run, "step_40"); i++)
        usleep(10000);
    job_close(&job);
    scene_expect(
        run, NULL,
        "step_30 30 dcp whole\nstep_50 50 dcp whole\nstep_60 60 dcp whole latest marked\n");
}

/* A run that has ended holds what its rules keep, and not what the last removal has left. */
static void a_closed_run_holds_no_more_than_it_keeps(void **state)
{
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 2};
    const dcp_run_options options = {.keep = &keep};
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "run%d", i);
        const char *run = path_in(state, name);
        job_run(run, &options, six, 6);
        scene_expect(run, NULL, "step_50 50 dcp whole\nstep_60 60 dcp whole latest marked\n");
    }
}

static void foreign_names_stay(void **state)
{
    static const char *const names[] = {"step_5.partial", "old-step_10", "step_10.bak", "step_007",
                                        "mirror"};
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    struct reported reported;
    job_run(run, NULL, six, 3);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        scene_save(NULL, scene_in(run, names[i]));
    scene_save(NULL, scene_in(run, "step_7")); /* of nobody's run */
    scene_write(run, "step_8", "a file");
    scene_write(run, "notes.txt", "mine");
    assert_int_equal(symlink("step_10", scene_in(run, "step_9")), 0);
    assert_int_equal(prune(run, &keep, true, &reported), 0);
    assert_non_null(strstr(reported.text, "step_7 20 (does not say which run's it is)"));
    assert_non_null(strstr(reported.text, "step_10 10 (no rule keeps it)"));
    assert_int_equal(prune(run, &keep, false, &reported), 2);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(scratch_exists(scene_in(run, names[i]), ".metadata"));
    assert_true(scratch_exists(scene_in(run, "step_7"), ".metadata"));
    assert_true(scratch_exists(run, "step_8") && scratch_exists(run, "notes.txt"));
    assert_false(scratch_exists(run, "step_10") || scratch_exists(run, "step_20"));
    assert_true(scratch_exists(run, "step_30"));
}

static void a_copy_by_hand_is_nobodys(void **state)
{
    const char *run = path_in(state, "run");
    char command[4096];
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    struct reported reported;
    job_run(run, NULL, six, 3);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", scene_in(run, "step_10"),
             scene_in(run, "step_15"));
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", scene_in(run, "step_10"),
             scene_in(run, "step_99"));
    assert_int_equal(system(command), 0);
    assert_int_equal(prune(run, &keep, false, &reported), 2);
    assert_non_null(strstr(reported.text, "step_15 20 (a copy of step 10)"));
    assert_true(scratch_exists(run, "step_15") && scratch_exists(run, "step_99"));
    const char *reason = job_resumes(run, NULL, 30);
    assert_non_null(strstr(reason, "step_99 is a copy of step 10"));
}

static void two_jobs_of_a_directory_leave_each_other_alone(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    const dcp_run_options first = {.identity = "first", .mode = DCP_RUN_BLOCKING};
    const dcp_run_options second = {.identity = "second", .mode = DCP_RUN_BLOCKING};
    dcp_run_prune_options options = {.keep = &keep, .identity = "first"};
    uint64_t removed;
    struct job job;
    job_run(run, &first, (const int64_t[]){10, 30, 50}, 3);
    job_run(run, &second, (const int64_t[]){20, 40, 60}, 3);
    must(dcp_run_prune(run, &options, &removed));
    assert_int_equal(removed, 2);
    job_resumes(run, &first, 50);
    job_resumes(run, &second, 60);
    /* A step of the other run is not replaced. */
    job_make(&job, 0, 1);
    job_open(&job, run, &first);
    must_fail(dcp_run_save(job.run, 60), DCP_ERR_EXISTS, "step_60");
    job_close(&job);
    job_resumes(run, &second, 60);
}

static void a_new_run_in_an_old_directory_does_no_harm(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    dcp_run_options fresh = {.fresh = true, .keep = &keep, .mode = DCP_RUN_BLOCKING};
    const dcp_run_options again = {.mode = DCP_RUN_BLOCKING};
    struct job job;
    job_run(run, NULL, (const int64_t[]){100, 700}, 2);
    const char *reason = job_resumes(run, &fresh, -1);
    assert_non_null(strstr(reason, "step_700 is of another run"));
    job_make(&job, 0, 1);
    job_open(&job, run, &fresh);
    job_save(&job, 10);
    job_save(&job, 20);
    must_fail(dcp_run_save(job.run, 100), DCP_ERR_EXISTS, "step_100");
    job_close(&job);
    assert_true(scratch_exists(run, "step_100") && scratch_exists(run, "step_700"));
    /* Started again, it goes on with itself, whatever is newer by its number. */
    reason = job_resumes(run, &again, 20);
    assert_non_null(strstr(reason, "step_700 is of another run"));
}

static void pins_keep(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    struct reported reported;
    job_run(run, NULL, six, 4);
    must(dcp_run_pin(run, "step_20", true, NULL));
    struct {
        dcp_run_pin_options known;
        char grown[8];
    } longer = {.grown = {1}};
    must_fail(dcp_run_pin_sized(run, "step_20", true, &longer.known, sizeof longer),
              DCP_ERR_ARGUMENT, "dcp_run_pin_options");
    must_fail(dcp_run_pin(run, "step_21", true, NULL), DCP_ERR_NOT_FOUND, "step_21");
    must_fail(dcp_run_pin(run, "../step_20", true, NULL), DCP_ERR_ARGUMENT, "name of");
    assert_int_equal(prune(run, &keep, false, &reported), 2);
    assert_non_null(strstr(reported.text, "step_20 0 (pinned)"));
    must(dcp_run_pin(run, "step_20", false, NULL));
    must_fail(dcp_run_pin(run, "step_20", false, NULL), DCP_ERR_NOT_FOUND, "step_20");
    assert_int_equal(prune(run, &keep, false, &reported), 1);
}

static void remains_of_dead_saves_go_and_what_is_owned_stays(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 2};
    struct reported reported;
    job_run(run, NULL, six, 5);
    scene_remove(scene_in(run, "step_20"), ".metadata");
    scene_remove(scene_in(run, "step_50"), ".metadata");
    assert_int_equal(prune(run, &keep, false, &reported), 2);
    assert_non_null(strstr(reported.text, "step_20 10 (left by a save that did not end)"));
    assert_non_null(strstr(reported.text, "step_50 20 (not whole: no .metadata)"));
    assert_true(scratch_exists(run, "step_30") && scratch_exists(run, "step_40"));
    assert_false(scratch_exists(run, "step_10") || scratch_exists(run, "step_20"));
}

/* Directories in which a save has only begun: nothing says whose they are. */
static void what_a_save_begins_with_goes_unless_it_may_be_of_use(void **state)
{
    static const char text[] = "0123456789abcdef.tmp";
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 2};
    const char *prepared = scene_in(run, "step_11"), *stale = scene_in(run, "step_12");
    const char *unwritten = scene_in(run, "step_13"), *other = scene_in(run, "step_14");
    const char *data = scene_in(run, "step_15"), *newer = scene_in(run, "step_99");
    const char *others = scene_in(run, "step_17"), *torch = scene_in(run, "step_18");
    struct reported reported;
    job_run(run, NULL, six, 2);
    scene_write(others, ".dcp_owner", "torn");
    scene_write(others, "__0.g0.extra.dcp_run", "");
    scene_write(others, "__1.g0.extra.rng", "seed");
    scene_write(others, "__1_0.distcp", "data");
    scene_write(torch, "__1_0.distcp", "data");
    scene_write(torch, "train_state.pt", "data");
    scene_write(prepared, ".dcp_owner.0123456789abcdef.tmp", text);
    scene_write(stale, ".dcp_owner", "torn");
    scene_write(stale, "metadata.json.0123456789abcdef.tmp", text);
    scene_write(unwritten, ".dcp_owner", "torn");
    scene_write(unwritten, "__0.g0.extra.dcp_run", "");
    scene_write(other, ".dcp_owner", "torn");
    scene_write(other, "__0.g0.extra.dcp_run", "another");
    scene_write(data, ".dcp_owner", "torn");
    scene_write(data, "__0_0.distcp", "data");
    scene_write(newer, ".dcp_owner", "torn");
    mkdir(scene_in(run, "step_16"), 0777);
    scene_write(run, "step_19", "a file");
    mkdir(path_in(state, "empty"), 0777);
    assert_int_equal(symlink("../empty", scene_in(run, "step_9")), 0);
    assert_int_equal(prune(run, &keep, false, &reported), 5);
    assert_false(scratch_exists(run, "step_11") || scratch_exists(run, "step_12") ||
                 scratch_exists(run, "step_13") || scratch_exists(run, "step_16") ||
                 scratch_exists(run, "step_17"));
    assert_true(scratch_exists(run, "step_14") && scratch_exists(run, "step_15") &&
                scratch_exists(run, "step_18") && scratch_exists(run, "step_19") &&
                scratch_exists(run, "step_9") && scratch_exists(run, "step_99"));
    assert_true(scratch_exists(run, "step_10") && scratch_exists(run, "step_20"));
}

/* Layouts write files before the save begins. */
static void side_files_of_dead_saves_go(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 2};
    const dcp_run_options options = {.layout = DCP_RUN_LAYOUT_KEMPNERFORGE};
    struct reported reported;
    job_run(run, &options, six, 2);
    scene_write(scene_in(run, "step_11"), "train_state.pt", "data");
    scene_write(scene_in(run, "step_12"), "train_state.pt", "data");
    scene_write(scene_in(run, "step_12"), "__0_0.distcp", "data");
    assert_int_equal(prune(run, &keep, false, &reported), 1);
    assert_true(!scratch_exists(run, "step_11") && scratch_exists(run, "step_12"));
}

static int removals_left;

static dcp_status remove_some(void *context, void *directory, const char *name)
{
    if (removals_left-- <= 0)
        return dcp_error_set(DCP_ERR_IO, "%s: the server is gone", name);
    return dcp_storage_files()->remove(context, directory, name);
}

static void an_interrupted_removal_is_not_whole_and_goes_on(void **state)
{
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    dcp_storage storage = *dcp_storage_files();
    struct reported reported;
    storage.remove = remove_some;
    for (int removals = 1; removals < 6; removals++) {
        char name[32];
        snprintf(name, sizeof name, "run%d", removals);
        const char *run = path_in(state, name);
        const dcp_run_prune_options options = {.storage = &storage, .keep = &keep};
        job_run(run, NULL, six, 2);
        removals_left = removals;
        dcp_status status = dcp_run_prune(run, &options, NULL);
        assert_int_equal(status, DCP_ERR_IO);
        job_resumes(run, NULL, 20);
        scene_expect_latest(run, "step_20");
        if (scratch_exists(run, "step_10")) {
            assert_false(scratch_exists(scene_in(run, "step_10"), ".metadata"));
            assert_int_equal(prune(run, &keep, false, &reported), 1);
        }
        assert_false(scratch_exists(run, "step_10"));
    }
}

static void set_age(const char *run, const char *name, time_t seconds)
{
    const time_t when = time(NULL) - seconds;
    const struct timeval times[2] = {{.tv_sec = when}, {.tv_sec = when}};
    assert_int_equal(utimes(scene_in(run, name), times), 0);
}

/* What a process leaves that is killed when a checkpoint is gone already, or its note not there
 * yet. */
static void notes_of_what_is_gone_go(void **state)
{
    static const char gone[] = ".dcp_removing.step_5", failed[] = ".dcp_failed.step_6",
                      old[] = ".dcp_removing.step_10.0123456789abcdef.tmp",
                      young[] = ".dcp_failed.step_10.0123456789abcdef.tmp",
                      foreign[] = ".dcp_removing.other_10.0123456789abcdef.tmp",
                      there[] = ".dcp_failed.step_20";
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 5};
    const char *const all[] = {gone, failed, old, young, foreign, there};
    struct reported reported;
    job_run(run, NULL, six, 2);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        scene_write(run, all[i], "");
    set_age(run, old, 4000);
    set_age(run, foreign, 4000);
    assert_int_equal(prune(run, &keep, true, &reported), 0);
    assert_true(scratch_exists(run, gone));
    assert_int_equal(prune(run, &keep, false, &reported), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(scratch_exists(run, all[i]), i >= 3);
}

static void a_run_of_10000_entries_is_pruned(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    char name[64];
    struct reported reported;
    job_run(run, NULL, six, 2);
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "event.%d", i);
        scene_write(run, name, "");
        snprintf(name, sizeof name, "step_%d", 1000 + i);
        mkdir(scene_in(run, name), 0777);
    }
    assert_int_equal(prune(run, &keep, false, &reported), 1);
    job_resumes(run, NULL, 20);
}

static void other_directories_are_no_runs(void **state)
{
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    const dcp_run_prune_options options = {.keep = &keep};
    scene_save(NULL, path_in(state, "step_1"));
    must_fail(dcp_run_prune(*state, &options, NULL), DCP_ERR_NOT_FOUND, "holds no run");
    scene_write(*state, ".dcp_run", "dcp run 2\n");
    must_fail(dcp_run_prune(*state, &options, NULL), DCP_ERR_FORMAT, ".dcp_run");
    assert_true(scratch_exists(path_in(state, "step_1"), ".metadata"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_keeps_its_own),
        cmocka_unit_test(what_is_not_whole_or_not_ours_uses_no_slot),
        cmocka_unit_test(nothing_beyond_the_committed_step_is_touched),
        cmocka_unit_test(a_clock_that_was_set_back_removes_nothing),
        TEST(a_run_keeps_the_last_behind_training),
        TEST(a_closed_run_holds_no_more_than_it_keeps),
        TEST(foreign_names_stay),
        TEST(a_copy_by_hand_is_nobodys),
        TEST(two_jobs_of_a_directory_leave_each_other_alone),
        TEST(a_new_run_in_an_old_directory_does_no_harm),
        TEST(pins_keep),
        TEST(remains_of_dead_saves_go_and_what_is_owned_stays),
        TEST(what_a_save_begins_with_goes_unless_it_may_be_of_use),
        TEST(side_files_of_dead_saves_go),
        TEST(an_interrupted_removal_is_not_whole_and_goes_on),
        TEST(notes_of_what_is_gone_go),
        TEST(a_run_of_10000_entries_is_pruned),
        TEST(other_directories_are_no_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
