/* SPDX-License-Identifier: BSD-3-Clause */
/* Where asynchronous saves go: to the place of the time of the call, wherever the process goes
 * meanwhile and whatever comes to be at that path; and to another one when there is no place. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/async_model.h"
#include "checkpoint/ranks.h"
#include "fault/over_files.h"

/* ---- the system's files, of which some operations fail for a while ---- */

enum failing { FAIL_NOTHING, FAIL_MAKE, FAIL_SPACE, FAIL_CREATE, FAIL_LOOK, FAIL_JOIN };

static struct {
    enum failing what;
    int error_number;
    const char *where; /* part of a directory's name; NULL: everywhere */
    atomic_int left;
} failing;

/* Only what this thread does fails. */
static _Thread_local bool unlucky;

static bool fails(enum failing what, const char *name)
{
    bool here = failing.what == what && (!failing.where || strstr(name, failing.where));
    return here && atomic_fetch_sub(&failing.left, 1) > 0;
}

static int failing_open(void *context, int directory, const char *name, unsigned flags,
                        int *descriptor)
{
    bool opens = (flags & FILE_AS_DIRECTORY) && directory == FILE_NO_DIRECTORY;
    if ((flags & FILE_CREATE_NEW) && strstr(name, ".distcp") && fails(FAIL_CREATE, name))
        return failing.error_number;
    if (opens && (fails(FAIL_LOOK, name) || (unlucky && fails(FAIL_JOIN, name))))
        return failing.error_number;
    return file_ops_system.open(context, directory, name, flags, descriptor);
}

static int failing_make_directory(void *context, int directory, const char *name)
{
    return fails(FAIL_MAKE, name) ? failing.error_number
                                  : file_ops_system.make_directory(context, directory, name);
}

static int failing_free_space(void *context, int directory, uint64_t *bytes)
{
    int result = file_ops_system.free_space(context, directory, bytes);
    if (fails(FAIL_SPACE, failing.where))
        *bytes = 10;
    return result;
}

static const struct file_ops *files_failing(enum failing what, int error_number, const char *where,
                                            int times)
{
    static struct file_ops ops;
    ops = file_ops_system;
    ops.open = failing_open;
    ops.make_directory = failing_make_directory;
    ops.free_space = failing_free_space;
    failing.what = what;
    failing.error_number = error_number;
    failing.where = where;
    atomic_store(&failing.left, times);
    return &ops;
}

static dcp_status begin_over(const struct file_ops *ops, struct model *model, const char *path,
                             const dcp_save_options *options, dcp_future **future)
{
    dcp_state *root = tree_of(model, 1);
    dcp_status status = save_async_over(ops, root, path, options, future);
    dcp_state_free(root);
    return status;
}

static void save_step(const char *path, int64_t step)
{
    struct model model;
    make_model(&model, 0, 1, step);
    dcp_state *root = tree_of(&model, step);
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
    free(model.shard);
}

static bool is_there(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0;
}

/* ---- the place of the time of the call ---- */

/* The directory that the process goes to has a checkpoint of that name. */
static void a_process_may_change_its_directory(void **state)
{
    enum { ROUNDS = 25 };
    needs_files();
    struct model model;
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REFUSE};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    assert_int_equal(mkdir(path_in(state, "other"), 0777), 0);
    save_step(path_in(state, "other/step"), 2);
    for (int i = 0; i < ROUNDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "round_%d", i);
        assert_int_equal(mkdir(path_in(state, name), 0777), 0);
        assert_int_equal(chdir(path_in(state, name)), 0);
        must(begin(&model, 1, "step", &options, &future));
        assert_int_equal(chdir(path_in(state, "other")), 0);
        must(dcp_future_wait(future, WAIT));
        dcp_future_free(future);
        snprintf(name, sizeof name, "round_%d/step", i);
        must(check(path_in(state, name), 1));
    }
    must(check(path_in(state, "other/step"), 2));
    assert_int_equal(chdir("/"), 0);
    free(model.shard);
}

static void later_attempts_go_to_the_same_places(void **state)
{
    needs_files();
    struct model model;
    dcp_save_chain_options how = {
        .retries = 1, .retry_seconds = 0.05, .fallback_path = "elsewhere"};
    dcp_save_options options = {0};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    assert_int_equal(mkdir(path_in(state, "here"), 0777), 0);
    assert_int_equal(mkdir(path_in(state, "there"), 0777), 0);
    must(dcp_save_chain_new(&how, &options.chain));
    for (int failures = 1; failures <= 2; failures++) {
        assert_int_equal(chdir(path_in(state, "here")), 0);
        must(begin_over(files_failing(FAIL_CREATE, EIO, NULL, failures), &model,
                        failures == 1 ? "step_1" : "step_2", &options, &future));
        assert_int_equal(chdir(path_in(state, "there")), 0);
        must(dcp_future_wait(future, WAIT));
        dcp_future_free(future);
        must(check(path_in(state, failures == 1 ? "here/step_1" : "here/elsewhere/step_2"), 1));
    }
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(path_in(state, "there")), 0);
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

static void what_comes_to_be_at_the_path_is_left_alone(void **state)
{
    needs_files();
    struct model model;
    dcp_save_options options = {.progress = wait_while_held};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    save_step(path_in(state, "other"), 2);
    hold(true);
    must(begin(&model, 1, path_in(state, "step"), &options, &future));
    assert_int_equal(rename(path_in(state, "step"), path_in(state, "moved")), 0);
    assert_int_equal(rename(path_in(state, "other"), path_in(state, "step")), 0);
    hold(false);
    must(dcp_future_wait(future, WAIT));
    dcp_future_free(future);
    must(check(path_in(state, "moved"), 1));
    must(check(path_in(state, "step"), 2));
    /* One that the save has made is not taken back in another one's place. */
    assert_int_equal(mkdir(path_in(state, "empty"), 0777), 0);
    hold(true);
    must(begin(&model, 1, path_in(state, "late"), &options, &future));
    assert_int_equal(rename(path_in(state, "late"), path_in(state, "away")), 0);
    assert_int_equal(rename(path_in(state, "empty"), path_in(state, "late")), 0);
    dcp_future_cancel(future);
    hold(false);
    must_fail(dcp_future_wait(future, WAIT), DCP_ERR_CANCELLED, "");
    dcp_future_free(future);
    assert_true(is_there(path_in(state, "late")));
    free(model.shard);
}

/* ---- reading ---- */

static struct {
    const char *path, *moved, *other;
    bool done;
} swap;

static void swap_directories(void)
{
    swap.done = true;
    assert_int_equal(rename(swap.path, swap.moved), 0);
    assert_int_equal(rename(swap.other, swap.path), 0);
}

/* The directory is swapped for another one when the first shard file is opened. */
static int swapping_open(void *context, int directory, const char *name, unsigned flags,
                         int *descriptor)
{
    if (!swap.done && strstr(name, ".distcp"))
        swap_directories();
    return file_ops_system.open(context, directory, name, flags, descriptor);
}

static void prepare_swap(void **state)
{
    swap.path = path_in(state, "step");
    swap.moved = path_in(state, "moved");
    swap.other = path_in(state, "other");
    swap.done = false;
    save_step(swap.path, 1);
    save_step(swap.other, 2);
}

static void a_load_reads_the_directory_that_it_opened(void **state)
{
    needs_files();
    struct model model, expected;
    struct file_ops ops = file_ops_system;
    make_model(&model, 0, 1, 3);
    make_model(&expected, 0, 1, 1);
    prepare_swap(state);
    ops.open = swapping_open;
    dcp_state *root = tree_of(&model, 3);
    must(load_over(&ops, root, swap.path, NULL, NULL));
    assert_true(swap.done);
    assert_memory_equal(model.shard, expected.shard, ROWS * COLUMNS * sizeof(float));
    dcp_state_free(root);
    free(expected.shard);
    free(model.shard);
}

static void an_open_checkpoint_stays_what_it_is(void **state)
{
    needs_files();
    dcp_checkpoint *checkpoint;
    int64_t step = 0;
    prepare_swap(state);
    assert_int_equal(chdir(*state), 0);
    must(dcp_checkpoint_open("step", NULL, &checkpoint));
    swap_directories();
    assert_int_equal(chdir("/"), 0);
    dcp_state *loaded = dcp_state_new();
    size_t entry = 0;
    must(dcp_checkpoint_find(checkpoint, "step", &entry));
    must(dcp_checkpoint_read_object(checkpoint, entry, loaded, "step", NULL));
    must(dcp_state_as_int(dcp_state_find(loaded, "step"), &step));
    assert_int_equal(step, 1);
    dcp_state_free(loaded);
    dcp_checkpoint_close(checkpoint);
}

static void what_is_verified_is_what_was_opened(void **state)
{
    needs_files();
    struct file_ops ops = file_ops_system;
    const dcp_storage storage = files_storage(&ops);
    const dcp_open_options options = {.storage = &storage};
    uint64_t faults = 1;
    prepare_swap(state);
    ops.open = swapping_open;
    must(dcp_verify(swap.path, &options, NULL, NULL, &faults));
    assert_true(swap.done);
    assert_int_equal(faults, 0);
}

/* ---- no place ---- */

static const struct {
    enum failing what;
    int error_number;
    dcp_status status;
} no_place[] = {
    {FAIL_MAKE, EROFS, DCP_ERR_IO},        {FAIL_MAKE, EACCES, DCP_ERR_IO},
    {FAIL_MAKE, ENOTDIR, DCP_ERR_IO},      {FAIL_MAKE, ENOENT, DCP_ERR_NOT_FOUND},
    {FAIL_MAKE, ENOSPC, DCP_ERR_NO_SPACE}, {FAIL_SPACE, 0, DCP_ERR_NO_SPACE},
    {FAIL_LOOK, EACCES, DCP_ERR_IO},
};

enum { NO_PLACE = sizeof no_place / sizeof *no_place };

static const struct file_ops *fail_as(int which, int times)
{
    return files_failing(no_place[which].what, no_place[which].error_number, "step", times);
}

static void failures_of_the_place_are_tried_again(void **state)
{
    needs_files();
    struct model model;
    dcp_save_chain_options how = {.retries = 2, .retry_seconds = 0.001};
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REFUSE};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    for (int i = 0; i < NO_PLACE; i++) {
        char name[32];
        snprintf(name, sizeof name, "step_%d", i);
        options.chain = NULL;
        /* As without retries. */
        must_fail(begin_over(fail_as(i, 1000), &model, path_in(state, name), &options, &future),
                  no_place[i].status, "");
        must(dcp_save_chain_new(&how, &options.chain));
        must(begin_over(fail_as(i, 2), &model, path_in(state, name), &options, &future));
        fill(&model, 2);
        must(dcp_future_wait(future, WAIT));
        fill(&model, 1);
        dcp_future_free(future);
        dcp_save_chain_free(options.chain);
        must(check(path_in(state, name), 1));
    }
    free(model.shard);
}

static void saves_fall_back_without_a_place(void **state)
{
    needs_files();
    struct model model;
    dcp_save_chain_options how = {.fallback_path = path_in(state, "elsewhere")};
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REFUSE};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    for (int i = 0; i < NO_PLACE; i++) {
        char name[32];
        snprintf(name, sizeof name, "elsewhere/step_%d", i);
        must(begin_over(fail_as(i, 1), &model, path_in(state, name + strlen("elsewhere/")),
                        &options, &future));
        must(dcp_future_wait(future, WAIT));
        dcp_future_free(future);
        must(check(path_in(state, name), 1));
        assert_false(is_there(path_in(state, name + strlen("elsewhere/"))));
    }
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

static void both_places_are_named(void **state)
{
    needs_files();
    struct model model;
    dcp_save_chain_options how = {.fallback_path = path_in(state, "elsewhere")};
    dcp_save_options options = {0};
    dcp_future *future;
    char text[512];
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    for (int written = 0; written < 2; written++) {
        const struct file_ops *ops =
            written ? files_failing(FAIL_CREATE, EIO, NULL, 1000) : fail_as(0, 1000);
        must(begin_over(ops, &model, path_in(state, "step"), &options, &future));
        snprintf(text, sizeof text, "saving to %s failed: cannot ", path_in(state, "step"));
        must_fail(dcp_future_wait(future, WAIT), DCP_ERR_IO, text);
        snprintf(text, sizeof text, "falling back to %s failed: cannot ",
                 path_in(state, "elsewhere/step"));
        assert_non_null(strstr(dcp_future_message(future), text));
        dcp_future_free(future);
    }
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

/* What the path held all the time is not overwritten by an attempt that sees it late. */
static void later_attempts_refuse_to_overwrite(void **state)
{
    needs_files();
    struct model model;
    dcp_save_chain_options how = {.retries = 1, .retry_seconds = 0.001};
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REFUSE};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    save_step(path_in(state, "step"), 2);
    must(dcp_save_chain_new(&how, &options.chain));
    must(begin_over(files_failing(FAIL_LOOK, EACCES, "step", 1), &model, path_in(state, "step"),
                    &options, &future));
    must_fail(dcp_future_wait(future, WAIT), DCP_ERR_EXISTS, "overwriting is refused");
    dcp_future_free(future);
    must(check(path_in(state, "step"), 2));
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

static void other_failures_are_reported_at_once(void **state)
{
    needs_files();
    struct model model;
    dcp_save_chain_options how = {
        .retries = 5, .retry_seconds = 100, .fallback_path = path_in(state, "elsewhere")};
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REFUSE};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    save_step(path_in(state, "there"), 2);
    must(dcp_save_chain_new(&how, &options.chain));
    must_fail(begin(&model, 1, path_in(state, "there"), &options, &future), DCP_ERR_EXISTS,
              "overwriting is refused");
    options.thread_count = -1;
    must_fail(begin(&model, 1, path_in(state, "a"), &options, &future), DCP_ERR_ARGUMENT, "");
    options.thread_count = 0;
    /* Whatever is the matter with the place. */
    dcp_state *root = tree_of(&model, 1);
    dcp_tensor part = {.dtype = DCP_F32,
                       .ndim = 1,
                       .global_shape = {COLUMNS},
                       .sharded = true,
                       .sizes = {COLUMNS - 5},
                       .data = model.replica};
    dcp_state_tensor(root, "part", &part);
    must_fail(save_async_over(fail_as(0, 1000), root, path_in(state, "step"), &options, &future),
              DCP_ERR_COVERAGE, "part");
    dcp_state_free(root);
    assert_false(is_there(path_in(state, "elsewhere")));
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

/* ---- all ranks alike ---- */

struct trial {
    const struct file_ops *ops;
    dcp_save_chain_options how;
};

static dcp_status save_on_ranks(struct rank *self)
{
    const struct trial *trial = self->context;
    dcp_save_chain_options how = trial->how;
    dcp_save_options options = {.timeout_seconds = 20};
    struct model model;
    dcp_future *future = NULL;
    how.group = self->group;
    dcp_status status = dcp_save_chain_new(&how, &options.chain);
    make_model(&model, self->rank, self->size, 1);
    unlucky = self->rank == 1;
    if (status == DCP_OK)
        status = begin_over(trial->ops, &model, self->path, &options, &future);
    unlucky = false;
    if (status == DCP_OK)
        status = dcp_future_wait(future, WAIT);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
    return status;
}

static void ranks_go_to_another_place_together(void **state)
{
    needs_files();
    struct trial trial = {.how = {.retries = 1, .retry_seconds = 0.001}};
    trial.ops = fail_as(0, 1);
    ranks_must(3, path_in(state, "step_1"), save_on_ranks, &trial);
    must(check(path_in(state, "step_1"), 1));
    /* One rank alone does not see what the coordinator has made. */
    trial.ops = files_failing(FAIL_JOIN, EIO, "step", 1);
    ranks_must(3, path_in(state, "step_2"), save_on_ranks, &trial);
    must(check(path_in(state, "step_2"), 1));
    char elsewhere[256];
    snprintf(elsewhere, sizeof elsewhere, "%s", path_in(state, "elsewhere"));
    trial.how = (dcp_save_chain_options){.fallback_path = elsewhere};
    for (int i = 0; i < NO_PLACE; i++) {
        char name[32];
        snprintf(name, sizeof name, "elsewhere/step_3%d", i);
        trial.ops = fail_as(i, 1);
        ranks_must(2, path_in(state, name + strlen("elsewhere/")), save_on_ranks, &trial);
        must(check(path_in(state, name), 1));
    }
    trial.ops = files_failing(FAIL_JOIN, EIO, "step", 1);
    ranks_must(2, path_in(state, "step_4"), save_on_ranks, &trial);
    must(check(path_in(state, "elsewhere/step_4"), 1));
    assert_false(is_there(path_in(state, "step_4")));
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_process_may_change_its_directory),
        TEST(later_attempts_go_to_the_same_places),
        TEST(what_comes_to_be_at_the_path_is_left_alone),
        TEST(a_load_reads_the_directory_that_it_opened),
        TEST(an_open_checkpoint_stays_what_it_is),
        TEST(what_is_verified_is_what_was_opened),
        TEST(failures_of_the_place_are_tried_again),
        TEST(saves_fall_back_without_a_place),
        TEST(both_places_are_named),
        TEST(later_attempts_refuse_to_overwrite),
        TEST(other_failures_are_reported_at_once),
        TEST(ranks_go_to_another_place_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
