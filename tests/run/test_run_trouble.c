/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run makes of disks, clocks, times and directories that are not as they should be. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fault/small_disk.h"
#include "run/job_scene.h"
#include "run/run_manager.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

static char disk[64];
static char why_not[SMALL_DISK_WHY]; /* there is no disk; "": there is */

static void expect_words(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no \"%s\" in: %s", words, text);
}

static const char *run_on_disk(const char *name)
{
    static char path[96];
    if (*why_not) {
        print_message("%s\n", why_not);
        skip();
    }
    snprintf(path, sizeof path, "%s/%s", disk, name);
    return path;
}

/* ---- disks ---- */

static void fill_disk(void)
{
    static char bytes[4096];
    FILE *file = fopen(scene_in(disk, "ballast"), "w");
    assert_non_null(file);
    while (fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes && fflush(file) == 0)
        ;
    fclose(file);
}

static void a_full_disk_costs_one_save(void **state)
{
    const char *run = run_on_disk("full");
    const dcp_run_options options = {.identity = "mine", .every_steps = 10};
    struct job job;
    (void)state;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_save(&job, 10);
    must(dcp_run_flush(job.run));
    fill_disk();
    job_log_begin();
    job_train_to(&job, 20);
    dcp_status begun = dcp_run_step(job.run, 20);
    dcp_status ended = begun == DCP_OK ? dcp_run_flush(job.run) : begun;
    job_log_end();
    assert_int_equal(ended, DCP_ERR_NO_SPACE);
    expect_words(job_log(), "step_20 was not saved");
    assert_int_equal(dcp_run_saved_step(job.run), 10);
    scene_expect_latest(run, "step_10");
    scene_remove(disk, "ballast");
    job_save(&job, 30);
    job_close(&job);
    job_resumes(run, &options, 30);
}

static void a_read_only_disk_is_resumed_from(void **state)
{
    const char *run = run_on_disk("read_only");
    const dcp_run_options options = {.identity = "mine", .mode = DCP_RUN_BLOCKING};
    struct job job;
    (void)state;
    job_run(run, &options, (const int64_t[]){10, 20}, 2);
    assert_true(small_disk_read_only(disk, true));
    job_log_begin();
    job_resumes(run, &options, 20);
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_train_to(&job, 30);
    must_fail(dcp_run_save(job.run, 30), DCP_ERR_IO, strerror(EROFS));
    assert_true(small_disk_read_only(disk, false));
    must(dcp_run_save(job.run, 30));
    job_log_end();
    job_close(&job);
    job_resumes(run, &options, 30);
}

/* ---- clocks and times ---- */

static int64_t wall_seconds;

static int64_t tell_monotonic(void *context)
{
    struct timespec now;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t tell_wall(void *context)
{
    (void)context;
    return wall_seconds * 1000000000;
}

static void sleep_short(void *context, int64_t duration)
{
    (void)context;
    usleep((useconds_t)(duration / 1000));
}

static void a_clock_that_goes_backwards_changes_no_order(void **state)
{
    static const struct clock_source source = {tell_monotonic, tell_wall, sleep_short, NULL};
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1, .younger_seconds = 100};
    const dcp_run_options options = {.mode = DCP_RUN_BLOCKING};
    const dcp_run_prune_options prune = {.keep = &keep};
    uint64_t removed;
    clock_replace(&source);
    for (int64_t step = 10; step <= 30; step += 10) {
        wall_seconds = 2000000000 - step * 86400;
        job_run(run, &options, &step, 1);
    }
    job_resumes(run, NULL, 30);
    scene_expect_latest(run, "step_30");
    must(dcp_run_prune(run, &prune, &removed)); /* of the future: they count as young */
    assert_int_equal(removed, 0);
    wall_seconds = 2000000000 + 86400;
    must(dcp_run_prune(run, &prune, &removed));
    clock_replace(NULL);
    assert_int_equal(removed, 2);
    job_resumes(run, NULL, 30);
}

static void set_times(const char *directory, time_t seconds)
{
    const struct timeval times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    const struct dirent *entry;
    DIR *listing = opendir(directory);
    assert_non_null(listing);
    while ((entry = readdir(listing)))
        if (strcmp(entry->d_name, "..") != 0)
            utimes(scene_in(directory, entry->d_name), times);
    closedir(listing);
}

static void file_times_are_no_order(void **state)
{
    const char *run = path_in(state, "run");
    job_run(run, NULL, (const int64_t[]){10, 20, 30}, 3);
    set_times(scene_in(run, "step_10"), 2000000000);
    set_times(scene_in(run, "step_20"), 0);
    set_times(scene_in(run, "step_30"), 0);
    job_resumes(run, NULL, 30);
    scene_expect_latest(run, "step_30");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    uint64_t removed;
    must(dcp_run_prune(run, &(dcp_run_prune_options){.keep = &keep}, &removed));
    assert_int_equal(removed, 2);
    job_resumes(run, NULL, 30);
}

/* ---- steps again ---- */

static void a_step_that_is_saved_twice_is_the_second_one(void **state)
{
    const char *run = path_in(state, "run");
    struct job job;
    job_run(run, NULL, (const int64_t[]){10, 20}, 2);
    job_make(&job, 0, 1);
    job_open(&job, run, &(dcp_run_options){.reference = "10"});
    must(dcp_run_resume(job.run, NULL));
    job_train_to(&job, 20);
    job.weights[0] = 99;
    must(dcp_run_save(job.run, 20));
    must(dcp_run_save(job.run, 20)); /* at once: it is there */
    job_close(&job);
    job_make(&job, 0, 1);
    job_open(&job, run, NULL);
    must(dcp_run_resume(job.run, NULL));
    assert_true(job.step == 20 && job.weights[0] == 99 && job.weights[1] == 20 + 1.0F / 64);
    job_close(&job);
}

static void later_steps_that_remain_are_told(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_options old = {.reference = "10"};
    job_run(run, NULL, (const int64_t[]){10, 20, 30}, 3);
    job_log_begin();
    expect_words(job_resumes(run, &old, 10), "; step_30 is later and stays");
    expect_words(job_log(), "step_30 is whole and later than step_10, which is resumed from");
    job_log_end();
    job_resumes(run, NULL, 30);
    /* What is not whole, or not of this run, will not be resumed from. */
    scene_remove(scene_in(run, "step_30"), ".metadata");
    expect_words(job_resumes(run, &old, 10), "; step_20 is later and stays");
    scene_remove(scene_in(run, "step_20"), ".metadata");
    assert_null(strstr(job_resumes(run, &old, 10), "is later"));
}

/* ---- directories ---- */

static void foreign_names_do_no_harm(void **state)
{
    static const char *const folders[] = {
        "step_",      "step_x",  "step_40.bak", "step_-50",      "my step_60",    "step_70.tmp",
        "lost+found", ".hidden", "step_1e9",    "iter_00000099", "checkpoint-100"};
    const char *run = path_in(state, "run");
    job_run(run, NULL, (const int64_t[]){10, 20, 30}, 3);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(scene_in(run, folders[i]), 0777), 0);
    scene_write(run, "step_90", "a file");
    scene_write(run, "notes.txt", "");
    assert_int_equal(symlink("step_10", scene_in(run, "step_best")), 0);
    scene_write(scene_in(run, "step_30"), "somebody's.txt", "");
    job_resumes(run, NULL, 30);
    job_run(run, NULL, (const int64_t[]){40}, 1);
    job_resumes(run, NULL, 40);
    assert_true(scratch_exists(run, "step_40.bak") && scratch_exists(run, "step_90"));
}

static void a_run_of_10000_entries_is_resumed(void **state)
{
    const char *run = path_in(state, "run");
    char name[32];
    job_run(run, NULL, (const int64_t[]){10, 5000}, 2);
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "step_%d", 5001 + i);
        assert_int_equal(mkdir(scene_in(run, name), 0777), 0);
        snprintf(name, sizeof name, "notes_%d.txt", i);
        assert_int_equal(mkdir(scene_in(run, name), 0777), 0);
    }
    const char *line = job_resumes(run, NULL, 5000);
    expect_words(line, "step_10000 is not whole");
    scene_expect_latest(run, "step_5000");
}

/* ---- ranks ---- */

/* Longer than a disk takes for what the others wait for. */
#define DEADLINE 2.0

/* What the last rank does not do any more. */
enum absence { ABSENT_OPEN, ABSENT_RESUME, ABSENT_STEP, ABSENT_SAVE, ABSENT_NEVER };

static dcp_status call(struct job *job, enum absence number)
{
    job_train_to(job, 10);
    switch (number) {
    case ABSENT_RESUME:
        return dcp_run_resume(job->run, NULL);
    case ABSENT_STEP:
        return dcp_run_step(job->run, 10);
    case ABSENT_SAVE:
        return dcp_run_save(job->run, 10);
    default:
        return DCP_OK;
    }
}

/* Ends with the first call that fails. */
static dcp_status work_until(struct rank *self)
{
    const enum absence *absence = self->context;
    struct job job;
    dcp_status status;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = {.group = self->group,
                                     .state = job.state,
                                     .mode = DCP_RUN_BLOCKING,
                                     .stop_on_signals = true,
                                     .timeout_seconds = DEADLINE};
    enum absence end = self->rank + 1 == self->size ? *absence : ABSENT_NEVER, next = ABSENT_OPEN;
    if (next == end)
        status = DCP_OK;
    else
        status = dcp_run_open(self->path, &options, &job.run);
    while (status == DCP_OK && ++next < end)
        status = call(&job, next);
    dcp_run_close(job.run);
    job_free(&job);
    return status;
}

static void a_rank_that_does_not_come_is_named_in_time(void **state)
{
    struct rank ranks[RANKS_MAX];
    for (enum absence absence = ABSENT_OPEN; absence <= ABSENT_NEVER; absence++) {
        int64_t start = clock_monotonic_ns();
        ranks_run(ranks, 3, path_in(state, "run"), work_until, &absence);
        for (int rank = 0; rank < 3; rank++) {
            bool told = absence != ABSENT_NEVER && rank < 2;
            assert_int_equal(ranks[rank].status, told ? DCP_ERR_TIMEOUT : DCP_OK);
            if (told)
                expect_words(ranks[rank].message, "rank 2 did not make this call within 2 s");
        }
        assert_true((double)(clock_monotonic_ns() - start) / 1e9 < 20);
    }
}

static void it_is_that_of_saves_and_loads_that_say_none(void **state)
{
    for (int own = 0; own < 2; own++) {
        const dcp_save_options save = {.timeout_seconds = own ? 3 : 0};
        const dcp_run_options options = {.timeout_seconds = 7, .save = &save};
        struct job job;
        job_make(&job, 0, 1);
        job_open(&job, path_in(state, "run"), &options);
        assert_true(job.run->save.timeout_seconds == (own ? 3 : 7));
        assert_true(job.run->chain_options.timeout_seconds == 7);
        assert_true(job.run->load.timeout_seconds == 7);
        job_close(&job);
    }
}

static void wrong_deadlines_are_refused(void **state)
{
    static const double wrong[] = {-1, 2e9, (double)NAN};
    struct job job;
    job_make(&job, 0, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const dcp_run_options options = {.state = job.state, .timeout_seconds = wrong[i]};
        must_fail(dcp_run_open(path_in(state, "run"), &options, &job.run), DCP_ERR_ARGUMENT,
                  "the deadline of a run is ");
    }
    job_free(&job);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_costs_one_save),
        TEST(a_read_only_disk_is_resumed_from),
        TEST(a_clock_that_goes_backwards_changes_no_order),
        TEST(file_times_are_no_order),
        TEST(a_step_that_is_saved_twice_is_the_second_one),
        TEST(later_steps_that_remain_are_told),
        TEST(foreign_names_do_no_harm),
        TEST(a_run_of_10000_entries_is_resumed),
        TEST(a_rank_that_does_not_come_is_named_in_time),
        TEST(it_is_that_of_saves_and_loads_that_say_none),
        TEST(wrong_deadlines_are_refused),
    };
    const char *temporary = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(disk, sizeof disk, "%.40s/dcp-trouble-XXXXXX", temporary);
    if (!mkdtemp(disk))
        return 1;
    bool mounted = small_disk_mount(disk, "size=1m", why_not);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (mounted)
        umount(disk);
    rmdir(disk);
    return failed;
}
