/* SPDX-License-Identifier: BSD-3-Clause */
/* Two saves in one directory at every interleaving of their operations with two cuts: the first one
 * comes as far as its i-th operation, the second one as far as its j-th, then the first one ends,
 * then the second one. So each of them runs as a whole between any two operations of the other.
 * Between the cuts the marks are left as they are, or look as if their saves had died elsewhere
 * long ago, or are removed by somebody. Likewise a save and the removal of the checkpoint there.
 * And loads, beside a save that replaces what they load. With an argument of n only every n-th cut
 * is made, but where one replaces and is taken for dead: there fewer are left out, and none without
 * a sanitizer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/versions.h"
#include "storage/commit/save_mark.h"
#include "storage/open/directory.h"

enum marks { MARKS_STAY, MARKS_AGE, MARKS_VANISH };

static const char *const mark_names[] = {"marks stay", "marks age", "marks vanish"};

static long stride = 1;

/* ---- one that can be stopped ---- */

enum { LOADS = 0, REMOVES = -1 };

/* Runs on a thread of its own, which stands still at an operation until it is let go. */
struct actor {
    struct simulated_file_system *fs;
    int version; /* to be saved; or LOADS or REMOVES */
    long stop;   /* before this operation, from 1; 0: nowhere */
    long operations;
    bool stopped, ended, free;
    dcp_status status;
    int found;
    char message[512];
    pthread_t thread;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Thread_local struct actor *self;

static void before_operation(void *context)
{
    (void)context;
    if (!self || ++self->operations != self->stop)
        return;
    pthread_mutex_lock(&mutex);
    self->stopped = true;
    pthread_cond_broadcast(&changed);
    while (!self->free)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static dcp_status remove_checkpoint(struct simulated_file_system *fs)
{
    const dcp_remove_options options = {.storage = simulated_storage(fs)};
    return dcp_checkpoint_remove(VERSIONS_PATH, &options, NULL);
}

static void *act(void *context)
{
    self = context;
    if (self->version == REMOVES)
        self->status = remove_checkpoint(self->fs);
    else if (self->version != LOADS)
        self->status = version_save(self->fs, self->version, 1);
    else
        self->found = version_load(self->fs, &self->status);
    snprintf(self->message, sizeof self->message, "%s", dcp_error_message());
    pthread_mutex_lock(&mutex);
    self->ended = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* Until the actor stands still or has ended. */
static void start(struct actor *actor, struct simulated_file_system *fs, int version, long stop)
{
    *actor = (struct actor){.fs = fs, .version = version, .stop = stop};
    assert_int_equal(pthread_create(&actor->thread, NULL, act, actor), 0);
    pthread_mutex_lock(&mutex);
    while (!actor->stopped && !actor->ended)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void end(struct actor *actor)
{
    pthread_mutex_lock(&mutex);
    actor->free = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    assert_int_equal(pthread_join(actor->thread, NULL), 0);
}

/* ---- what becomes of marks ---- */

/* Of a save on another machine, an hour and more ago. */
static void age_mark(const struct storage_directory *directory)
{
    struct storage_publication publication;
    struct save_mark mark;
    struct buffer bytes;
    char text[SAVE_MARK_SIZE];
    bool visible;
    buffer_init(&bytes, 0);
    if (storage_read_whole(directory, OWNER_NAME, sizeof text, &bytes) == DCP_OK &&
        save_mark_parse(bytes.data, bytes.size, &mark)) {
        snprintf(mark.process.host, sizeof mark.process.host, "elsewhere");
        snprintf(mark.process.boot, sizeof mark.process.boot, "another");
        mark.since -= 4000;
        size_t length = save_mark_print(&mark, text);
        assert_int_equal(
            storage_publication_prepare(&publication, directory, OWNER_NAME, text, length, false),
            DCP_OK);
        assert_int_equal(storage_publication_publish(&publication, DCP_PUBLISH_ALWAYS, &visible),
                         DCP_OK);
    }
    buffer_free(&bytes);
}

static void treat_mark(struct simulated_file_system *fs, enum marks marks)
{
    struct storage_directory directory;
    if (marks == MARKS_STAY ||
        storage_directory_open(&directory, simulated_storage(fs), VERSIONS_PATH, 0, NULL) != DCP_OK)
        return;
    if (marks == MARKS_AGE)
        age_mark(&directory);
    else
        storage_directory_remove(&directory, OWNER_NAME);
    storage_directory_close(&directory);
}

/* ---- two savers ---- */

/* Empty, or with version 1. */
static struct simulated_file_system *disk_with(int version)
{
    struct simulated_file_system *fs = simulated_new();
    if (version)
        assert_int_equal(version_save(fs, version, 1), DCP_OK);
    return fs;
}

/* Another one's shards may not be durable yet when a commit comes. */
static struct simulated_file_system *copy_of(const struct simulated_file_system *before)
{
    struct simulated_file_system *fs = simulated_copy(before);
    simulated_allow_early_commits(fs);
    simulated_set_watcher(fs, before_operation, NULL);
    return fs;
}

struct cuts {
    int old;
    enum marks marks;
    long first, second;
};

static void check(const struct cuts *cuts, bool holds, const char *what, const struct actor *a,
                  const struct actor *b, int found)
{
    if (!holds)
        fail_msg("%s; old version %d, %s, cuts %ld and %ld: found version %d; the first save: %s "
                 "(%s), the second one: %s (%s)",
                 what, cuts->old, mark_names[cuts->marks], cuts->first, cuts->second, found,
                 dcp_status_string(a->status), a->message, dcp_status_string(b->status),
                 b->message);
}

/* Without a mark both may pick the same names, which only one of them can make; and one that fails
 * may find the directory empty, which it has made, and remove it. */
static bool is_refusal(const struct cuts *cuts, const struct actor *actor)
{
    bool unmarked = actor->status == DCP_ERR_EXISTS || actor->status == DCP_ERR_NOT_FOUND;
    return actor->status == DCP_ERR_BUSY || (unmarked && cuts->marks == MARKS_VANISH);
}

static void check_outcome(struct simulated_file_system *fs, const struct cuts *cuts,
                          const struct actor *a, const struct actor *b)
{
    dcp_status status;
    int found = version_load(fs, &status);
    bool a_saved = a->status == DCP_OK, b_saved = b->status == DCP_OK;
    check(cuts, found != VERSION_CORRUPT, "what is left does not load", a, b, found);
    check(cuts, a_saved || is_refusal(cuts, a), "an error that is none", a, b, found);
    check(cuts, b_saved || is_refusal(cuts, b), "an error that is none", a, b, found);
    check(cuts,
          (found == 2 && a_saved) || (found == 3 && b_saved) ||
              (found == cuts->old && !a_saved && !b_saved),
          "the checkpoint is not that of a save that has succeeded", a, b, found);
    check(cuts, a_saved || b_saved || cuts->marks != MARKS_STAY, "nobody saved", a, b, found);
    check(cuts, simulated_open_descriptors(fs) == 0, "a descriptor leaked", a, b, found);
    /* Whatever is left, the next save is as if nothing had been, and leaves nothing. */
    assert_int_equal(version_save(fs, 4, 1), DCP_OK);
    assert_int_equal(version_find(fs), 4);
    assert_int_equal(version_count_files(fs), 1);
}

/* Returns which of the cuts were reached. */
static void run_cuts(const struct simulated_file_system *before, const struct cuts *cuts,
                     bool *first, bool *second)
{
    struct simulated_file_system *fs = copy_of(before);
    struct actor a, b;
    start(&a, fs, 2, cuts->first);
    treat_mark(fs, cuts->marks);
    start(&b, fs, 3, cuts->second);
    treat_mark(fs, cuts->marks);
    *first = a.stopped;
    *second = b.stopped;
    end(&a);
    end(&b);
    simulated_set_watcher(fs, NULL, NULL);
    check_outcome(fs, cuts, &a, &b);
    simulated_free(fs);
}

static void cut_everywhere(int old, enum marks marks)
{
    struct simulated_file_system *before = disk_with(old);
    bool first = true, second;
    long count = 0;
    /* Where several replace the same file, a few cuts of thousands are those that matter. */
    long step = old && marks == MARKS_AGE && stride > TRIAL_STEP ? TRIAL_STEP : stride;
    for (long i = 1; first; i++) {
        second = true;
        /* Beyond the end of the second save it runs as a whole. */
        for (long j = 1 + i % step; second && first; j += step) {
            run_cuts(before, &(struct cuts){old, marks, i, j}, &first, &second);
            count++;
        }
    }
    print_message("old version %d, %s: %ld interleavings\n", old, mark_names[marks], count);
    assert_true(count > 100);
    simulated_free(before);
}

static void savers_in_a_fresh_directory(void **state)
{
    (void)state;
    for (int marks = MARKS_STAY; marks <= MARKS_VANISH; marks++)
        cut_everywhere(VERSION_NONE, (enum marks)marks);
}

static void savers_that_replace(void **state)
{
    (void)state;
    for (int marks = MARKS_STAY; marks <= MARKS_VANISH; marks++)
        cut_everywhere(1, (enum marks)marks);
}

/* ---- a saver that crashed, and the one that comes after it while readers read ---- */

/* A load stands still before its i-th operation while the checkpoint is replaced. */
static void loads_of_what_is_replaced(void **state)
{
    struct simulated_file_system *before = disk_with(1);
    bool reached = true;
    int busy = 0, whole = 0;
    (void)state;
    for (long i = 1; reached; i++) {
        struct simulated_file_system *fs = copy_of(before);
        struct actor load;
        start(&load, fs, LOADS, i);
        assert_int_equal(version_save(fs, 2, 1), DCP_OK);
        reached = load.stopped;
        end(&load);
        if (load.status == DCP_OK ? load.found != 1 && load.found != 2
                                  : load.status != DCP_ERR_BUSY)
            fail_msg("operation %ld: %s: %s, version %d", i, dcp_status_string(load.status),
                     load.message, load.found);
        if (load.status == DCP_ERR_BUSY)
            assert_non_null(strstr(load.message, "was replaced while it was read"));
        busy += load.status == DCP_ERR_BUSY;
        whole += load.status == DCP_OK;
        simulated_set_watcher(fs, NULL, NULL);
        simulated_free(fs);
    }
    assert_true(busy > 0 && whole > 0);
    simulated_free(before);
}

/* ---- a save, and the removal of what is there ---- */

static bool has_directory(struct simulated_file_system *fs)
{
    struct storage_directory directory;
    bool there =
        storage_directory_open(&directory, simulated_storage(fs), VERSIONS_PATH, 0, NULL) == DCP_OK;
    storage_directory_close(&directory);
    return there;
}

/* None harms the other one: the save succeeds unless the removal has the mark, and what it has
 * saved goes only if the removal, which may come after it, has succeeded. */
static void check_removal(struct simulated_file_system *fs, const struct cuts *cuts,
                          const struct actor *save, const struct actor *removal)
{
    dcp_status status;
    int found = version_load(fs, &status);
    bool saved = save->status == DCP_OK, removed = removal->status == DCP_OK;
    check(cuts, saved || save->status == DCP_ERR_BUSY, "the save fails", save, removal, found);
    check(cuts, removed || removal->status == DCP_ERR_BUSY || removal->status == DCP_ERR_NOT_FOUND,
          "the removal fails", save, removal, found);
    check(cuts, found == VERSION_NONE ? removed : found == (saved ? 2 : cuts->old),
          "another checkpoint than there should be", save, removal, found);
    check(cuts, has_directory(fs) == (found != VERSION_NONE), "the directory", save, removal,
          found);
    check(cuts, simulated_open_descriptors(fs) == 0, "a descriptor leaked", save, removal, found);
    assert_int_equal(version_save(fs, 4, 1), DCP_OK);
    assert_int_equal(version_find(fs), 4);
    assert_int_equal(version_count_files(fs), 1);
}

/* Returns which of the cuts were reached. */
static void run_removal(const struct simulated_file_system *before, const struct cuts *cuts,
                        bool saves_first, bool *first, bool *second)
{
    struct simulated_file_system *fs = copy_of(before);
    struct actor a, b;
    start(&a, fs, saves_first ? 2 : REMOVES, cuts->first);
    start(&b, fs, saves_first ? REMOVES : 2, cuts->second);
    *first = a.stopped;
    *second = b.stopped;
    end(&a);
    end(&b);
    simulated_set_watcher(fs, NULL, NULL);
    check_removal(fs, cuts, saves_first ? &a : &b, saves_first ? &b : &a);
    simulated_free(fs);
}

static void saver_and_remover(void **state)
{
    struct simulated_file_system *before = disk_with(1);
    long count = 0;
    (void)state;
    for (int saves_first = 0; saves_first <= 1; saves_first++) {
        bool first = true, second;
        for (long i = 1; first; i++) {
            second = true;
            for (long j = 1 + i % stride; second && first; j += stride, count++)
                run_removal(before, &(struct cuts){1, MARKS_STAY, i, j}, saves_first, &first,
                            &second);
        }
    }
    assert_true(count > 100);
    simulated_free(before);
}

/* A removal is killed at its i-th operation: the checkpoint is there as a whole, or none is, and
 * the next removal leaves nothing. */
static void removals_that_crash(void **state)
{
    struct simulated_file_system *before = disk_with(1);
    bool reached = true;
    int whole = 0, left = 0;
    (void)state;
    for (long i = 1; reached; i++) {
        struct simulated_file_system *fs = simulated_copy(before);
        struct simulated_fault crash = {i, SIMULATED_CRASH, 0, false};
        simulated_set_fault(fs, &crash);
        dcp_status status = remove_checkpoint(fs);
        reached = simulated_fault_reached(fs);
        struct simulated_file_system *after = simulated_copy(fs);
        int found = version_find(after);
        assert_true(found == VERSION_NONE || (found == 1 && status != DCP_OK));
        whole += found == 1;
        left += has_directory(after);
        if (has_directory(after) && remove_checkpoint(after) == DCP_OK)
            assert_false(has_directory(after));
        assert_int_equal(version_find(after), VERSION_NONE);
        assert_int_equal(version_save(after, 3, 1), DCP_OK);
        assert_int_equal(version_find(after), 3);
        simulated_free(after);
        simulated_free(fs);
    }
    assert_true(whole > 0 && left > whole);
    simulated_free(before);
}

/* The first save is killed at its i-th operation; the second one takes over at once. */
static void savers_after_a_crash(void **state)
{
    (void)state;
    for (int old = 0; old <= 1; old++) {
        struct simulated_file_system *before = disk_with(old);
        bool reached = true;
        for (long i = 1; reached; i++) {
            struct simulated_file_system *fs = simulated_copy(before);
            struct simulated_fault crash = {i, SIMULATED_CRASH, 0, false};
            simulated_set_fault(fs, &crash);
            version_save(fs, 2, 1);
            reached = simulated_fault_reached(fs);
            struct simulated_file_system *left = simulated_copy(fs);
            assert_int_equal(version_save(left, 3, 1), DCP_OK);
            assert_int_equal(version_find(left), 3);
            assert_int_equal(version_count_files(left), 1);
            simulated_free(left);
            simulated_free(fs);
        }
        simulated_free(before);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        stride = strtol(argv[1], NULL, 10);
    if (stride < 1)
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(savers_in_a_fresh_directory), cmocka_unit_test(savers_that_replace),
        cmocka_unit_test(savers_after_a_crash),        cmocka_unit_test(saver_and_remover),
        cmocka_unit_test(removals_that_crash),         cmocka_unit_test(loads_of_what_is_replaced),
    };
    version_save_by(DCP_IO_BUFFERED);
    version_load_by(DCP_IO_BUFFERED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
