/* SPDX-License-Identifier: BSD-3-Clause */
/* A run that trains: what is saved when, how ranks agree, what stops it, and what becomes of saves
 * that fail. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "run/job_scene.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

static const dcp_run_mode modes[] = {DCP_RUN_ASYNC, DCP_RUN_ASYNC_PINNED, DCP_RUN_ASYNC_OVERLAPPED,
                                     DCP_RUN_BLOCKING};

static void expect_latest(const char *run, const char *name)
{
    char target[256];
    ssize_t length = readlink(scene_in(run, "latest"), target, sizeof target - 1);
    assert_true(length > 0);
    target[length] = '\0';
    assert_string_equal(target, name);
}

static int count_lines(const char *directory, const char *name, const char *words)
{
    size_t size;
    int count = 0;
    char *text = (char *)scratch_read(directory, name, &size);
    char *copy = malloc(size + 1);
    memcpy(copy, text, size);
    copy[size] = '\0';
    for (const char *at = copy; (at = strstr(at, words)); at++)
        count++;
    free(copy);
    free(text);
    return count;
}

/* ---- what is saved ---- */

static void train(struct job *job, int64_t from, int64_t to)
{
    for (int64_t step = from; step < to && !dcp_run_should_stop(job->run);) {
        dcp_run_wait_staged(job->run);
        job_train_to(job, ++step);
        must(dcp_run_step(job->run, step));
    }
}

static void what_is_due_is_saved_in_every_mode(void **state)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        char name[32];
        snprintf(name, sizeof name, "run%zu", i);
        const char *run = path_in(state, name);
        const dcp_run_options options = {.every_steps = 10, .last_step = 25, .mode = modes[i]};
        struct job job;
        job_make(&job, 0, 1);
        job_open(&job, run, &options);
        train(&job, 0, 25);
        must(dcp_run_flush(job.run));
        assert_int_equal(dcp_run_saved_step(job.run), 25);
        job_close(&job);
        scene_expect(run, NULL,
                     "step_10 10 dcp whole\nstep_20 20 dcp whole\n"
                     "step_25 25 dcp whole latest marked\n");
        expect_latest(run, "step_25");
        assert_int_equal(count_lines(run, "dcp_saves.jsonl", "\"saved\": true"), 3);
        assert_int_equal(count_lines(scene_in(run, "step_25"), "metadata.json", "\"run\":"), 1);
        job_resumes(run, &options, 25);
    }
}

static void patterns_name_the_steps(void **state)
{
    static const char *const bad[] = {"step",     "{N}_{N}", "a/{N}",        "{N:7d}",
                                      ".hid_{N}", "__{N}_0", "step_{N:00d}", "st*p_{N}"};
    const char *run = path_in(state, "run");
    const dcp_run_options options = {.pattern = "dcp_{N:06d}"};
    struct job job;
    job_run(run, &options, (const int64_t[]){7, 1234567}, 2);
    scene_expect(run, NULL,
                 "dcp_000007 7 dcp whole\ndcp_1234567 1234567 dcp whole latest marked\n");
    job_resumes(run, &options, 1234567);
    job_make(&job, 0, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const dcp_run_options refused = {.state = job.state, .pattern = bad[i]};
        must_fail(dcp_run_open(run, &refused, &job.run), DCP_ERR_ARGUMENT, "no pattern");
    }
    job_free(&job);
}

static void a_step_is_saved_once(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_options options = {.mode = DCP_RUN_BLOCKING};
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_save(&job, 5);
    job_save(&job, 5);
    assert_int_equal(count_lines(run, "dcp_saves.jsonl", "\n"), 1);
    job_save(&job, 6);
    /* Another process of the run that comes by the step again replaces it. */
    job_close(&job);
    job_run(run, &options, (const int64_t[]){6}, 1);
    assert_int_equal(count_lines(run, "dcp_saves.jsonl", "\n"), 3);
    job_resumes(run, &options, 6);
}

static dcp_status give_rank_state(void *context, dcp_run *run, int64_t step)
{
    char text[32], name[32];
    const int *rank = context;
    snprintf(name, sizeof name, "rng_%d", *rank);
    snprintf(text, sizeof text, "rank %d at %d", *rank, (int)step);
    must(dcp_run_note(run, "loss", 0.5));
    return dcp_run_add_file(run, name, text, strlen(text));
}

static dcp_status save_rank_state(struct rank *self)
{
    struct job job;
    dcp_run_resumed resumed;
    void *bytes;
    size_t size;
    char name[32], text[32];
    const dcp_extra_file config = {
        .size_of = sizeof config, .name = "config.toml", .bytes = "lr = 1", .size = 6};
    job_make(&job, self->rank, self->size);
    dcp_run_options options = {.group = self->group,
                               .state = job.state,
                               .before_save = give_rank_state,
                               .before_save_context = &self->rank,
                               .files = &config,
                               .file_count = self->rank == 0};
    must(dcp_run_open(self->path, &options, &job.run));
    job_save(&job, 3);
    job_save(&job, 4);
    must(dcp_run_close(job.run));
    job_train_to(&job, 99);
    must(dcp_run_open(self->path, &options, &job.run));
    must(dcp_run_resume(job.run, &resumed));
    assert_int_equal(resumed.step, 4);
    job_expect(&job, 4);
    snprintf(name, sizeof name, "rng_%d", self->rank);
    snprintf(text, sizeof text, "rank %d at 4", self->rank);
    must(dcp_run_read_file(job.run, name, &bytes, &size));
    assert_int_equal(size, strlen(text));
    assert_memory_equal(bytes, text, size);
    dcp_memory_free(bytes);
    must(dcp_run_read_file(job.run, "config.toml", &bytes, &size));
    assert_memory_equal(bytes, "lr = 1", size);
    dcp_memory_free(bytes);
    must_fail(dcp_run_read_file(job.run, "rng_99", &bytes, &size), DCP_ERR_NOT_FOUND, "rng_99");
    job_close(&job);
    return DCP_OK;
}

static void files_of_ranks_are_part_of_it(void **state)
{
    ranks_must(3, path_in(state, "run"), save_rank_state, NULL);
}

/* ---- ranks agree ---- */

static dcp_status train_by_the_clock(struct rank *self)
{
    int64_t *saved = self->context;
    struct job job;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = {.group = self->group,
                                     .state = job.state,
                                     .every_seconds = self->rank == 0 ? 0.05 : 1000,
                                     .mode = DCP_RUN_ASYNC};
    must(dcp_run_open(self->path, &options, &job.run));
    for (int64_t step = 1; step <= 150; step++) {
        usleep(self->rank == 0 ? 1000 : 100);
        job_train_to(&job, step);
        must(dcp_run_step(job.run, step));
    }
    must(dcp_run_flush(job.run));
    saved[self->rank] = dcp_run_saved_step(job.run);
    job_close(&job);
    return DCP_OK;
}

static void rank_0_reads_the_clock_for_all(void **state)
{
    int64_t saved[RANKS_MAX];
    const char *run = path_in(state, "run");
    ranks_must(3, run, train_by_the_clock, saved);
    assert_true(saved[0] > 0);
    assert_int_equal(saved[0], saved[1]);
    assert_int_equal(saved[0], saved[2]);
    dcp_run_list *list = scene_read(run, NULL);
    assert_true(dcp_run_list_count(list) >= 1);
    dcp_run_list_free(list);
}

/* What is asked before a step is what the step does, on each rank, however often it is asked. */
static dcp_status ask_before_steps(struct rank *self)
{
    struct job job;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = {.group = self->group,
                                     .state = job.state,
                                     .every_seconds = 0.02,
                                     .every_steps = 50,
                                     .last_step = 120,
                                     .mode = DCP_RUN_BLOCKING};
    int64_t saved = 0, others = 0;
    must(dcp_run_open(self->path, &options, &job.run));
    for (int64_t step = 1; step <= 120; step++) {
        usleep(self->rank == self->size / 2 ? 2000 : 100);
        job_train_to(&job, step);
        bool answer = dcp_run_should_save(job.run, step);
        assert_int_equal(dcp_run_should_save(job.run, step), answer);
        must(dcp_run_step(job.run, step));
        assert_int_equal(dcp_run_saved_step(job.run) == step, answer);
        assert_false(dcp_run_should_save(NULL, step) || dcp_run_should_save(job.run, -1));
        assert_true(answer || (step % 50 != 0 && step < 120));
        saved += answer;
        others += answer && step % 50 != 0 && step < 120;
    }
    assert_true(others > 0 && saved < 120);
    job_close(&job);
    return DCP_OK;
}

static void what_is_asked_before_a_step_is_what_it_does(void **state)
{
    ranks_must(1, path_in(state, "one"), ask_before_steps, NULL);
    ranks_must(3, path_in(state, "three"), ask_before_steps, NULL);
}

/* The signal goes to the process, but only this rank's run asks for it. */
static dcp_status stop_on_one_rank(struct rank *self)
{
    struct job job;
    job_make(&job, self->rank, self->size);
    dcp_run_options options = {.group = self->group, .state = job.state, .every_steps = 1000};
    int64_t step = 0;
    options.stop_on_signals = self->rank == 1;
    options.halt_file = "no/such/file"; /* so that the others look as well */
    must(dcp_run_open(self->path, &options, &job.run));
    while (step < 100000 && !dcp_run_should_stop(job.run)) {
        job_train_to(&job, ++step);
        if (self->rank == 1 && step == 20)
            kill(getpid(), SIGUSR1);
        must(dcp_run_step(job.run, step));
    }
    assert_true(step < 100000);
    assert_string_equal(dcp_run_stop_reason(job.run), "a signal asks for it");
    if (self->rank == 0)
        *(int64_t *)self->context = step;
    job_close(&job);
    return DCP_OK;
}

static void a_signal_stops_all_ranks_and_saves(void **state)
{
    struct sigaction action;
    int64_t step = 0;
    const char *run = path_in(state, "run");
    ranks_must(3, run, stop_on_one_rank, &step);
    dcp_run_list *list = scene_read(run, NULL);
    size_t index;
    dcp_run_checkpoint found;
    must(dcp_run_list_latest(list, &index));
    must(dcp_run_list_checkpoint(list, index, &found));
    assert_int_equal(found.step, step);
    dcp_run_list_free(list);
    assert_int_equal(sigaction(SIGUSR1, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
}

static volatile sig_atomic_t heard;

static void hear(int number)
{
    heard = number;
}

static void expect_handlers(bool ours)
{
    static const int numbers[] = {SIGTERM, SIGUSR1};
    for (int i = 0; i < 2; i++) {
        heard = 0;
        assert_int_equal(raise(numbers[i]), 0);
        assert_int_equal(heard, ours ? 0 : numbers[i]);
    }
}

/* Of two open runs the last one to be closed gives the signals back, to what was there before; a
 * run that does not ask for signals takes none. */
static void signals_are_the_programs_again_after_the_run(void **state)
{
    const struct sigaction own = {.sa_handler = hear};
    const dcp_run_options options = {.stop_on_signals = true}, none = {0};
    struct sigaction before[2];
    struct job jobs[3];
    assert_int_equal(sigaction(SIGTERM, &own, &before[0]), 0);
    assert_int_equal(sigaction(SIGUSR1, &own, &before[1]), 0);
    for (int i = 0; i < 3; i++)
        job_make(&jobs[i], 0, 1);
    job_open(&jobs[0], path_in(state, "c"), &none);
    expect_handlers(false);
    job_open(&jobs[1], path_in(state, "a"), &options);
    job_open(&jobs[2], path_in(state, "b"), &options);
    job_close(&jobs[0]);
    expect_handlers(true);
    assert_true(dcp_run_should_stop(jobs[1].run) && dcp_run_should_stop(jobs[2].run));
    job_close(&jobs[1]);
    expect_handlers(true);
    job_close(&jobs[2]);
    expect_handlers(false);
    /* What came before is no reason to stop the next one. */
    job_make(&jobs[0], 0, 1);
    job_open(&jobs[0], path_in(state, "a"), &options);
    assert_false(dcp_run_should_stop(jobs[0].run));
    job_close(&jobs[0]);
    expect_handlers(false);
    /* A run that could not be opened has let go of them. */
    job_make(&jobs[0], 0, 1);
    scene_write(*state, "file", "");
    const dcp_run_options bad = {.state = jobs[0].state, .stop_on_signals = true};
    must_fail(dcp_run_open(path_in(state, "file"), &bad, &jobs[0].run), DCP_ERR_IO, "file");
    job_free(&jobs[0]);
    expect_handlers(false);
    sigaction(SIGTERM, &before[0], NULL);
    sigaction(SIGUSR1, &before[1], NULL);
}

static void a_halt_file_or_the_end_of_time_stops_it(void **state)
{
    for (int i = 0; i < 2; i++) {
        const char *run = path_in(state, i ? "halt" : "deadline");
        const char *halt = path_in(state, "HALT");
        dcp_run_options options = {.mode = DCP_RUN_BLOCKING};
        struct job job;
        options.halt_file = i ? halt : NULL;
        options.stop_at_unix_time = i ? 0 : (int64_t)time(NULL) + 29; /* less than the margin */
        job_make(&job, 0, 1);
        job_open(&job, run, &options);
        if (i) {
            job_train_to(&job, 1);
            must(dcp_run_step(job.run, 1));
            assert_false(dcp_run_should_stop(job.run));
            scene_write(*state, "HALT", "");
            while (!dcp_run_should_stop(job.run)) /* in a loop of evaluation, say */
                usleep(1000);
        } else {
            job_train_to(&job, 1);
            must(dcp_run_step(job.run, 1));
            assert_true(dcp_run_should_stop(job.run));
        }
        assert_string_equal(dcp_run_stop_reason(job.run),
                            i ? "the halt file is there" : "its time is almost over");
        job_close(&job); /* saves what was not */
        job_resumes(run, NULL, 1);
    }
}

static void without_questions_ranks_say_nothing(void **state)
{
    /* A group of two of which one never comes: any exchange would end with a timeout. */
    dcp_group *groups[1];
    struct job job;
    job_make(&job, 0, 1);
    must(dcp_group_new_threads(1, groups));
    const dcp_run_options options = {.group = groups[0], .state = job.state, .every_steps = 1000};
    must(dcp_run_open(path_in(state, "run"), &options, &job.run));
    for (int64_t step = 1; step < 1000; step++) {
        assert_false(dcp_run_should_save(job.run, step));
        must(dcp_run_step(job.run, step));
    }
    assert_true(dcp_run_should_save(job.run, 1000));
    assert_false(dcp_run_should_stop(job.run));
    assert_int_equal(dcp_run_saved_step(job.run), -1);
    job_close(&job);
    dcp_group_free(groups[0]);
}

/* ---- failures ---- */

static bool disk_is_full;

static dcp_status create_or_fail(void *context, void *directory, const char *name,
                                 const dcp_storage_access *access, dcp_storage_file *file)
{
    if (disk_is_full && strstr(name, ".distcp"))
        return dcp_error_set(DCP_ERR_NO_SPACE, "%s: the disk is full", name);
    return dcp_storage_files()->create(context, directory, name, access, file);
}

static void a_failed_save_is_reported_at_the_next_step(void **state)
{
    const char *run = path_in(state, "run");
    dcp_storage storage = *dcp_storage_files();
    struct job job;
    storage.create = create_or_fail;
    for (int allowed = 0; allowed < 2; allowed++) {
        const dcp_run_options options = {
            .storage = &storage, .every_steps = 10, .allowed_failures = allowed};
        dcp_status reported = DCP_OK;
        job_make(&job, 0, 1);
        job_open(&job, run, &options);
        job_save(&job, 5);
        must(dcp_run_flush(job.run));
        disk_is_full = true;
        must(dcp_run_step(job.run, 10));
        for (int64_t step = 11; step < 20 && reported == DCP_OK; step++) {
            usleep(50000);
            reported = dcp_run_step(job.run, step);
        }
        disk_is_full = false;
        assert_int_equal(reported, allowed ? DCP_OK : DCP_ERR_NO_SPACE);
        assert_int_equal(dcp_run_saved_step(job.run), 5);
        job_save(&job, 20);
        must(dcp_run_flush(job.run));
        assert_int_equal(dcp_run_saved_step(job.run), 20);
        job_close(&job);
    }
}

static void a_mark_that_cannot_be_moved_is_no_failure(void **state)
{
    const char *run = path_in(state, "run");
    struct job job;
    mkdir(run, 0777);
    mkdir(scene_in(run, "latest"), 0777);
    job_log_begin();
    job_make(&job, 0, 1);
    job_open(&job, run, NULL);
    job_save(&job, 5);
    must(dcp_run_flush(job.run));
    assert_non_null(strstr(job_log(), "its marks are not"));
    job_close(&job);
    job_log_end();
    job_resumes(run, NULL, 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_due_is_saved_in_every_mode),
        TEST(patterns_name_the_steps),
        TEST(a_step_is_saved_once),
        TEST(files_of_ranks_are_part_of_it),
        TEST(rank_0_reads_the_clock_for_all),
        TEST(what_is_asked_before_a_step_is_what_it_does),
        TEST(a_signal_stops_all_ranks_and_saves),
        TEST(signals_are_the_programs_again_after_the_run),
        TEST(a_halt_file_or_the_end_of_time_stops_it),
        TEST(without_questions_ranks_say_nothing),
        TEST(a_failed_save_is_reported_at_the_next_step),
        TEST(a_mark_that_cannot_be_moved_is_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
