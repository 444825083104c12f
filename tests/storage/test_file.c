/* SPDX-License-Identifier: BSD-3-Clause */
/* The loops over file operations, on a file system that is short, interrupted, full or broken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "fault/at_path.h"
#include "fault/failing_allocator.h"
#include "fault/simulated_file_system.h"
#include "storage/files/file.h"

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

/* Writes and reads back through every function; what it makes it closes. */
static dcp_status write_and_read(void)
{
    char bytes[11] = {0};
    struct buffer whole;
    uint64_t length = 0;
    bool created;
    struct file file = {.descriptor = -1};
    struct file_directory directory = *FILE_PATHS(ops);
    buffer_init(&whole, 0);
    dcp_status status = make_at_path(ops, "/a/b", true, &created);
    if (status == DCP_OK)
        status = file_open(&file, FILE_PATHS(ops), "/a/b/f", FILE_CREATE_NEW);
    if (status == DCP_OK)
        status = file_preallocate(&file, 10);
    if (status == DCP_OK)
        status = file_write(&file, "0123456789", 10, 0);
    if (status == DCP_OK)
        status = file_sync(&file);
    if (status == DCP_OK)
        status = file_close(&file);
    if (status == DCP_OK)
        status = file_directory_open(&directory, FILE_PATHS(ops), "/a/b", 0);
    if (status == DCP_OK)
        status = file_rename(&directory, "f", "g");
    if (status == DCP_OK)
        status = file_sync_directory(&directory);
    if (status == DCP_OK)
        status = file_open(&file, FILE_PATHS(ops), "/a/b/g", FILE_READ);
    if (status == DCP_OK)
        status = file_size(&file, &length);
    if (status == DCP_OK)
        status = file_read(&file, bytes, 10, 0);
    if (status == DCP_OK)
        status = file_close(&file);
    if (status == DCP_OK)
        status = file_read_whole(FILE_PATHS(ops), "/a/b/g", 100, &whole);
    if (status == DCP_OK &&
        (length != 10 || whole.size != 10 || memcmp(whole.data, bytes, 10) != 0 ||
         strcmp(bytes, "0123456789") != 0))
        status = dcp_error_set(DCP_ERR_INTERNAL, "read %s, whole %zu bytes", bytes, whole.size);
    if (status == DCP_OK)
        status = write_at_path(&directory, "h", whole.data, whole.size, true);
    if (status == DCP_OK)
        status = file_unlink(&directory, "h", false);
    buffer_free(&whole);
    struct saved_error error;
    error_save(&error);
    file_close(&file);
    file_directory_close(&directory);
    error_restore(&error);
    return status;
}

static void short_and_interrupted_transfers_go_on(void **state)
{
    struct simulated_fault faults[] = {
        {.operation = 1, .kind = SIMULATED_SHORT_ONE, .from_then_on = true},
        {.operation = 1, .kind = SIMULATED_SHORT_BY_ONE, .from_then_on = true},
    };
    for (size_t i = 0; i < 2; i++) {
        simulated_set_fault(fs, &faults[i]);
        assert_int_equal(write_and_read(), DCP_OK);
        teardown(state);
        setup(state);
    }
    /* Interruptions, of calls that a signal can interrupt. */
    for (long n = 1;; n++) {
        simulated_set_fault(fs, &(struct simulated_fault){.operation = n,
                                                          .kind = SIMULATED_ERROR,
                                                          .error_number = EINTR});
        dcp_status status = write_and_read();
        const char *operation = simulated_operation_name(fs, n);
        bool interruptible = strncmp(operation, "p", 1) == 0 || strncmp(operation, "sy", 2) == 0 ||
                             strncmp(operation, "open", 4) == 0 ||
                             strncmp(operation, "create", 6) == 0 ||
                             strncmp(operation, "allocate", 8) == 0;
        if (interruptible && status != DCP_OK)
            fail_msg("operation %ld, %s: %s", n, operation, dcp_error_message());
        assert_int_equal(simulated_open_descriptors(fs), 0);
        if (!simulated_fault_reached(fs))
            break;
        teardown(state);
        setup(state);
    }
}

/* Nothing is lost by that: what was made in a directory is made durable before. */
static bool closes_directory(const char *operation)
{
    return strcmp(operation, "close /") == 0 || strcmp(operation, "close /a") == 0 ||
           strcmp(operation, "close /a/b") == 0;
}

static void every_failed_operation_is_an_error(void **state)
{
    static const struct {
        int error_number;
        dcp_status status;
    } errors[] = {{EIO, DCP_ERR_IO}, {ENOSPC, DCP_ERR_NO_SPACE}, {EDQUOT, DCP_ERR_NO_SPACE}};
    for (size_t i = 0; i < 2 * sizeof errors / sizeof *errors; i++) {
        for (long n = 1;; n++) {
            simulated_set_fault(
                fs, &(struct simulated_fault){.operation = n,
                                              .kind = SIMULATED_ERROR,
                                              .error_number = errors[i / 2].error_number,
                                              .from_then_on = i % 2});
            dcp_status status = write_and_read();
            bool reached = simulated_fault_reached(fs);
            bool harmless = status == DCP_OK && closes_directory(simulated_operation_name(fs, n));
            assert_int_equal(status, reached && !harmless ? errors[i / 2].status : DCP_OK);
            assert_int_equal(simulated_open_descriptors(fs), 0);
            if (reached && !harmless)
                assert_non_null(strstr(dcp_error_message(), "cannot "));
            teardown(state);
            setup(state);
            if (!reached)
                break;
        }
    }
}

static void every_failed_allocation_is_an_error(void **state)
{
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = write_and_read();
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        assert_int_equal(simulated_open_descriptors(fs), 0);
        teardown(state);
        setup(state);
        if (!reached)
            break;
    }
}

static void messages_say_what_and_where(void **state)
{
    (void)state;
    struct file file;
    char bytes[16];
    struct buffer whole;
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "/none", FILE_READ), DCP_ERR_NOT_FOUND);
    assert_string_equal(dcp_error_message(), "cannot open /none: No such file or directory");
    assert_int_equal(file.descriptor, -1);
    assert_int_equal(file_close(&file), DCP_OK);
    assert_int_equal(write_at_path(FILE_PATHS(ops), "/f", "0123456789", 10, false), DCP_OK);
    assert_int_equal(write_at_path(FILE_PATHS(ops), "/f", "", 0, false), DCP_ERR_EXISTS);
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "/f", FILE_READ), DCP_OK);
    assert_int_equal(file_read(&file, bytes, 8, 4), DCP_ERR_FORMAT);
    assert_string_equal(dcp_error_message(), "/f ends at 10, expected 8 bytes at offset 4");
    assert_int_equal(file_read(&file, bytes, 0, 400), DCP_OK);
    assert_int_equal(file_close(&file), DCP_OK);
    buffer_init(&whole, 0);
    assert_int_equal(file_read_whole(FILE_PATHS(ops), "/f", 9, &whole), DCP_ERR_FORMAT);
    assert_string_equal(dcp_error_message(), "/f has 10 bytes, more than the 9 allowed");
    assert_null(whole.data);
    assert_int_equal(file_unlink(FILE_PATHS(ops), "/g", true), DCP_OK);
    assert_int_equal(file_unlink(FILE_PATHS(ops), "/g", false), DCP_ERR_NOT_FOUND);
    assert_int_equal(file_rename(FILE_PATHS(ops), "/g", "/h"), DCP_ERR_NOT_FOUND);
    assert_string_equal(dcp_error_message(), "cannot rename /g to /h: No such file or directory");
    bool created;
    assert_int_equal(make_at_path(ops, "/f/d", false, &created), DCP_ERR_IO);
    assert_string_equal(dcp_error_message(), "cannot create directory /f: Not a directory");
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "/", FILE_READ), DCP_ERR_FORMAT);
    assert_string_equal(dcp_error_message(), "/ is not a regular file");
    assert_int_equal(simulated_open_descriptors(fs), 0);
}

static void a_file_that_could_not_be_written_is_not_left(void **state)
{
    (void)state;
    struct file_information information;
    simulated_set_capacity(fs, 5);
    assert_int_equal(write_at_path(FILE_PATHS(ops), "/f", "0123456789", 10, true),
                     DCP_ERR_NO_SPACE);
    error_clear();
    assert_int_equal(file_look(FILE_PATHS(ops), "/f", &information), DCP_ERR_NOT_FOUND);
    assert_string_equal(dcp_error_message(), "");
}

static int write_nothing(void *context, int descriptor, const void *bytes, size_t size,
                         uint64_t offset, size_t *done)
{
    (void)context, (void)descriptor, (void)bytes, (void)size, (void)offset;
    *done = 0;
    return 0;
}

static void a_write_without_progress_is_an_error(void **state)
{
    (void)state;
    struct file file;
    struct file_ops stuck = *ops;
    stuck.pwrite = write_nothing;
    assert_int_equal(file_open(&file, FILE_PATHS(&stuck), "/f", FILE_CREATE_NEW), DCP_OK);
    assert_int_equal(file_write(&file, "0123456789", 10, 0), DCP_ERR_IO);
    assert_int_equal(file_close(&file), DCP_OK);
}

static void preallocation_may_be_refused(void **state)
{
    (void)state;
    struct file file;
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "/f", FILE_CREATE_NEW), DCP_OK);
    simulated_set_fault(fs, &(struct simulated_fault){.operation = 1,
                                                      .kind = SIMULATED_ERROR,
                                                      .error_number = EOPNOTSUPP});
    assert_int_equal(file_preallocate(&file, 10), DCP_OK);
    assert_int_equal(file_preallocate(&file, 0), DCP_OK);
    simulated_set_capacity(fs, 5);
    assert_int_equal(file_preallocate(&file, 10), DCP_ERR_NO_SPACE);
    assert_string_equal(dcp_error_message(),
                        "cannot allocate 10 bytes for /f: No space left on device");
    assert_int_equal(file_close(&file), DCP_OK);
}

static bool directory_survives(const char *path)
{
    struct file_information information;
    struct simulated_file_system *left = simulated_after_power_cut(fs, 0);
    dcp_status status = file_look(FILE_PATHS(simulated_ops(left)), path, &information);
    simulated_free(left);
    return status == DCP_OK && information.kind == FILE_DIRECTORY;
}

static void directories_are_made_with_their_parents(void **state)
{
    (void)state;
    bool created;
    assert_int_equal(make_at_path(ops, "a//b/./c/", true, &created), DCP_OK);
    assert_true(created);
    assert_true(directory_survives("/a/b/c"));
    assert_int_equal(make_at_path(ops, "/a/b/c", true, &created), DCP_OK);
    assert_false(created);
    assert_int_equal(make_at_path(ops, "/a/d", false, &created), DCP_OK);
    assert_true(created);
    assert_false(directory_survives("/a/d"));
    /* Somebody else made it and did not come as far as to sync. */
    assert_int_equal(make_at_path(ops, "/a/d", true, &created), DCP_OK);
    assert_false(created);
    assert_true(directory_survives("/a/d"));
    assert_int_equal(make_at_path(ops, "/", true, &created), DCP_OK);
    assert_int_equal(make_at_path(ops, "e", true, &created), DCP_OK);
    assert_true(directory_survives("/e"));
}

static void directories_that_could_not_be_made_durable_are_taken_back(void **state)
{
    (void)state;
    bool created;
    struct file_information information;
    /* Opens the root, looks for /a, makes and opens it, syncs its parent. */
    simulated_set_fault(fs, &(struct simulated_fault){
                                .operation = 5, .kind = SIMULATED_ERROR, .error_number = EIO});
    assert_int_equal(make_at_path(ops, "/a", true, &created), DCP_ERR_IO);
    assert_string_equal(dcp_error_message(), "cannot sync the directory of /a: Input/output error");
    assert_false(created);
    assert_int_equal(file_look(FILE_PATHS(ops), "/a", &information), DCP_ERR_NOT_FOUND);
    /* One that was there stays; where it cannot even be looked at, it is not ours to care for. */
    assert_int_equal(make_at_path(ops, "/a", false, &created), DCP_OK);
    for (int refused = 0; refused < 2; refused++) {
        simulated_set_fault(fs, &(struct simulated_fault){.operation = 3,
                                                          .kind = SIMULATED_ERROR,
                                                          .error_number = refused ? EACCES : EIO});
        assert_int_equal(make_at_path(ops, "/a", true, &created), refused ? DCP_OK : DCP_ERR_IO);
        assert_int_equal(file_look(FILE_PATHS(ops), "/a", &information), DCP_OK);
    }
}

static void paths_are_joined_by_one_slash(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        memory_release(path);
    }
}

#define FILE_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(short_and_interrupted_transfers_go_on),
        FILE_TEST(every_failed_operation_is_an_error),
        FILE_TEST(every_failed_allocation_is_an_error),
        FILE_TEST(messages_say_what_and_where),
        FILE_TEST(a_file_that_could_not_be_written_is_not_left),
        FILE_TEST(a_write_without_progress_is_an_error),
        FILE_TEST(preallocation_may_be_refused),
        FILE_TEST(directories_are_made_with_their_parents),
        FILE_TEST(directories_that_could_not_be_made_durable_are_taken_back),
        cmocka_unit_test(paths_are_joined_by_one_slash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
