/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run gets back from its mirrors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "run/job_scene.h"
#include "run/mirror_scene.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

/* A run with a mirror that has everything. */
static dcp_run_mirror make_mirrored(void **state, const int64_t *steps, size_t count)
{
    dcp_run_mirror mirror = mirror_at(path_in(state, "far"), NULL);
    const dcp_run_options options = mirror_options(&mirror, 1, NULL);
    job_run(mirror_run(state), &options, steps, count);
    return mirror;
}

static void remove_all(const char *run, const char *name)
{
    must(dcp_checkpoint_remove(scene_in(run, name), NULL, NULL));
}

static void an_empty_directory_is_filled_from_the_mirror(void **state)
{
    const dcp_run_mirror mirror = make_mirrored(state, (int64_t[]){10, 20}, 2);
    const dcp_run_options options = mirror_options(&mirror, 1, NULL);
    const char *scratch = path_in(state, "scratch");
    const char *line = job_resumes(scratch, &options, 20);
    assert_non_null(strstr(line, "step_20 was copied from the mirror"));
    mirror_expect_whole(scratch, "step_20");
    assert_false(mirror_has(scratch, "step_10"));
    /* It is the same run: the next save is copied, too. */
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, scratch, &options);
    must(dcp_run_resume(job.run, NULL));
    job_save(&job, 30);
    job_close(&job);
    mirror_expect_whole(mirror.path, "step_30");
}

static void a_stale_checkpoint_gives_way_to_the_mirrors_later_save(void **state)
{
    const char *run = mirror_run(state), *old = path_in(state, "old");
    const dcp_run_options named = {.mode = DCP_RUN_BLOCKING, .identity = "a"};
    /* Step 20 was saved by a first attempt, whose scratch space is still there. */
    job_run(old, &named, (int64_t[]){10, 20}, 2);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000}, NULL);
    const dcp_run_mirror mirror = mirror_at(path_in(state, "far"), NULL);
    dcp_run_options options = mirror_options(&mirror, 1, NULL);
    options.identity = "a";
    job_run(run, &options, (int64_t[]){10, 20}, 2);
    const char *line = job_resumes(old, &options, 20);
    assert_non_null(strstr(line, "step_20 was copied from the mirror"));
    size_t size, other;
    unsigned char *first = scratch_read(scene_in(old, "step_20"), ".metadata", &size);
    unsigned char *second = scratch_read(scene_in(run, "step_20"), ".metadata", &other);
    assert_int_equal(size, other);
    assert_memory_equal(first, second, size);
    free(first);
    free(second);
    /* And the stale step 10 does not replace the mirror's. */
    first = scratch_read(scene_in(mirror.path, "step_10"), ".metadata", &size);
    second = scratch_read(scene_in(run, "step_10"), ".metadata", &other);
    assert_int_equal(size, other);
    assert_memory_equal(first, second, size);
    free(first);
    free(second);
}

static void pieces_that_are_whole_here_are_not_copied_again(void **state)
{
    const char *run = mirror_run(state);
    const dcp_run_mirror mirror = make_mirrored(state, (int64_t[]){10, 20}, 2);
    const dcp_run_options options = mirror_options(&mirror, 1, NULL);
    scratch_remove(run, "step_20/.metadata");
    const char *line = job_resumes(run, &options, 20);
    assert_non_null(strstr(line, "step_20 was copied from the mirror"));
    assert_null(strstr(line, " 0 were here already"));
    mirror_expect_whole(run, "step_20");
}

/* Turns a bit of the first weight of a step. */
static void damage(const char *checkpoint, float first)
{
    size_t size, at = 0;
    unsigned char *bytes = scratch_read(checkpoint, "__0_0.distcp", &size);
    while (at + sizeof first < size && memcmp(bytes + at, &first, sizeof first) != 0)
        at++;
    assert_true(at + sizeof first < size);
    free(bytes);
    scratch_flip(checkpoint, "__0_0.distcp", at, 1);
}

static void a_damaged_checkpoint_is_repaired_from_the_mirror(void **state)
{
    const char *run = mirror_run(state);
    const dcp_run_mirror mirror = make_mirrored(state, (int64_t[]){10, 20}, 2);
    const dcp_run_options options = mirror_options(&mirror, 1, NULL);
    damage(scene_in(run, "step_20"), 20);
    job_log_begin();
    job_resumes(run, &options, 20);
    job_log_end();
    assert_non_null(strstr(job_log(), "step_20 was damaged, and is repaired from the mirror"));
    mirror_expect_whole(run, "step_20");
    assert_null(strstr(scratch_list(run), ".dcp_failed"));
}

static void a_step_that_only_the_mirror_has_can_be_named(void **state)
{
    const char *run = mirror_run(state);
    const dcp_run_mirror mirror = make_mirrored(state, (int64_t[]){10, 20}, 2);
    dcp_run_options options = mirror_options(&mirror, 1, NULL);
    remove_all(run, "step_10");
    options.reference = "10";
    job_resumes(run, &options, 10);
    options.reference = "15";
    job_resume_fails(run, &options, DCP_ERR_NOT_FOUND, "15");
}

static void an_unreachable_mirror_is_no_fresh_start(void **state)
{
    const char *run = mirror_run(state);
    dcp_run_mirror mirror = make_mirrored(state, (int64_t[]){10}, 1);
    mirror.storage = far_storage(&(struct far_manner){.unreachable = true});
    mirror.wait_seconds = 0.01;
    dcp_run_options options = mirror_options(&mirror, 1, NULL);
    const char *line = job_resumes(run, &options, 10);
    assert_non_null(strstr(line, "a mirror could not be asked"));
    const char *empty = path_in(state, "empty");
    struct job job;
    job_make(&job, 0, 1);
    options.state = job.state;
    must_fail(dcp_run_open(empty, &options, &job.run), DCP_ERR_IO, "no route to host");
    options.identity = "a";
    job_free(&job);
    job_resume_fails(empty, &options, DCP_ERR_IO, "open the run as fresh");
    options.fresh = true;
    job_resumes(empty, &options, -1);
}

static dcp_status resume_together(struct rank *self)
{
    const dcp_run_mirror *mirror = self->context;
    dcp_run_options options = mirror_options(mirror, 1, NULL);
    dcp_run_resumed resumed;
    struct job job;
    job_make(&job, self->rank, self->size);
    options.group = self->group;
    options.state = job.state;
    must(dcp_run_open(self->path, &options, &job.run));
    dcp_status status = dcp_run_resume(job.run, &resumed);
    if (status == DCP_OK && resumed.step == 20)
        job_expect(&job, 20);
    else if (status == DCP_OK) {
        job_train_to(&job, 20);
        status = dcp_run_save(job.run, 20);
    }
    must(dcp_run_close(job.run));
    job_free(&job);
    return status;
}

static void ranks_wait_for_what_comes_back(void **state)
{
    dcp_run_mirror mirror = mirror_at(path_in(state, "far"), NULL);
    ranks_must(3, mirror_run(state), resume_together, &mirror);
    mirror_expect_whole(mirror.path, "step_20");
    ranks_must(3, path_in(state, "scratch"), resume_together, &mirror);
    mirror_expect_whole(path_in(state, "scratch"), "step_20");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_empty_directory_is_filled_from_the_mirror),
        TEST(a_stale_checkpoint_gives_way_to_the_mirrors_later_save),
        TEST(pieces_that_are_whole_here_are_not_copied_again),
        TEST(a_damaged_checkpoint_is_repaired_from_the_mirror),
        TEST(a_step_that_only_the_mirror_has_can_be_named),
        TEST(an_unreachable_mirror_is_no_fresh_start),
        TEST(ranks_wait_for_what_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
