/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves while an old checkpoint is being removed, also those that find no space; and how fast it
 * is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "run/job_scene.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

/* ---- a disk that is full until an old checkpoint is gone ---- */

static atomic_bool disk_is_full, removal_is_slow, removal_fails;
static atomic_int failures;

static dcp_status create_if_there_is_room(void *context, void *directory, const char *name,
                                          const dcp_storage_access *access, dcp_storage_file *file)
{
    if (disk_is_full && strstr(name, ".distcp")) {
        failures++;
        return dcp_error_set(DCP_ERR_NO_SPACE, "%s: the disk is full", name);
    }
    return dcp_storage_files()->create(context, directory, name, access, file);
}

/* What a removal begins with waits until a save has failed, and then some. */
static dcp_status remove_late(void *context, void *directory, const char *name)
{
    bool commits = strcmp(name, ".metadata") == 0;
    for (int i = 0; commits && removal_is_slow && failures == 0 && i < 20000; i++)
        usleep(1000);
    if (commits && removal_is_slow)
        usleep(100000);
    if (removal_fails)
        return dcp_error_set(DCP_ERR_IO, "%s cannot be removed", name);
    dcp_status status = dcp_storage_files()->remove(context, directory, name);
    if (commits)
        disk_is_full = false;
    return status;
}

static dcp_storage full_storage(void)
{
    dcp_storage storage = *dcp_storage_files();
    storage.create = create_if_there_is_room;
    storage.remove = remove_late;
    disk_is_full = removal_is_slow = removal_fails = false;
    failures = 0;
    return storage;
}

/* ---- tests ---- */

static dcp_status save_on_a_full_disk(struct rank *self)
{
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    dcp_run_options options = *(const dcp_run_options *)self->context;
    struct job job;
    job_make(&job, self->rank, self->size);
    options.group = self->group;
    options.state = job.state;
    options.keep = &keep;
    must(dcp_run_open(self->path, &options, &job.run));
    job_save(&job, 10);
    must(dcp_run_flush(job.run));
    removal_is_slow = true;
    job_save(&job, 20);
    must(dcp_run_flush(job.run)); /* and step_10 is to go */
    must(dcp_group_barrier(self->group, 0));
    disk_is_full = true;
    must(dcp_group_barrier(self->group, 0));
    job_save(&job, 30);
    job_train_to(&job, 31); /* what is tried again is what was copied */
    must(dcp_run_flush(job.run));
    assert_int_equal(dcp_run_saved_step(job.run), 30);
    job_close(&job);
    return DCP_OK;
}

static dcp_status resume_at_30(struct rank *self)
{
    dcp_run_resumed resumed;
    struct job job;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = {.group = self->group, .state = job.state};
    must(dcp_run_open(self->path, &options, &job.run));
    must(dcp_run_resume(job.run, &resumed));
    assert_int_equal(resumed.step, 30);
    job_expect(&job, 30);
    job_close(&job);
    return DCP_OK;
}

static void a_save_waits_for_the_removal_and_tries_again(void **state)
{
    static const dcp_run_mode modes[] = {DCP_RUN_ASYNC, DCP_RUN_BLOCKING};
    for (size_t i = 0; i < 2; i++) {
        for (int ranks = 1; ranks <= 3; ranks += 2) {
            char name[32];
            snprintf(name, sizeof name, "run_%zu_%d", i, ranks);
            const char *run = path_in(state, name);
            dcp_storage storage = full_storage();
            dcp_run_options options = {.storage = &storage, .mode = modes[i]};
            job_log_begin();
            ranks_must(ranks, run, save_on_a_full_disk, &options);
            assert_non_null(strstr(job_log(), "the disk is full"));
            job_log_end();
            assert_true(failures > 0 && !disk_is_full);
            ranks_must(ranks, run, resume_at_30, NULL);
        }
    }
}

/* Nothing is being removed: what was waited for would never come. */
static void without_a_removal_it_fails_at_once(void **state)
{
    static const dcp_run_mode modes[] = {DCP_RUN_ASYNC, DCP_RUN_BLOCKING};
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 5};
    for (size_t i = 0; i < 2; i++) {
        dcp_storage storage = full_storage();
        const dcp_run_options options = {.storage = &storage, .mode = modes[i], .keep = &keep};
        struct job job;
        job_make(&job, 0, 1);
        job_open(&job, path_in(state, i ? "blocking" : "async"), &options);
        job_save(&job, 10);
        must(dcp_run_flush(job.run));
        disk_is_full = true;
        job_train_to(&job, 20);
        dcp_status status = dcp_run_save(job.run, 20);
        assert_int_equal(status == DCP_OK ? dcp_run_flush(job.run) : status, DCP_ERR_NO_SPACE);
        assert_int_equal(failures, 1);
        disk_is_full = false;
        job_save(&job, 30);
        job_close(&job);
    }
}

/* There is no copy of the whole state to try again from; the next save has the room. */
static void within_a_limit_of_memory_a_save_behind_training_fails(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    const dcp_save_chain_options chain = {.staging_limit = 1 << 20};
    dcp_storage storage = full_storage();
    const dcp_run_options options = {.storage = &storage, .keep = &keep, .chain = &chain};
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    job_save(&job, 10);
    must(dcp_run_flush(job.run));
    removal_is_slow = true;
    job_save(&job, 20);
    must(dcp_run_flush(job.run));
    disk_is_full = true;
    job_save(&job, 30);
    must_fail(dcp_run_flush(job.run), DCP_ERR_NO_SPACE, "the disk is full");
    while (disk_is_full)
        usleep(1000);
    job_save(&job, 40);
    job_close(&job);
    job_resumes(run, NULL, 40);
}

/* Removals that hang and that fail are no matter of saves. */
static void slow_or_failed_removals_hold_up_no_save(void **state)
{
    for (int fails = 0; fails < 2; fails++) {
        const char *run = path_in(state, fails ? "failed" : "slow");
        const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
        dcp_storage storage = full_storage();
        const dcp_run_options options = {.storage = &storage, .keep = &keep};
        struct job job;
        job_make(&job, 0, 1);
        job_open(&job, run, &options);
        job_save(&job, 10);
        must(dcp_run_flush(job.run));
        removal_is_slow = !fails;
        removal_fails = fails;
        job_log_begin();
        for (int64_t step = 20; step <= 50; step += 10) {
            job_save(&job, step);
            must(dcp_run_flush(job.run));
        }
        scene_expect_latest(run, "step_50");
        assert_true(scratch_exists(scene_in(run, "step_10"), ".metadata"));
        failures = 1; /* lets the slow one go on */
        job_close(&job);
        removal_fails = false;
        assert_int_equal(!strstr(job_log(), "is not removed"), !fails);
        job_log_end();
        job_resumes(run, NULL, 50);
    }
}

static void removals_pause_between_each_other(void **state)
{
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1, .pause_seconds = 0.2};
    const char *run = path_in(state, "run");
    uint64_t removed;
    job_run(run, NULL, (const int64_t[]){10, 20, 30, 40}, 4);
    int64_t begun = clock_monotonic_ns();
    must(dcp_run_prune(run, &(dcp_run_prune_options){.keep = &keep}, &removed));
    assert_int_equal(removed, 3);
    assert_true(clock_monotonic_ns() - begun >= 400000000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_save_waits_for_the_removal_and_tries_again),
        TEST(without_a_removal_it_fails_at_once),
        TEST(slow_or_failed_removals_hold_up_no_save),
        TEST(removals_pause_between_each_other),
        TEST(within_a_limit_of_memory_a_save_behind_training_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
