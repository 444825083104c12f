/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for a disk that is quick or slow. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fault/at_path.h"
#include "fault/simulated_file_system.h"
#include "fault/slow_clock.h"
#include "scratch.h"
#include "storage/files/files.h"
#include "storage/files/sync_beside.h"

/* A disk that says what it was asked for, and answers when as many have asked as are expected. */
struct disk {
    struct file_ops ops;
    atomic_int files, directories, interruptions;
    atomic_int inside, expected;
    atomic_bool alone; /* whoever asked, for five seconds */
    int result;
    pthread_t caller;
    atomic_bool elsewhere; /* asked last by another thread than the caller's */
};

static int ask(struct disk *disk)
{
    disk->elsewhere = !pthread_equal(disk->caller, pthread_self());
    if (atomic_fetch_sub(&disk->interruptions, 1) > 0)
        return EINTR;
    atomic_fetch_add(&disk->inside, 1);
    for (int i = 0; i < 5000 && disk->inside < disk->expected; i++)
        usleep(1000);
    if (disk->inside < disk->expected)
        disk->alone = true;
    return disk->result;
}

static int sync_file(void *context, int descriptor)
{
    struct disk *disk = context;
    assert_int_equal(descriptor, 7);
    disk->files++;
    return ask(disk);
}

static int sync_directory(void *context, int descriptor)
{
    struct disk *disk = context;
    assert_int_equal(descriptor, 7);
    disk->directories++;
    return ask(disk);
}

static void disk_init(struct disk *disk)
{
    *disk =
        (struct disk){.ops = {.context = disk, .sync = sync_file, .sync_directory = sync_directory},
                      .caller = pthread_self()};
}

static int answer(void *context, int descriptor)
{
    (void)context, (void)descriptor;
    return 0;
}

/* One more wait, which is as long as the clock says. */
static void wait_once(void)
{
    static const struct file_ops ops = {.sync = answer};
    struct sync_beside sync = {.ops = &ops, .descriptor = 7};
    assert_int_equal(sync_beside_end(&sync), 0);
}

static void make_slow(void)
{
    slow_clock_install();
    wait_once();
    assert_true(sync_beside_pays());
}

static int64_t stand(void *context)
{
    (void)context;
    return 0;
}

/* By a clock that stands still: a machine may be slow by itself. */
static void make_quick(void)
{
    static const struct clock_source standing = {stand, stand, NULL, NULL};
    clock_replace(&standing);
    wait_once();
    assert_false(sync_beside_pays());
}

static void a_quick_disk_is_waited_for_in_place(void **state)
{
    (void)state;
    struct disk disk;
    struct sync_beside sync;
    disk_init(&disk);
    make_quick();
    disk.files = 0;
    sync_beside_start(&sync, &disk.ops, 7, false);
    assert_int_equal(disk.files, 0);
    disk.interruptions = 2;
    disk.result = EIO;
    assert_int_equal(sync_beside_end(&sync), EIO);
    assert_int_equal(disk.files, 3);
    assert_false(disk.elsewhere);
    sync_beside_start(&sync, &disk.ops, 7, true);
    sync_beside_drop(&sync);
    assert_int_equal(disk.directories, 0);
}

static void a_slow_disk_is_waited_for_on_threads(void **state)
{
    (void)state;
    struct disk disk;
    struct sync_beside file, directory;
    disk_init(&disk);
    make_slow();
    disk.files = 0;
    disk.inside = 0;
    disk.expected = 2;
    disk.interruptions = 2;
    disk.result = EIO;
    sync_beside_start(&file, &disk.ops, 7, false);
    sync_beside_start(&directory, &disk.ops, 7, true);
    assert_true(file.runs && directory.runs);
    assert_int_equal(sync_beside_end(&file), EIO);
    assert_int_equal(sync_beside_end(&directory), EIO);
    assert_int_equal(disk.files + disk.directories, 4);
    assert_int_equal(disk.inside, 2);
    assert_false(disk.alone);
    assert_true(disk.elsewhere);
    sync_beside_start(&file, &disk.ops, 7, false);
    sync_beside_drop(&file);
    assert_false(file.runs);
    assert_int_equal(disk.inside, 3);
    disk.result = 0;
    disk.expected = 0;
    make_quick();
}

/* ---- directories of a path ---- */

/* Each sync of a directory fails in turn. What was made is not there then, and nothing is open. */
static void fail_each_sync(const char *path, const char *existing, const char *first, int syncs)
{
    int failed = 0;
    for (long n = 1;; n++) {
        struct simulated_file_system *fs = simulated_new();
        const struct file_ops *ops = simulated_ops(fs);
        struct file_information information;
        bool created;
        assert_int_equal(make_at_path(ops, existing, true, &created), DCP_OK);
        simulated_set_fault(fs, &(struct simulated_fault){
                                    .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO});
        dcp_status status = make_at_path(ops, path, true, &created);
        bool reached = simulated_fault_reached(fs);
        bool syncing = reached && strstr(simulated_operation_name(fs, n), "sync_directory");
        simulated_set_fault(fs, NULL);
        assert_int_equal(simulated_open_descriptors(fs), 0);
        dcp_status found = file_look(FILE_PATHS(ops), path, &information);
        if (syncing) {
            failed++;
            assert_int_equal(status, DCP_ERR_IO);
            assert_non_null(strstr(dcp_error_message(), "sync the directory of "));
            assert_int_equal(found, DCP_ERR_NOT_FOUND);
        }
        /* Closing may fail unnoticed. */
        assert_int_equal(found, status == DCP_OK ? DCP_OK : DCP_ERR_NOT_FOUND);
        assert_int_equal(make_at_path(ops, path, true, &created), DCP_OK);
        struct simulated_file_system *left = simulated_after_power_cut(fs, 0);
        assert_int_equal(file_look(FILE_PATHS(simulated_ops(left)), path, &information), DCP_OK);
        assert_int_equal(file_look(FILE_PATHS(simulated_ops(left)), first, &information), DCP_OK);
        simulated_free(left);
        simulated_free(fs);
        if (!reached)
            break;
    }
    assert_int_equal(failed, syncs);
}

static void directories_become_durable_or_go(void **state)
{
    (void)state;
    struct disk disk;
    disk_init(&disk);
    for (int slow = 0; slow < 2; slow++) {
        if (slow)
            make_slow();
        else
            make_quick();
        fail_each_sync("a/b/c", "a", "a/b", 3);
        fail_each_sync("/a//b/c/d//", "/", "a/b/c", 4);
    }
    make_quick();
}

/* ---- over the system's operations, in a fresh directory ---- */

static int ask_after_sync(void *context, int descriptor)
{
    int result = file_ops_system.sync(NULL, descriptor);
    return result == 0 ? ask(context) : result;
}

static void watch_system(struct disk *disk, const char *directory)
{
    disk_init(disk);
    disk->ops = file_ops_system;
    disk->ops.context = disk;
    disk->ops.sync = disk->ops.sync_directory = ask_after_sync;
    assert_int_equal(chdir(directory), 0);
}

/* From here on so many wait at the same time. */
static void expect(struct disk *disk, int count)
{
    disk->inside = 0;
    disk->expected = count;
}

/* All wait at the same time, also if only the first one shows that it takes long. */
static void directories_are_synced_side_by_side(void **state)
{
    struct disk disk;
    bool created;
    watch_system(&disk, *state);
    slow_clock_install();
    expect(&disk, 0);
    assert_int_equal(make_at_path(&disk.ops, "a/b", true, &created), DCP_OK);
    expect(&disk, 2);
    assert_int_equal(make_at_path(&disk.ops, "a/b", true, &created), DCP_OK);
    assert_int_equal(disk.inside, 2);
    make_quick();
    slow_clock_install();
    expect(&disk, 1);
    assert_int_equal(make_at_path(&disk.ops, "a/b", true, &created), DCP_OK);
    assert_int_equal(disk.inside, 2);
    assert_true(disk.elsewhere);
    assert_false(disk.alone);
    expect(&disk, 0);
    make_quick();
}

static const dcp_storage_access durable = {.size_of = sizeof durable, .durable = true, .size = 4};

static void write_file(const dcp_storage *table, void *directory, const char *name)
{
    dcp_storage_file file;
    assert_int_equal(table->create(table->context, directory, name, &durable, &file), DCP_OK);
    assert_int_equal(table->write(table->context, &file, "text", 4, 0), DCP_OK);
    assert_int_equal(table->seal(table->context, &file, 4, DCP_PUBLISH_IF_ABSENT, NULL), DCP_OK);
}

static void *open_directory(const dcp_storage *table, bool slow)
{
    void *directory;
    bool created;
    if (slow)
        slow_clock_install();
    else
        make_quick();
    assert_int_equal(table->open(table->context, ".", 0, &directory, &created), DCP_OK);
    assert_int_equal(table->sync(table->context, directory), DCP_OK);
    return directory;
}

/* The first one's name waits with its bytes; what changes afterwards is synced as ever. */
static void the_name_of_a_file_is_synced_beside_it(void **state)
{
    struct disk disk;
    void *directory;
    watch_system(&disk, *state);
    const dcp_storage table = files_storage(&disk.ops);
    for (int slow = 0; slow < 2; slow++) {
        directory = open_directory(&table, slow);
        expect(&disk, slow ? 2 : 1);
        write_file(&table, directory, "first");
        assert_int_equal(disk.inside, slow ? 2 : 1);
        expect(&disk, 0);
        assert_int_equal(table.sync(table.context, directory), DCP_OK);
        assert_int_equal(disk.inside, slow ? 0 : 1);
        expect(&disk, 0);
        write_file(&table, directory, "second");
        assert_int_equal(table.sync(table.context, directory), DCP_OK);
        assert_int_equal(disk.inside, 2);
        assert_int_equal(table.remove(table.context, directory, "first"), DCP_OK);
        assert_int_equal(table.remove(table.context, directory, "second"), DCP_OK);
        assert_int_equal(table.sync(table.context, directory), DCP_OK);
        assert_int_equal(disk.inside, 3);
        table.close(table.context, directory);
        make_quick();
    }
    assert_false(disk.alone);
}

/* Of a slow disk both wait before anybody publishes. */
static void small_files_are_synced_before_they_are_published(void **state)
{
    struct disk disk;
    void *directory, *first, *second;
    bool visible;
    watch_system(&disk, *state);
    const dcp_storage table = files_storage(&disk.ops);
    for (int slow = 0; slow < 2; slow++) {
        directory = open_directory(&table, slow);
        expect(&disk, slow ? 2 : 1);
        assert_int_equal(table.prepare(table.context, directory, "a", "text", 4, &durable, &first),
                         DCP_OK);
        assert_int_equal(table.prepare(table.context, directory, "b", "text", 4, &durable, &second),
                         DCP_OK);
        for (int i = 0; slow && i < 5000 && disk.inside < 2; i++)
            usleep(1000);
        assert_int_equal(disk.inside, slow ? 2 : 0);
        table.retract(table.context, first);
        assert_int_equal(table.publish(table.context, second, DCP_PUBLISH_ALWAYS, &visible),
                         DCP_OK);
        assert_true(visible);
        assert_int_equal(disk.inside, slow ? 2 : 1);
        assert_int_equal(table.sync(table.context, directory), DCP_OK);
        assert_int_equal(disk.inside, slow ? 3 : 2);
        table.close(table.context, directory);
        expect(&disk, 0);
        make_quick();
    }
    assert_false(disk.alone);
}

#define SCRATCH_TEST(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quick_disk_is_waited_for_in_place),
        cmocka_unit_test(a_slow_disk_is_waited_for_on_threads),
        cmocka_unit_test(directories_become_durable_or_go),
        SCRATCH_TEST(directories_are_synced_side_by_side),
        SCRATCH_TEST(the_name_of_a_file_is_synced_beside_it),
        SCRATCH_TEST(small_files_are_synced_before_they_are_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
