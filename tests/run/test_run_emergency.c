/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves of single ranks when there is no time left, and what a resume makes of them. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "run/job_scene.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

enum { RANKS = 3, ALL = (1 << RANKS) - 1 };

/* What ranks do in a directory that has the run, the local place and that of the copy. */
struct story {
    int64_t usual;     /* step that is saved as usual first; 0: none */
    int64_t emergency; /* step that is saved in an emergency, ... */
    unsigned saving;   /* ... by these ranks */
    bool copy;
    int64_t resumed; /* step that a resume takes; -1: none */
    dcp_run_kind kind;
    const char *reason;
    int64_t saved_then; /* as usual; 0: none */
};

static void expect_words(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no \"%s\" in: %s", words, text);
}

static const char *in(const char *directory, const char *name)
{
    static _Thread_local char paths[4][512];
    static _Thread_local int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static dcp_run_options make_options(struct rank *self, const dcp_run_emergency *emergency,
                                    const struct job *job)
{
    return (dcp_run_options){
        .group = self->group, .state = job->state, .identity = "mine", .emergency = emergency};
}

static dcp_status save_in_emergency(struct rank *self)
{
    const struct story *story = self->context;
    const dcp_run_emergency emergency = {.size_of = sizeof emergency,
                                         .path = in(self->path, "local"),
                                         .copy_path = story->copy ? in(self->path, "copy") : NULL};
    struct job job;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = make_options(self, &emergency, &job);
    must(dcp_run_open(in(self->path, "run"), &options, &job.run));
    if (story->usual > 0)
        job_save(&job, story->usual);
    job_train_to(&job, story->emergency);
    must(dcp_run_step(job.run, story->emergency));
    /* No rank waits for another one: these may all be gone. */
    if (story->saving & 1U << self->rank)
        must(dcp_run_emergency_save(job.run));
    /* Closing removes what is older than the run: one story's emergency is, and others may still be
     * saving it. */
    must(dcp_group_barrier(self->group, 0));
    job_close(&job);
    return DCP_OK;
}

static dcp_status resume(struct rank *self)
{
    const struct story *story = self->context;
    const dcp_run_emergency emergency = {.size_of = sizeof emergency,
                                         .path = in(self->path, "local"),
                                         .copy_path = story->copy ? in(self->path, "copy") : NULL};
    dcp_run_resumed resumed;
    struct job job;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = make_options(self, &emergency, &job);
    must(dcp_run_open(in(self->path, "run"), &options, &job.run));
    must(dcp_run_resume(job.run, &resumed));
    if (self->rank == 0)
        expect_words(resumed.reason, story->reason);
    assert_int_equal(resumed.found, story->resumed >= 0);
    if (resumed.found) {
        assert_int_equal(resumed.step, story->resumed);
        assert_int_equal(resumed.kind, story->kind);
        job_expect(&job, story->resumed);
    }
    if (story->saved_then > 0)
        job_save(&job, story->saved_then);
    job_close(&job);
    return DCP_OK;
}

/* A job that knows nothing of emergency saves, and so removes none. */
static dcp_status save_as_usual(struct rank *self)
{
    const struct story *story = self->context;
    struct job job;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = make_options(self, NULL, &job);
    must(dcp_run_open(in(self->path, "run"), &options, &job.run));
    job_save(&job, story->usual);
    job_close(&job);
    return DCP_OK;
}

static void tell(void **state, const struct story *story)
{
    struct story copy = *story;
    ranks_must(RANKS, *state, save_in_emergency, &copy);
    ranks_must(RANKS, *state, resume, &copy);
}

/* ---- what is taken ---- */

static void all_parts_are_the_whole(void **state)
{
    const struct story story = {.usual = 10,
                                .emergency = 13,
                                .saving = ALL,
                                .resumed = 13,
                                .kind = DCP_RUN_EMERGENCY,
                                .reason = "was saved in an emergency, and is newer than the run",
                                .saved_then = 14};
    tell(state, &story);
    /* A usual save takes its place. */
    assert_string_equal(scratch_list(scene_in(path_in(state, "local"), "mine")), "");
    scene_expect_latest(path_in(state, "run"), "step_14");
}

static void without_a_rank_it_is_passed_over_aloud(void **state)
{
    const struct story story = {.usual = 10,
                                .emergency = 13,
                                .saving = ALL & ~2U,
                                .resumed = 10,
                                .kind = DCP_RUN_DCP,
                                .reason = "\"model.w\": no chunk holds [64:128]"};
    tell(state, &story);
}

static void a_run_without_checkpoints_resumes_from_it(void **state)
{
    const struct story story = {.emergency = 3,
                                .saving = ALL,
                                .resumed = 3,
                                .kind = DCP_RUN_EMERGENCY,
                                .reason = "and the run has nothing"};
    tell(state, &story);
}

static void what_is_older_than_the_run_is_not_taken(void **state)
{
    struct story before = {.emergency = 5, .saving = ALL};
    struct story after = {.usual = 10,
                          .resumed = 10,
                          .kind = DCP_RUN_DCP,
                          .reason = "step_10 is the newest one to resume from"};
    ranks_must(RANKS, *state, save_in_emergency, &before);
    ranks_must(RANKS, *state, save_as_usual, &after);
    assert_string_not_equal(scratch_list(scene_in(path_in(state, "local"), "mine")), "");
    ranks_must(RANKS, *state, resume, &after);
}

static void what_is_older_than_the_run_goes_when_it_closes(void **state)
{
    const struct story story = {.usual = 10,
                                .emergency = 5,
                                .saving = ALL,
                                .resumed = 10,
                                .kind = DCP_RUN_DCP,
                                .reason = "step_10 is the newest one to resume from"};
    tell(state, &story);
    assert_string_equal(scratch_list(scene_in(path_in(state, "local"), "mine")), "");
}

/* Each has the same step of another life; together they would look whole. */
static void parts_of_two_jobs_do_not_mix(void **state)
{
    struct story first = {.usual = 10, .emergency = 13, .saving = 3};
    struct story second = {.usual = 11,
                           .emergency = 13,
                           .saving = 4,
                           .resumed = 11,
                           .kind = DCP_RUN_DCP,
                           .reason = "step_11 is the newest"};
    ranks_must(RANKS, *state, save_in_emergency, &first);
    ranks_must(RANKS, *state, save_in_emergency, &second);
    ranks_must(RANKS, *state, resume, &second);
}

static void the_copy_outlives_the_node(void **state)
{
    struct story story = {.usual = 10,
                          .emergency = 13,
                          .saving = ALL,
                          .copy = true,
                          .resumed = 13,
                          .kind = DCP_RUN_EMERGENCY,
                          .reason = "copy/mine/emergency_step_13_"};
    char command[1024];
    ranks_must(RANKS, *state, save_in_emergency, &story);
    snprintf(command, sizeof command, "rm -r '%s'", path_in(state, "local"));
    assert_int_equal(system(command), 0);
    ranks_must(RANKS, *state, resume, &story);
}

/* ---- one rank ---- */

static dcp_run_emergency place_in(void **state)
{
    return (dcp_run_emergency){.size_of = sizeof(dcp_run_emergency),
                               .path = path_in(state, "local")};
}

static dcp_status add_random_numbers(void *context, dcp_run *run, int64_t step)
{
    char text[32];
    (void)context;
    snprintf(text, sizeof text, "random %d", (int)step);
    return dcp_run_add_file(run, "rng.0", text, strlen(text));
}

static void extra_files_come_with_it(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_emergency emergency = place_in(state);
    const dcp_run_options options = {
        .identity = "mine", .emergency = &emergency, .before_save = add_random_numbers};
    struct job job;
    void *bytes;
    size_t size;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_train_to(&job, 7);
    must(dcp_run_step(job.run, 7));
    must(dcp_run_add_file(job.run, "mine", "kept", 4));
    must(dcp_run_emergency_save(job.run));
    must(dcp_run_emergency_save(job.run)); /* again */
    must(dcp_run_resume(job.run, NULL));
    must(dcp_run_read_file(job.run, "rng.0", &bytes, &size));
    assert_true(size == 8 && memcmp(bytes, "random 7", 8) == 0);
    dcp_memory_free(bytes);
    /* What was added is still there for the usual save. */
    must(dcp_run_save(job.run, 8));
    must(dcp_run_flush(job.run));
    must(dcp_run_resume(job.run, NULL));
    must(dcp_run_read_file(job.run, "mine", &bytes, &size));
    assert_true(size == 4 && memcmp(bytes, "kept", 4) == 0);
    dcp_memory_free(bytes);
    job_close(&job);
}

static int count_saves(void **state)
{
    const char *names = scratch_list(scene_in(path_in(state, "local"), "mine"));
    int count = 0;
    for (const char *at = names; (at = strstr(at, "emergency_step_")); at++)
        count++;
    return count;
}

static void a_signal_saves_at_once(void **state)
{
    const dcp_run_emergency emergency = place_in(state);
    const dcp_run_options options = {
        .identity = "mine", .emergency = &emergency, .stop_on_signals = true};
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, path_in(state, "run"), &options);
    job_train_to(&job, 7);
    must(dcp_run_step(job.run, 7));
    raise(SIGUSR1);
    assert_true(dcp_run_should_stop(job.run));
    assert_int_equal(count_saves(state), 1);
    assert_true(dcp_run_should_stop(job.run));
    assert_int_equal(count_saves(state), 1);
    job_close(&job); /* saves as usual */
    assert_int_equal(count_saves(state), 0);
    scene_expect_latest(path_in(state, "run"), "step_7");
}

static void they_are_listed_and_never_the_latest(void **state)
{
    const dcp_run_emergency emergency = place_in(state);
    const dcp_run_options options = {.identity = "mine", .emergency = &emergency};
    const char *place = scene_in(path_in(state, "local"), "mine");
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, path_in(state, "run"), &options);
    job_train_to(&job, 7);
    must(dcp_run_step(job.run, 7));
    must(dcp_run_emergency_save(job.run));
    job_close(&job);
    dcp_run_list *list = scene_read(place, NULL);
    dcp_run_checkpoint found;
    assert_int_equal(dcp_run_list_count(list), 1);
    must(dcp_run_list_checkpoint(list, 0, &found));
    assert_true(found.kind == DCP_RUN_EMERGENCY && found.step == 7 && found.complete &&
                !found.latest && strcmp(found.framework, "dcp") == 0);
    dcp_run_list_free(list);
}

static void what_is_missing_is_said(void **state)
{
    dcp_run_emergency emergency = {.size_of = sizeof emergency};
    dcp_run_options options = {.emergency = &emergency};
    struct job job;
    scene_write(*state, "local", "a file");
    job_make(&job, 0, 1);
    options.state = job.state;
    must_fail(dcp_run_open(path_in(state, "run"), &options, &job.run), DCP_ERR_ARGUMENT,
              "directory");
    job_open(&job, path_in(state, "run"), NULL);
    must_fail(dcp_run_emergency_save(job.run), DCP_ERR_STATE, "dcp_run_emergency");
    must(dcp_run_close(job.run));
    /* A place that cannot be made is an error when it is needed; the copy is made nevertheless. */
    emergency = place_in(state);
    emergency.copy_path = path_in(state, "copy");
    options.identity = "mine";
    job_open(&job, path_in(state, "run"), &options);
    must_fail(dcp_run_emergency_save(job.run), DCP_ERR_STATE, "step");
    job_train_to(&job, 7);
    must(dcp_run_step(job.run, 7));
    job_log_begin();
    must_fail(dcp_run_emergency_save(job.run), DCP_ERR_IO, "local");
    job_log_end();
    job_close(&job);
    expect_words(job_resumes(path_in(state, "run"), &options, 7), "copy/mine");
}

/* The name of the only directory in it. */
static void find_emergency(const char *directory, char name[64])
{
    const struct dirent *entry;
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    while ((entry = readdir(listing)))
        if (*entry->d_name != '.')
            snprintf(name, 64, "%.63s", entry->d_name);
    closedir(listing);
}

static void they_can_be_named(void **state)
{
    const dcp_run_emergency emergency = place_in(state);
    const dcp_run_options options = {.identity = "mine", .emergency = &emergency};
    struct job job;
    char name[64], path[600];
    job_make(&job, 0, 1);
    job_open(&job, path_in(state, "run"), &options);
    job_train_to(&job, 7);
    must(dcp_run_step(job.run, 7));
    must(dcp_run_emergency_save(job.run));
    job_close(&job);
    find_emergency(scene_in(emergency.path, "mine"), name);
    snprintf(path, sizeof path, "%s/mine/%s/", emergency.path, name);
    const dcp_run_options named = {.reference = path};
    expect_words(job_resumes(path_in(state, "other"), &named, 7), "is what was asked for");
}

/* Some of them; saves and resumes have tests of their own of all. */
static void allocations_may_fail(void **state)
{
    const dcp_run_emergency emergency = place_in(state);
    struct job job;
    job_make(&job, 0, 1);
    job_train_to(&job, 7);
    const dcp_run_options options = {.state = job.state, .emergency = &emergency};
    char command[1024];
    snprintf(command, sizeof command, "rm -rf '%s'", emergency.path);
    for (long n = 1;; n += 97) {
        failing_allocator_install(n, false);
        dcp_status status = dcp_run_open(path_in(state, "run"), &options, &job.run);
        if (status == DCP_OK) {
            status = dcp_run_step(job.run, 7);
            if (status == DCP_OK)
                status = dcp_run_emergency_save(job.run);
            if (status == DCP_OK)
                status = dcp_run_resume(job.run, NULL);
            dcp_run_close(job.run);
        }
        bool reached = failing_allocator_reached();
        failing_allocator_remove();
        if (status != DCP_OK && status != DCP_ERR_NO_MEMORY)
            fail_msg("allocation %ld: %s: %s", n, dcp_status_string(status), dcp_error_message());
        assert_int_equal(system(command), 0);
        if (!reached)
            break;
    }
    job_free(&job);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_parts_are_the_whole),
        TEST(without_a_rank_it_is_passed_over_aloud),
        TEST(a_run_without_checkpoints_resumes_from_it),
        TEST(what_is_older_than_the_run_is_not_taken),
        TEST(what_is_older_than_the_run_goes_when_it_closes),
        TEST(parts_of_two_jobs_do_not_mix),
        TEST(the_copy_outlives_the_node),
        TEST(extra_files_come_with_it),
        TEST(a_signal_saves_at_once),
        TEST(they_are_listed_and_never_the_latest),
        TEST(what_is_missing_is_said),
        TEST(they_can_be_named),
        TEST(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
