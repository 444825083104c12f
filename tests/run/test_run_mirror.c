/* SPDX-License-Identifier: BSD-3-Clause */
/* Mirrors of a run: copies behind training, retention that waits for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "run/job_scene.h"
#include "run/mirror_scene.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

/* ---- what is told ---- */

static dcp_run_mirror_state wait_for_failure(struct job *job)
{
    dcp_run_mirror_state fares = {0};
    for (int i = 0; i < 500 && fares.failures == 0; i++) {
        must(dcp_run_mirror_status(job->run, 0, &fares));
        mirror_pause();
    }
    assert_true(fares.failures > 0);
    return fares;
}

static size_t count_lines(const char *run, const char *words)
{
    size_t size, count = 0;
    unsigned char *text = scratch_read(run, "dcp_saves.jsonl", &size);
    char *copy = calloc(1, size + 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    for (const char *at = strstr(copy, words); at; at = strstr(at + 1, words))
        count++;
    free(copy);
    free(text);
    return count;
}

/* ---- copies ---- */

static void every_checkpoint_is_copied_behind_training(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    const dcp_run_mirror mirror = mirror_at(far, NULL);
    dcp_run_options options = mirror_options(&mirror, 1, NULL);
    dcp_run_mirror_state fares;
    options.mode = DCP_RUN_ASYNC;
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    must(dcp_run_add_file(job.run, "rng", "seed", 4));
    job_save(&job, 10);
    job_save(&job, 20);
    mirror_wait_there(far, "step_10");
    mirror_wait_there(far, "step_20");
    for (int i = 0; i < 500; i++) {
        must(dcp_run_mirror_status(job.run, 0, &fares));
        if (fares.pending == 0)
            break;
        mirror_pause();
    }
    assert_string_equal(fares.path, far);
    assert_int_equal(fares.step, 20);
    assert_int_equal(fares.failures, 0);
    assert_string_equal(fares.why, "");
    must_fail(dcp_run_mirror_status(job.run, 1, &fares), DCP_ERR_ARGUMENT, "mirror 1");
    job_close(&job);
    mirror_expect_whole(far, "step_10");
    mirror_expect_whole(far, "step_20");
    assert_true(scratch_exists(scene_in(far, "step_20"), "metadata.json"));
    assert_true(scratch_exists(far, ".dcp_run"));
    scene_expect_latest(far, "step_20");
    assert_int_equal(count_lines(run, "\"mirrored\": true"), 2);
    /* It is a run by itself. */
    const dcp_run_options alone = {.mode = DCP_RUN_BLOCKING};
    job_resumes(far, &alone, 20);
}

static void two_mirrors_get_the_same_and_one_that_fails_stops_no_other(void **state)
{
    const char *run = mirror_run(state), *near = path_in(state, "near"),
               *far = path_in(state, "far");
    const dcp_run_mirror mirrors[] = {
        mirror_at(far, far_storage(&(struct far_manner){.unreachable = true})),
        mirror_at(near, NULL)};
    const dcp_run_options options = mirror_options(mirrors, 2, NULL);
    job_log_begin();
    job_run(run, &(dcp_run_options){.mode = DCP_RUN_BLOCKING, .identity = "a"}, (int64_t[]){10}, 1);
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_save(&job, 20);
    mirror_wait_there(near, "step_20");
    mirror_wait_there(near, "step_10");
    dcp_run_mirror_state fares = wait_for_failure(&job);
    assert_non_null(strstr(fares.why, "no route to host"));
    assert_int_equal(fares.step, -1);
    job_close(&job);
    job_log_end();
    assert_non_null(strstr(job_log(), "was not copied to"));
    assert_non_null(strstr(job_log(), "before all of it was copied"));
    assert_true(count_lines(run, "\"mirrored\": false") >= 1);
    assert_int_equal(count_lines(run, "\"saved\": true"), 2);
    mirror_expect_whole(near, "step_20");
}

static void a_slow_mirror_delays_no_save(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    const dcp_run_mirror mirror = mirror_at(far, far_storage(&(struct far_manner){.held = true}));
    const dcp_run_options options = mirror_options(&mirror, 1, NULL);
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    for (int64_t step = 10; step <= 50; step += 10)
        job_save(&job, step); /* with writes to the mirror held */
    far_wait_held(1);
    assert_false(mirror_has(far, "step_10"));
    mirror_expect_whole(run, "step_50");
    far_release();
    job_close(&job); /* waits */
    for (int64_t step = 10; step <= 50; step += 10) {
        char name[32];
        snprintf(name, sizeof name, "step_%d", (int)step);
        mirror_expect_whole(far, name);
    }
}

static void a_full_mirror_is_told_and_is_served_when_it_has_space(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    const dcp_run_mirror mirror = mirror_at(
        far, far_storage(&(struct far_manner){.fail_write = 2, .fail_status = DCP_ERR_NO_SPACE}));
    const dcp_run_options options = mirror_options(&mirror, 1, NULL);
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_save(&job, 10);
    wait_for_failure(&job);
    assert_false(mirror_has(far, "step_10"));
    far_storage(NULL);
    job_save(&job, 20);
    job_close(&job);
    mirror_expect_whole(far, "step_10");
    mirror_expect_whole(far, "step_20");
}

static void a_job_goes_on_with_the_copies_of_one_that_died(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    const dcp_storage *storage =
        far_storage(&(struct far_manner){.fail_write = 2, .fail_status = DCP_ERR_IO});
    dcp_run_mirror mirror = mirror_at(far, storage);
    mirror.wait_seconds = 0.01;
    const dcp_run_options options = mirror_options(&mirror, 1, NULL);
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_save(&job, 10);
    wait_for_failure(&job);
    job_close(&job);
    far_storage(NULL);
    mirror.wait_seconds = 60;
    job_resumes(run, &options, 10);
    mirror_expect_whole(far, "step_10");
    assert_true(count_lines(run, "\"kept_bytes\": 0") < count_lines(run, "\"kept_bytes\""));
}

/* ---- retention ---- */

static void retention_waits_for_slow_copies(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    const dcp_run_keep last = {.size_of = sizeof last, .last = 1};
    const dcp_run_keep all = {.size_of = sizeof all};
    dcp_run_mirror mirror = mirror_at(far, far_storage(&(struct far_manner){.held = true}));
    mirror.keep = &all;
    const dcp_run_options options = mirror_options(&mirror, 1, &last);
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_save(&job, 10);
    job_save(&job, 20);
    far_wait_held(1);
    mirror_pause();
    assert_true(mirror_has(run, "step_10"));
    far_release();
    mirror_wait_gone(run, "step_10");
    job_close(&job);
    mirror_expect_whole(far, "step_10");
    mirror_expect_whole(far, "step_20");
    assert_null(strstr(scratch_list(run), ".dcp_mirrored.step_10."));
}

static void retention_waits_no_longer_than_its_deadline_and_keeps_it(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    const dcp_run_keep last = {.size_of = sizeof last, .last = 1};
    dcp_run_mirror mirror = mirror_at(far, far_storage(&(struct far_manner){.held = true}));
    mirror.wait_seconds = 0.05;
    const dcp_run_options options = mirror_options(&mirror, 1, &last);
    struct job job;
    job_log_begin();
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_save(&job, 10);
    job_save(&job, 20);
    for (int i = 0; i < 500 && !strstr(job_log(), "is not made yet"); i++)
        mirror_pause();
    assert_non_null(strstr(job_log(), "step_10 is not removed: its copy to "));
    assert_true(mirror_has(run, "step_10"));
    far_release();
    mirror_wait_gone(run, "step_10"); /* when it is made after all */
    job_close(&job);
    job_log_end();
}

static void what_could_not_be_copied_stays(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    const dcp_run_keep last = {.size_of = sizeof last, .last = 1};
    const dcp_run_mirror mirror = mirror_at(
        far, far_storage(&(struct far_manner){.fail_write = 1, .fail_status = DCP_ERR_IO}));
    const dcp_run_options options = mirror_options(&mirror, 1, &last);
    struct job job;
    job_log_begin();
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    for (int64_t step = 10; step <= 40; step += 10)
        job_save(&job, step);
    for (int i = 0; i < 500 && !strstr(job_log(), "has failed"); i++)
        mirror_pause();
    assert_true(mirror_has(run, "step_10") && mirror_has(run, "step_20") &&
                mirror_has(run, "step_30"));
    far_storage(NULL);
    job_save(&job, 50);
    mirror_wait_gone(run, "step_10");
    mirror_wait_gone(run, "step_40");
    job_close(&job);
    job_log_end();
    mirror_expect_whole(run, "step_50");
    mirror_expect_whole(far, "step_50");
    assert_false(mirror_has(far, "step_10")); /* the same rules there */
}

static void a_mirror_may_have_rules_of_its_own(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    const dcp_run_keep last = {.size_of = sizeof last, .last = 2};
    const dcp_run_keep some = {.size_of = sizeof some, .last = 1, .every_steps = 20};
    dcp_run_mirror mirror = mirror_at(far, NULL);
    mirror.keep = &some;
    const dcp_run_options options = mirror_options(&mirror, 1, &last);
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    for (int64_t step = 10; step <= 50; step += 10) {
        char name[32];
        snprintf(name, sizeof name, "step_%d", (int)step);
        job_save(&job, step);
        mirror_wait_there(far, name);
    }
    job_close(&job);
    assert_false(mirror_has(far, "step_10") || mirror_has(far, "step_30"));
    assert_true(mirror_has(far, "step_20") && mirror_has(far, "step_40") &&
                mirror_has(far, "step_50"));
}

/* ---- by hand ---- */

struct told {
    char text[2048];
};

static void tell(void *context, const dcp_run_copied *copied)
{
    struct told *told = context;
    size_t length = strlen(told->text);
    snprintf(told->text + length, sizeof told->text - length, "%s:%d ", copied->name,
             (int)copied->verdict);
}

static void a_run_is_copied_by_hand(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    struct told told = {""};
    dcp_run_copy_options options = {.dry_run = true, .told = tell, .told_context = &told};
    uint64_t made;
    job_run(run, &(dcp_run_options){.mode = DCP_RUN_BLOCKING}, (int64_t[]){10, 20, 30}, 3);
    must(dcp_run_pin(run, "step_10", true, NULL));
    must(dcp_run_copy(run, far, &options, &made));
    assert_string_equal(told.text, "step_30:0 step_20:0 step_10:0 ");
    assert_int_not_equal(access(far, F_OK), 0);
    options.dry_run = false;
    scratch_flip(run, "step_20/__0_0.distcp", 700, 1);
    told.text[0] = '\0';
    must_fail(dcp_run_copy(run, far, &options, &made), DCP_ERR_CHECKSUM, "step_20 is damaged");
    assert_string_equal(told.text, "step_30:0 step_20:30 step_10:0 ");
    assert_int_equal(made, 2);
    assert_true(scratch_exists(far, ".dcp_pin.step_10"));
    scene_expect_latest(far, "step_30");
    scratch_flip(run, "step_20/__0_0.distcp", 700, 1);
    told.text[0] = '\0';
    must(dcp_run_copy(run, far, &options, &made));
    assert_string_equal(told.text, "step_30:10 step_20:0 step_10:10 ");
    scene_expect_latest(far, "step_30");
}

static void a_mirror_belongs_to_one_run(void **state)
{
    const char *run = mirror_run(state), *far = path_in(state, "far");
    job_run(run, &(dcp_run_options){.mode = DCP_RUN_BLOCKING}, (int64_t[]){10}, 1);
    job_run(far, &(dcp_run_options){.mode = DCP_RUN_BLOCKING}, (int64_t[]){10}, 1);
    must_fail(dcp_run_copy(run, far, NULL, NULL), DCP_ERR_EXISTS, "is a mirror of run");
    must_fail(dcp_run_copy(path_in(state, "none"), far, NULL, NULL), DCP_ERR_NOT_FOUND, "none");
}

static void marks_of_other_frameworks_are_there_as_well(void **state)
{
    const char *far = path_in(state, "far");
    const dcp_run_mirror mirror = mirror_at(far, NULL);
    dcp_run_options options = mirror_options(&mirror, 1, NULL);
    options.layout = DCP_RUN_LAYOUT_BRIDGE;
    job_run(mirror_run(state), &options, (int64_t[]){10, 20}, 2);
    size_t size;
    unsigned char *text = scratch_read(far, "latest_checkpointed_iteration.txt", &size);
    assert_int_equal(size, 2);
    assert_memory_equal(text, "20", 2);
    free(text);
    assert_true(scratch_exists(far, "latest_train_state.pt"));
    assert_true(scratch_exists(far, "iter_0000020/train_state.pt"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_checkpoint_is_copied_behind_training),
        TEST(two_mirrors_get_the_same_and_one_that_fails_stops_no_other),
        TEST(a_slow_mirror_delays_no_save),
        TEST(a_full_mirror_is_told_and_is_served_when_it_has_space),
        TEST(a_job_goes_on_with_the_copies_of_one_that_died),
        TEST(retention_waits_for_slow_copies),
        TEST(retention_waits_no_longer_than_its_deadline_and_keeps_it),
        TEST(what_could_not_be_copied_stays),
        TEST(a_mirror_may_have_rules_of_its_own),
        TEST(a_run_is_copied_by_hand),
        TEST(a_mirror_belongs_to_one_run),
        TEST(marks_of_other_frameworks_are_there_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
