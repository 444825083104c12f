/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulated file system is itself believed only where this program holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "fault/at_path.h"
#include "fault/simulated_file_system.h"

/* Direct calls that must end as expected. */
#define OK(call) assert_int_equal((call), 0)

static struct simulated_file_system *fs;
static const struct file_ops *ops;

static int setup(void **state)
{
    (void)state;
    fs = simulated_new();
    ops = simulated_ops(fs);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    simulated_free(fs);
    return 0;
}

static int create(const char *path)
{
    int descriptor = -1;
    OK(ops->open(ops->context, FILE_NO_DIRECTORY, path, FILE_CREATE_NEW, &descriptor));
    return descriptor;
}

static void write_at(int descriptor, const char *text, uint64_t offset)
{
    size_t done = 0;
    OK(ops->pwrite(ops->context, descriptor, text, strlen(text), offset, &done));
    assert_int_equal(done, strlen(text));
}

/* A file that is written, synced and closed; its name is pending. */
static void put(const char *path, const char *text)
{
    int descriptor = create(path);
    write_at(descriptor, text, 0);
    OK(ops->sync(ops->context, descriptor));
    OK(ops->close(ops->context, descriptor));
}

/* The text of a file, NULL if there is none; in a static buffer. */
static const char *text_of(struct simulated_file_system *of, const char *path)
{
    static char text[20000];
    const struct file_ops *its = simulated_ops(of);
    int descriptor;
    size_t done = 0;
    memset(text, 0, sizeof text);
    if (its->open(its->context, FILE_NO_DIRECTORY, path, FILE_READ, &descriptor) != 0)
        return NULL;
    OK(its->pread(its->context, descriptor, text, sizeof text - 1, 0, &done));
    OK(its->close(its->context, descriptor));
    return text;
}

static uint64_t size_of(struct simulated_file_system *of, const char *path)
{
    struct file_information information;
    const struct file_ops *its = simulated_ops(of);
    OK(its->information(its->context, FILE_NO_DIRECTORY, path, &information));
    return information.size;
}

/* The text of a file in the index-th remainder. */
static const char *text_left(size_t index, const char *path)
{
    static char text[20000];
    struct simulated_file_system *left = simulated_after_power_cut(fs, index);
    const char *found = text_of(left, path);
    if (found != NULL)
        memcpy(text, found, sizeof text);
    simulated_free(left);
    return found != NULL ? text : NULL;
}

enum { NOTHING, ALL, NO_BYTES, NO_NAMES, FIRST_CHANGE };

static void files_are_written_and_read(void **state)
{
    (void)state;
    char bytes[16];
    size_t done;
    struct file_information information;
    int writer = create("/a"), reader;
    assert_int_equal(ops->open(ops->context, FILE_NO_DIRECTORY, "a", FILE_CREATE_NEW, &reader),
                     EEXIST);
    write_at(writer, "hello", 3);
    assert_int_equal(ops->pread(ops->context, writer, bytes, 1, 0, &done), EBADF);
    OK(ops->open(ops->context, FILE_NO_DIRECTORY, "./a", FILE_READ, &reader));
    assert_int_equal(ops->pwrite(ops->context, reader, "x", 1, 0, &done), EBADF);
    OK(ops->pread(ops->context, reader, bytes, sizeof bytes, 0, &done));
    assert_int_equal(done, 8);
    assert_memory_equal(bytes, "\0\0\0hello", 8);
    OK(ops->pread(ops->context, reader, bytes, sizeof bytes, 8, &done));
    assert_int_equal(done, 0);
    OK(ops->pread(ops->context, reader, bytes, sizeof bytes, UINT64_MAX, &done));
    assert_int_equal(done, 0);
    OK(ops->allocate(ops->context, writer, 100));
    OK(ops->descriptor_information(ops->context, reader, &information));
    assert_int_equal(information.size, 100);
    assert_int_equal(information.kind, FILE_REGULAR);
    assert_int_equal(simulated_open_descriptors(fs), 2);
    /* Removed, but open. */
    OK(ops->unlink(ops->context, FILE_NO_DIRECTORY, "a"));
    OK(ops->pread(ops->context, reader, bytes, 1, 3, &done));
    assert_int_equal(bytes[0], 'h');
    OK(ops->close(ops->context, reader));
    OK(ops->close(ops->context, writer));
    assert_int_equal(ops->close(ops->context, writer), EBADF);
    assert_int_equal(simulated_open_descriptors(fs), 0);
}

static int count_name(void *context, const char *name)
{
    (void)name;
    ++*(int *)context;
    return 0;
}

static int stop_walk(void *context, const char *name)
{
    (void)context, (void)name;
    return EDOM;
}

static void directories_hold_names(void **state)
{
    (void)state;
    struct file_information information;
    int count = 0, descriptor;
    OK(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/a"));
    OK(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/a/b/"));
    assert_int_equal(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/a//b"), EEXIST);
    assert_int_equal(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/"), EEXIST);
    assert_int_equal(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/x/y"), ENOENT);
    assert_int_equal(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/a/../y"), EINVAL);
    put("/a/f", "text");
    assert_int_equal(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/a/f/g"), ENOTDIR);
    assert_int_equal(
        ops->open(ops->context, FILE_NO_DIRECTORY, "/x/y", FILE_CREATE_NEW, &descriptor), ENOENT);
    assert_int_equal(ops->open(ops->context, FILE_NO_DIRECTORY, "/x", FILE_READ, &descriptor),
                     ENOENT);
    OK(ops->information(ops->context, FILE_NO_DIRECTORY, "/a", &information));
    assert_int_equal(information.kind, FILE_DIRECTORY);
    OK(list_at_path(ops, "/a", count_name, &count));
    assert_int_equal(count, 2);
    assert_int_equal(list_at_path(ops, "/a", stop_walk, NULL), EDOM);
    assert_int_equal(list_at_path(ops, "/a/f", count_name, &count), ENOTDIR);
    assert_int_equal(ops->remove_directory(ops->context, FILE_NO_DIRECTORY, "/a"), ENOTEMPTY);
    assert_int_equal(ops->remove_directory(ops->context, FILE_NO_DIRECTORY, "/a/f"), ENOTDIR);
    assert_int_equal(ops->unlink(ops->context, FILE_NO_DIRECTORY, "/a/b"), EISDIR);
    assert_int_equal(ops->rename(ops->context, FILE_NO_DIRECTORY, "/a/f", "/f"), EXDEV);
    assert_int_equal(ops->rename(ops->context, FILE_NO_DIRECTORY, "/a/f", "/a/b"), EISDIR);
    assert_int_equal(ops->rename(ops->context, FILE_NO_DIRECTORY, "/a/x", "/a/b"), ENOENT);
    put("/a/g", "other");
    OK(ops->rename(ops->context, FILE_NO_DIRECTORY, "/a/f", "/a/g"));
    assert_string_equal(text_of(fs, "/a/g"), "text");
    assert_null(text_of(fs, "/a/f"));
    OK(ops->unlink(ops->context, FILE_NO_DIRECTORY, "/a/g"));
    OK(ops->remove_directory(ops->context, FILE_NO_DIRECTORY, "/a/b"));
    OK(ops->remove_directory(ops->context, FILE_NO_DIRECTORY, "/a"));
}

static void a_power_cut_leaves_what_was_synced(void **state)
{
    (void)state;
    int descriptor = create("a");
    write_at(descriptor, "old ", 0);
    assert_null(text_left(NOTHING, "a"));
    assert_string_equal(text_left(ALL, "a"), "old ");
    OK(ops->sync(ops->context, descriptor));
    assert_null(text_left(NOTHING, "a")); /* the name is not durable */
    OK(sync_at_path(ops, "/"));
    assert_string_equal(text_left(NOTHING, "a"), "old ");
    write_at(descriptor, "new!", 4);
    assert_string_equal(text_left(NOTHING, "a"), "old ");
    assert_string_equal(text_left(ALL, "a"), "old new!");
    OK(sync_at_path(ops, "/")); /* says nothing of bytes */
    assert_string_equal(text_left(NOTHING, "a"), "old ");
    OK(ops->close(ops->context, descriptor)); /* nor does a close */
    assert_string_equal(text_left(NOTHING, "a"), "old ");
    assert_string_equal(text_of(fs, "a"), "old new!");
}

static void directories_need_their_parents_synced(void **state)
{
    (void)state;
    OK(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/a"));
    OK(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/a/b"));
    put("/a/b/f", "text");
    OK(sync_at_path(ops, "/a/b"));
    OK(sync_at_path(ops, "/a"));
    assert_null(text_left(NOTHING, "/a/b/f"));
    OK(sync_at_path(ops, "/"));
    assert_string_equal(text_left(NOTHING, "/a/b/f"), "text");
    OK(ops->unlink(ops->context, FILE_NO_DIRECTORY, "/a/b/f"));
    assert_string_equal(text_left(NOTHING, "/a/b/f"), "text");
    assert_null(text_left(ALL, "/a/b/f"));
}

/* The classic mistake: a rename that reaches the disk before the bytes. */
static void a_rename_may_be_durable_before_bytes(void **state)
{
    (void)state;
    put("a", "old");
    OK(sync_at_path(ops, "/"));
    int descriptor = create("b");
    write_at(descriptor, "new", 0);
    OK(ops->rename(ops->context, FILE_NO_DIRECTORY, "b", "a"));
    assert_string_equal(text_of(fs, "a"), "new");
    assert_string_equal(text_left(NOTHING, "a"), "old");
    assert_string_equal(text_left(NO_NAMES, "a"), "old");
    struct simulated_file_system *left = simulated_after_power_cut(fs, NO_BYTES);
    assert_int_equal(size_of(left, "a"), 3);
    assert_string_equal(text_of(left, "a"), ""); /* three zeros */
    simulated_free(left);
    /* Changes are: name b, bytes, rename. Only the rename: the name of an empty file. */
    size_t only_rename = FIRST_CHANGE + 3 * 2, all_but_bytes = FIRST_CHANGE + 3 * 1 + 1;
    assert_string_equal(text_left(only_rename, "a"), "");
    assert_string_equal(text_left(all_but_bytes, "a"), "");
    assert_null(text_left(all_but_bytes, "b"));
}

static void writes_may_be_torn(void **state)
{
    (void)state;
    char text[10001];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    int descriptor = create("a");
    OK(sync_at_path(ops, "/"));
    OK(ops->allocate(ops->context, descriptor, 10000));
    OK(ops->sync(ops->context, descriptor));
    write_at(descriptor, text, 0);
    const char *torn = text_left(FIRST_CHANGE + 2, "a");
    for (size_t i = 0; i < 10000; i++)
        assert_int_equal(torn[i], i / 512 % 2 == 0 ? 'x' : 0);
    /* Random choices keep or lose whole sectors, some of each. */
    size_t counted = simulated_remainder_count(fs, 0), kept = 0, lost = 0;
    for (size_t choice = counted; choice < counted + 20; choice++) {
        const char *left = text_left(choice, "a");
        for (size_t i = 0; i < 10000; i++) {
            if (i % 512 != 0)
                assert_int_equal(left[i], left[i - 1]);
            kept += left[i] == 'x';
            lost += left[i] == 0;
        }
    }
    assert_true(kept > 20000 && lost > 20000);
}

static void remainders_are_counted_named_and_repeatable(void **state)
{
    (void)state;
    char name[128];
    put("a", "1");
    put("b", "2");
    assert_int_equal(simulated_remainder_count(fs, 5), 4 + 3 * 2 + 5);
    bool both = false, neither = false;
    for (size_t i = 0; i < simulated_remainder_count(fs, 30); i++) {
        struct simulated_file_system *one = simulated_after_power_cut(fs, i);
        struct simulated_file_system *again = simulated_after_power_cut(fs, i);
        bool a = text_of(one, "a") != NULL, b = text_of(one, "b") != NULL;
        both |= a && b;
        neither |= !a && !b;
        assert_int_equal(a, text_of(again, "a") != NULL);
        assert_int_equal(b, text_of(again, "b") != NULL);
        /* What is left is durable. */
        assert_int_equal(simulated_remainder_count(one, 0), 4);
        simulated_remainder_name(fs, i, name, sizeof name);
        assert_true(strlen(name) > 0);
        simulated_free(one);
        simulated_free(again);
    }
    assert_true(both && neither);
    simulated_remainder_name(fs, FIRST_CHANGE + 3, name, sizeof name);
    assert_string_equal(name, "only pending change 1 (new name b)");
}

static void copies_are_durable_and_apart(void **state)
{
    (void)state;
    OK(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/d"));
    int descriptor = create("/d/a");
    write_at(descriptor, "text", 0);
    struct simulated_file_system *copy = simulated_copy(fs);
    assert_string_equal(text_of(copy, "/d/a"), "text");
    assert_int_equal(simulated_open_descriptors(copy), 0);
    assert_int_equal(simulated_remainder_count(copy, 0), 4);
    write_at(descriptor, "more", 0);
    assert_string_equal(text_of(copy, "/d/a"), "text");
    simulated_free(copy);
}

static void a_failed_sync_loses_the_bytes_for_good(void **state)
{
    (void)state;
    int descriptor = create("a");
    OK(sync_at_path(ops, "/"));
    write_at(descriptor, "text", 0);
    simulated_set_fault(fs, &(struct simulated_fault){
                                .operation = 1, .kind = SIMULATED_ERROR, .error_number = EINTR});
    assert_int_equal(ops->sync(ops->context, descriptor), EINTR);
    assert_string_equal(text_left(ALL, "a"), "text"); /* interrupted: nothing lost */
    simulated_set_fault(fs, &(struct simulated_fault){
                                .operation = 1, .kind = SIMULATED_ERROR, .error_number = EIO});
    assert_int_equal(ops->sync(ops->context, descriptor), EIO);
    OK(ops->sync(ops->context, descriptor));
    assert_string_equal(text_of(fs, "a"), "text");
    assert_string_equal(text_left(ALL, "a"), "");
}

static void operations_fail_once_or_from_then_on(void **state)
{
    (void)state;
    int descriptor;
    for (int always = 0; always < 2; always++) {
        simulated_set_fault(fs, &(struct simulated_fault){.operation = 2,
                                                          .kind = SIMULATED_ERROR,
                                                          .error_number = ENOSPC,
                                                          .from_then_on = always});
        assert_int_equal(ops->unlink(ops->context, FILE_NO_DIRECTORY, "x"), ENOENT);
        assert_false(simulated_fault_reached(fs));
        assert_int_equal(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "y"), ENOSPC);
        assert_true(simulated_fault_reached(fs));
        assert_int_equal(ops->unlink(ops->context, FILE_NO_DIRECTORY, "x"),
                         always ? ENOSPC : ENOENT);
        assert_int_equal(simulated_operation_count(fs), 3);
        assert_string_equal(simulated_operation_name(fs, 2), "make_directory y");
        assert_string_equal(simulated_operation_name(fs, 4), "");
    }
    simulated_set_fault(fs, NULL);
    assert_int_equal(ops->open(ops->context, FILE_NO_DIRECTORY, "y", FILE_READ, &descriptor),
                     ENOENT);
    /* A close closes all the same. */
    descriptor = create("a");
    simulated_set_fault(fs, &(struct simulated_fault){
                                .operation = 1, .kind = SIMULATED_ERROR, .error_number = EIO});
    assert_int_equal(ops->close(ops->context, descriptor), EIO);
    assert_string_equal(simulated_operation_name(fs, 1), "close /a");
    assert_int_equal(simulated_open_descriptors(fs), 0);
}

static void transfers_are_short(void **state)
{
    (void)state;
    char bytes[8];
    size_t done;
    int writer = create("a"), reader;
    simulated_set_fault(fs,
                        &(struct simulated_fault){.operation = 2, .kind = SIMULATED_SHORT_BY_ONE});
    OK(ops->pwrite(ops->context, writer, "abcdef", 6, 0, &done));
    assert_int_equal(done, 6);
    OK(ops->pwrite(ops->context, writer, "ABCDEF", 6, 0, &done));
    assert_int_equal(done, 5);
    assert_string_equal(text_of(fs, "a"), "ABCDEf");
    simulated_set_fault(fs, &(struct simulated_fault){
                                .operation = 1, .kind = SIMULATED_SHORT_ONE, .from_then_on = true});
    OK(ops->open(ops->context, FILE_NO_DIRECTORY, "a", FILE_READ, &reader));
    for (int i = 0; i < 3; i++) {
        OK(ops->pread(ops->context, reader, bytes, 4, 1, &done));
        assert_int_equal(done, 1);
    }
}

static void a_full_disk_takes_what_fits(void **state)
{
    (void)state;
    size_t done;
    int descriptor = create("a");
    simulated_set_capacity(fs, 10);
    assert_int_equal(ops->allocate(ops->context, descriptor, 11), ENOSPC);
    OK(ops->pwrite(ops->context, descriptor, "0123456789abcdef", 16, 0, &done));
    assert_int_equal(done, 10);
    assert_int_equal(ops->pwrite(ops->context, descriptor, "x", 1, 10, &done), ENOSPC);
    assert_int_equal(ops->pwrite(ops->context, descriptor, "x", 1, 20, &done), ENOSPC);
    OK(ops->pwrite(ops->context, descriptor, "xyz", 3, 8, &done)); /* over what is there */
    assert_int_equal(done, 2);
}

static void after_a_crash_nothing_happens(void **state)
{
    (void)state;
    struct file_information information;
    int descriptor = create("a");
    OK(sync_at_path(ops, "/"));
    simulated_set_fault(fs, &(struct simulated_fault){.operation = 1, .kind = SIMULATED_CRASH});
    write_at(descriptor, "text", 0);
    size_t done;
    assert_int_equal(ops->pwrite(ops->context, descriptor, "more", 4, 4, &done), SIMULATED_CRASHED);
    assert_int_equal(ops->sync(ops->context, descriptor), SIMULATED_CRASHED);
    assert_int_equal(ops->unlink(ops->context, FILE_NO_DIRECTORY, "a"), SIMULATED_CRASHED);
    assert_int_equal(ops->information(ops->context, FILE_NO_DIRECTORY, "a", &information),
                     SIMULATED_CRASHED);
    assert_int_equal(ops->close(ops->context, descriptor), SIMULATED_CRASHED);
    assert_int_equal(simulated_open_descriptors(fs), 0);
    assert_string_equal(text_left(NOTHING, "a"), "");
    assert_string_equal(text_left(ALL, "a"), "text");
}

/* What must be durable before a commit, left out one by one. */
static void early_commits_are_noticed(void **state)
{
    (void)state;
    static const char *const messages[] = {NULL, "the name of directory c", "bytes of __0_0.distcp",
                                           "bytes of .metadata itself", "the name of __0_0.distcp"};
    for (int left_out = 0; left_out < 5; left_out++) {
        simulated_allow_early_commits(fs);
        OK(ops->make_directory(ops->context, FILE_NO_DIRECTORY, "/c"));
        if (left_out != 1)
            OK(sync_at_path(ops, "/"));
        int shard = create("/c/__0_0.distcp");
        write_at(shard, "bytes", 0);
        if (left_out != 2)
            OK(ops->sync(ops->context, shard));
        if (left_out != 4)
            OK(sync_at_path(ops, "/c"));
        int metadata = create("/c/.metadata.tmp");
        write_at(metadata, "metadata", 0);
        if (left_out != 3)
            OK(ops->sync(ops->context, metadata));
        assert_null(simulated_early_commit(fs));
        OK(ops->rename(ops->context, FILE_NO_DIRECTORY, "/c/.metadata.tmp", "/c/.metadata"));
        const char *message = simulated_early_commit(fs);
        if (messages[left_out] == NULL)
            assert_null(message);
        else
            assert_non_null(strstr(message, messages[left_out]));
        teardown(state);
        setup(state);
    }
}

static void *write_many(void *argument)
{
    char path[16] = "file-";
    path[5] = *(char *)argument;
    for (int round = 0; round < 200; round++) {
        put(path, "text");
        if (ops->unlink(ops->context, FILE_NO_DIRECTORY, path) != 0)
            abort();
    }
    return NULL;
}

static void threads_may_work_side_by_side(void **state)
{
    (void)state;
    pthread_t threads[4];
    static char names[] = "abcd";
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, write_many, &names[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(simulated_operation_count(fs), 4 * 200 * 5);
    assert_int_equal(simulated_open_descriptors(fs), 0);
}

#define SIMULATED_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* What is done in an open directory is done in that one, whatever its path leads to. */
static void open_directories_stay_what_they_are(void **state)
{
    (void)state;
    const struct file_ops *its = simulated_ops(fs);
    struct file_information opened, found;
    int directory, file, other;
    OK(its->make_directory(its->context, FILE_NO_DIRECTORY, "/a"));
    OK(its->open(its->context, FILE_NO_DIRECTORY, "/a", FILE_AS_DIRECTORY, &directory));
    OK(its->rename(its->context, FILE_NO_DIRECTORY, "/a", "/b"));
    OK(its->make_directory(its->context, FILE_NO_DIRECTORY, "/a"));
    OK(its->open(its->context, directory, "f", FILE_CREATE_NEW, &file));
    assert_int_equal(its->open(its->context, file, "g", FILE_CREATE_NEW, &other), ENOTDIR);
    assert_int_equal(its->open(its->context, FILE_NO_DIRECTORY, "/b/f", FILE_AS_DIRECTORY, &other),
                     ENOTDIR);
    OK(its->close(its->context, file));
    assert_int_equal(its->open(its->context, file, "g", FILE_CREATE_NEW, &other), EBADF);
    assert_int_equal(its->information(its->context, FILE_NO_DIRECTORY, "/a/f", &found), ENOENT);
    OK(its->information(its->context, FILE_NO_DIRECTORY, "/b/f", &found));
    OK(its->descriptor_information(its->context, directory, &opened));
    OK(its->information(its->context, FILE_NO_DIRECTORY, "/b", &found));
    assert_true(opened.number == found.number);
    OK(its->information(its->context, FILE_NO_DIRECTORY, "/a", &found));
    assert_true(opened.number != found.number);
    OK(its->rename(its->context, directory, "f", "g"));
    OK(its->unlink(its->context, directory, "g"));
    OK(its->remove_directory(its->context, FILE_NO_DIRECTORY, "/b"));
    assert_int_equal(its->open(its->context, directory, "h", FILE_CREATE_NEW, &file), ENOENT);
    OK(its->close(its->context, directory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIMULATED_TEST(files_are_written_and_read),
        SIMULATED_TEST(directories_hold_names),
        SIMULATED_TEST(open_directories_stay_what_they_are),
        SIMULATED_TEST(a_power_cut_leaves_what_was_synced),
        SIMULATED_TEST(directories_need_their_parents_synced),
        SIMULATED_TEST(a_rename_may_be_durable_before_bytes),
        SIMULATED_TEST(writes_may_be_torn),
        SIMULATED_TEST(remainders_are_counted_named_and_repeatable),
        SIMULATED_TEST(copies_are_durable_and_apart),
        SIMULATED_TEST(a_failed_sync_loses_the_bytes_for_good),
        SIMULATED_TEST(operations_fail_once_or_from_then_on),
        SIMULATED_TEST(transfers_are_short),
        SIMULATED_TEST(a_full_disk_takes_what_fits),
        SIMULATED_TEST(after_a_crash_nothing_happens),
        SIMULATED_TEST(early_commits_are_noticed),
        SIMULATED_TEST(threads_may_work_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
