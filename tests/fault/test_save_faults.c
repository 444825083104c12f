/* SPDX-License-Identifier: BSD-3-Clause */
/* Every file operation of a save and of a load fails, once and from then on, in every way; every
 * operation is the last before a crash. What is found afterwards is the old checkpoint or the new
 * one, byte for byte. With an argument of n only every n-th operation does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "fault/io_ways.h"
#include "fault/versions.h"

/* What takes a large file byte by byte comes last. */
static const struct simulated_fault ways[] = {
    {0, SIMULATED_ERROR, EIO, false},      {0, SIMULATED_ERROR, EIO, true},
    {0, SIMULATED_ERROR, ENOSPC, false},   {0, SIMULATED_ERROR, ENOSPC, true},
    {0, SIMULATED_ERROR, EAGAIN, false},   {0, SIMULATED_ERROR, EAGAIN, true},
    {0, SIMULATED_ERROR, EINTR, false},    {0, SIMULATED_SHORT_ONE, 0, false},
    {0, SIMULATED_SHORT_BY_ONE, 0, false}, {0, SIMULATED_SHORT_BY_ONE, 0, true},
    {0, SIMULATED_SHORT_ONE, 0, true},
};

#define WAY_COUNT       (sizeof ways / sizeof *ways)
#define LARGE_WAY_COUNT (WAY_COUNT - 1)
/* A matrix of 4 MiB and a bit. */
#define LARGE_COLUMNS 175000
/* Half a megabyte of it. */
#define COMPRESSED_COLUMNS 20000
/* Of writing: chosen, and directly by a ring. The others differ below what is looked at here. */
#define FEW_WAYS 2

static long stride = 1;
static bool own_files; /* files are not the library's */

/* Short reads and writes always are; interruptions where the system call says that they happen. */
static bool is_harmless(const struct simulated_fault *way, const char *operation)
{
    static const char *const interrupted[] = {"open",         "pread", "pwrite",
                                              "queue_submit", "sync",  "free_space"};
    if (way->kind != SIMULATED_ERROR)
        return true;
    for (size_t i = 0; i < sizeof interrupted / sizeof *interrupted; i++)
        if (way->error_number == EINTR &&
            strncmp(operation, interrupted[i], strlen(interrupted[i])) == 0)
            return true;
    return false;
}

/* Before: an empty disk, or one with version 1, durable. */
static struct simulated_file_system *disk_with(int version)
{
    struct simulated_file_system *fs = simulated_new();
    if (version)
        assert_int_equal(version_save(fs, version, 1), DCP_OK);
    struct simulated_file_system *durable = simulated_copy(fs);
    simulated_free(fs);
    return durable;
}

static void fail_with(const struct simulated_file_system *fs, long n, const char *what, int found)
{
    fail_msg("operation %ld, %s: %s, found version %d: %s", n, simulated_operation_name(fs, n),
             what, found, dcp_error_message());
}

/* One save of version 2 with one fault. Returns whether the fault was reached. */
static bool save_with_fault(const struct simulated_file_system *before, int old, int size,
                            struct simulated_fault fault)
{
    struct simulated_file_system *fs = simulated_copy(before);
    simulated_set_fault(fs, &fault);
    failing_allocator_install(0, false);
    dcp_status status = version_save(fs, 2, size);
    if (failing_allocator_remove() != 0)
        fail_with(fs, fault.operation, "memory leaked", old);
    bool reached = simulated_fault_reached(fs);
    struct simulated_file_system *after = simulated_copy(fs);
    int found = version_find(after);

    if (simulated_early_commit(fs))
        fail_with(fs, fault.operation, simulated_early_commit(fs), found);
    if (simulated_open_descriptors(fs) != 0)
        fail_with(fs, fault.operation, "a descriptor leaked", found);
    if (status == DCP_OK ? found != 2 : found != old && found != 2)
        fail_with(fs, fault.operation, dcp_status_string(status), found);
    if (status != DCP_OK && is_harmless(&fault, simulated_operation_name(fs, fault.operation)))
        fail_with(fs, fault.operation, "a harmless fault was an error", found);
    /* A retry works, and leaves no more files than a save that never failed. */
    if (version_save(after, 3, size) != DCP_OK || version_find(after) != 3)
        fail_with(fs, fault.operation, "the retry failed", version_find(after));
    assert_int_equal(version_count_files(after),
                     (own_files ? 0 : size) + version_given_files(3, size));
    simulated_free(after);
    simulated_free(fs);
    return reached;
}

static void loop_over_faults(int old, int size)
{
    struct simulated_file_system *before = disk_with(old);
    for (size_t w = 0; w < WAY_COUNT; w++) {
        struct simulated_fault fault = ways[w];
        for (fault.operation = 1 + (long)w % stride; save_with_fault(before, old, size, fault);
             fault.operation += stride)
            ;
        assert_true(fault.operation > 10);
    }
    simulated_free(before);
}

static void test_fresh_save(void **state)
{
    (void)state;
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        version_save_by(io_ways[i]);
        loop_over_faults(VERSION_NONE, 1);
    }
}

static void test_overwrite(void **state)
{
    (void)state;
    for (size_t i = 0; i < FEW_WAYS; i++) {
        version_save_by(io_ways[i]);
        loop_over_faults(1, 1);
    }
}

static void test_fresh_save_of_ranks(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    loop_over_faults(VERSION_NONE, 3);
}

/* Places are not known beforehand: the ranks' results are on the way when a fault strikes. */
static void test_compressed_save(void **state)
{
    (void)state;
    if (!DCP_HAVE_ZSTD)
        skip();
    version_save_by(DCP_IO_AUTO);
    version_compress(true);
    loop_over_faults(VERSION_NONE, 1);
    loop_over_faults(1, 3);
    version_compress(false);
}

/* The same, with copies that threads of the library write. */
static void test_asynchronous_save(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_course(VERSION_IN_BACKGROUND);
    loop_over_faults(1, 1);
    loop_over_faults(VERSION_NONE, 3);
    version_save_course(VERSION_COMMITS_WHEN_WAITED);
    loop_over_faults(1, 3);
    version_save_course(VERSION_AT_ONCE);
}

/* Every hook that there is calls what the library does, whose failures come out of them. */
static void test_hooked_save(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_hooked(VERSION_BY_HOOKS);
    loop_over_faults(VERSION_NONE, 1);
    loop_over_faults(1, 3);
    version_save_course(VERSION_IN_BACKGROUND);
    loop_over_faults(1, 3);
    version_save_course(VERSION_AT_ONCE);
    version_save_hooked(VERSION_WITHOUT_HOOKS);
}

/* Files of one's own beside the library's .metadata. */
static void test_save_into_own_files(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_hooked(VERSION_OWN_FILES);
    own_files = true;
    loop_over_faults(VERSION_NONE, 1);
    loop_over_faults(1, 3);
    own_files = false;
    version_save_hooked(VERSION_WITHOUT_HOOKS);
}

static void test_save_to_own_storage(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_hooked(VERSION_OWN_STORAGE);
    loop_over_faults(VERSION_NONE, 1);
    loop_over_faults(1, 3);
    version_save_hooked(VERSION_WITHOUT_HOOKS);
}

/* What is found after a crash, and that saving again works there, also if that fails once more. */
static void check_remainder(struct simulated_file_system *left,
                            const struct simulated_file_system *fs, long n, const char *choice,
                            int old, bool again)
{
    int found = version_find(left);
    if (found != old && found != 2)
        fail_with(fs, n, choice, found);
    if (again) {
        struct simulated_fault fault = {n / 2 + 1, SIMULATED_ERROR, EIO, false};
        simulated_set_fault(left, &fault);
        version_save(left, 3, 1);
        simulated_set_fault(left, NULL);
        int now = version_find(left);
        if (now != found && now != 3)
            fail_with(fs, n, "a failure while recovering", now);
    }
    if (version_save(left, 4, 1) != DCP_OK || version_find(left) != 4)
        fail_with(fs, n, "the save after the crash failed", found);
    assert_int_equal(version_count_files(left), 1 + version_given_files(4, 1));
}

static bool crash_after(const struct simulated_file_system *before, int old, long n)
{
    struct simulated_file_system *fs = simulated_copy(before);
    struct simulated_fault crash = {n, SIMULATED_CRASH, 0, false};
    char choice[256];

    simulated_set_fault(fs, &crash);
    version_save(fs, 2, 1);
    bool reached = simulated_fault_reached(fs);
    size_t count = simulated_remainder_count(fs, 20);
    for (size_t i = 0; i < count; i++) {
        struct simulated_file_system *left = simulated_after_power_cut(fs, i);
        simulated_remainder_name(fs, i, choice, sizeof choice);
        check_remainder(left, fs, n, choice, old, i % 7 == 0);
        simulated_free(left);
    }
    struct simulated_file_system *killed = simulated_copy(fs);
    check_remainder(killed, fs, n, "killed", old, true);
    simulated_free(killed);
    simulated_free(fs);
    return reached;
}

static void loop_over_crashes(int old)
{
    struct simulated_file_system *before = disk_with(old);
    long n = 1;
    while (crash_after(before, old, n))
        n += stride;
    assert_true(n > 10);
    simulated_free(before);
}

static void test_crash_in_fresh_save(void **state)
{
    (void)state;
    for (size_t i = 0; i < FEW_WAYS; i++) {
        version_save_by(io_ways[i]);
        loop_over_crashes(VERSION_NONE);
    }
}

static void test_crash_in_overwrite(void **state)
{
    (void)state;
    for (size_t i = 0; i < FEW_WAYS; i++) {
        version_save_by(io_ways[i]);
        loop_over_crashes(1);
    }
}

/* Of the extra files there are the old ones or the new ones, as of the checkpoint. */
static void test_extra_files(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_give_files(true);
    loop_over_faults(VERSION_NONE, 1);
    loop_over_faults(1, 3);
    loop_over_crashes(VERSION_NONE);
    loop_over_crashes(1);
    version_save_course(VERSION_IN_BACKGROUND);
    loop_over_faults(1, 3);
    version_save_course(VERSION_AT_ONCE);
    version_save_hooked(VERSION_BY_HOOKS);
    loop_over_faults(1, 3);
    version_save_hooked(VERSION_OWN_FILES);
    own_files = true;
    loop_over_faults(1, 3);
    own_files = false;
    version_save_hooked(VERSION_WITHOUT_HOOKS);
    version_give_files(false);
}

/* One load of version 1 with one fault, which leaves the disk as it is: a retry works. */
static bool load_with_fault(struct simulated_file_system *fs, int size,
                            const struct simulated_fault *fault)
{
    dcp_status status;
    simulated_set_fault(fs, fault);
    failing_allocator_install(0, false);
    int found = version_load_ranks(fs, size, &status);
    if (failing_allocator_remove() != 0)
        fail_with(fs, fault->operation, "memory leaked", found);
    bool reached = simulated_fault_reached(fs);
    if (status == DCP_OK ? found != 1
                         : is_harmless(fault, simulated_operation_name(fs, fault->operation)))
        fail_with(fs, fault->operation, dcp_status_string(status), found);
    if (simulated_open_descriptors(fs) != 0)
        fail_with(fs, fault->operation, "a descriptor leaked", found);
    simulated_set_fault(fs, NULL);
    if (status != DCP_OK && version_load_ranks(fs, size, &status) != 1)
        fail_with(fs, fault->operation, "the retry failed", found);
    return reached;
}

static void loop_over_loads(struct simulated_file_system *fs, int size, size_t way_count)
{
    for (size_t w = 0; w < way_count; w++) {
        struct simulated_fault fault = ways[w];
        for (fault.operation = 1 + (long)w % stride; load_with_fault(fs, size, &fault);
             fault.operation += stride)
            ;
        assert_true(fault.operation > 10);
    }
}

static void test_load(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with(1);
    version_load_by(DCP_IO_AUTO);
    loop_over_loads(fs, 1, WAY_COUNT);
    loop_over_loads(fs, 3, WAY_COUNT);
    simulated_free(fs);
}

static void test_hooked_load(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_load_by(DCP_IO_AUTO);
    struct simulated_file_system *fs = disk_with(1);
    for (size_t i = 0; i < 2; i++) {
        version_load_hooked(i == 0 ? VERSION_BY_HOOKS : VERSION_OWN_STORAGE);
        loop_over_loads(fs, 1, WAY_COUNT);
        loop_over_loads(fs, 3, WAY_COUNT);
    }
    version_load_hooked(VERSION_WITHOUT_HOOKS);
    simulated_free(fs);
}

/* Large enough to be read by a queue, ahead, and around the page cache. */
static void test_large_load(void **state)
{
    (void)state;
    version_widen(LARGE_COLUMNS);
    version_save_by(DCP_IO_AUTO);
    struct simulated_file_system *fs = disk_with(1);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        version_load_by(io_ways[i]);
        loop_over_loads(fs, 1, LARGE_WAY_COUNT);
    }
    version_load_by(DCP_IO_AUTO);
    version_widen(0);
    simulated_free(fs);
}

/* Decompressed as it is read. */
static void test_compressed_load(void **state)
{
    (void)state;
    if (!DCP_HAVE_ZSTD)
        skip();
    version_widen(COMPRESSED_COLUMNS);
    version_save_by(DCP_IO_AUTO);
    version_load_by(DCP_IO_AUTO);
    version_compress(true);
    struct simulated_file_system *fs = disk_with(1);
    version_compress(false);
    loop_over_loads(fs, 1, WAY_COUNT);
    loop_over_loads(fs, 3, 1);
    version_widen(0);
    simulated_free(fs);
}

/* Somebody else changes the disk meanwhile: an error, or what was there before; afterwards as if it
 * had never been. Returns whether the fault was reached. */
static bool load_with_intruder(const struct simulated_file_system *before, int size,
                               const struct simulated_fault *fault)
{
    struct simulated_file_system *fs = simulated_copy(before);
    dcp_status status;
    simulated_set_fault(fs, fault);
    failing_allocator_install(0, false);
    int found = version_load_ranks(fs, size, &status);
    assert_int_equal(failing_allocator_remove(), 0);
    bool reached = simulated_fault_reached(fs);
    simulated_set_fault(fs, NULL);
    if (status == DCP_OK ? found != 1 : !reached)
        fail_with(fs, fault->operation, dcp_status_string(status), found);
    if (simulated_open_descriptors(fs) != 0)
        fail_with(fs, fault->operation, "a descriptor leaked", found);
    assert_int_equal(version_save(fs, 3, size), DCP_OK);
    assert_int_equal(version_find(fs), 3);
    simulated_free(fs);
    return reached;
}

static void loop_over_intruders(int size)
{
    static const enum simulated_fault_kind kinds[] = {SIMULATED_SHRINK, SIMULATED_VANISH};
    struct simulated_file_system *before = disk_with(1);
    for (size_t k = 0; k < 2; k++) {
        struct simulated_fault fault = {.operation = 1, .kind = kinds[k]};
        while (load_with_intruder(before, size, &fault))
            fault.operation += stride;
        assert_true(fault.operation > 10);
    }
    simulated_free(before);
}

static void test_load_of_what_shrinks_or_vanishes(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    loop_over_intruders(1);
    loop_over_intruders(3);
    version_widen(LARGE_COLUMNS);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        version_load_by(io_ways[i]);
        loop_over_intruders(1);
    }
    version_load_by(DCP_IO_AUTO);
    version_widen(0);
}

/* The directory is gone: so is what was in it, and what comes too late is as if it had been saved
 * before. */
static bool save_with_vanishing(const struct simulated_file_system *before, int size, long n)
{
    struct simulated_file_system *fs = simulated_copy(before);
    struct simulated_fault fault = {.operation = n, .kind = SIMULATED_VANISH};
    simulated_set_fault(fs, &fault);
    failing_allocator_install(0, false);
    dcp_status status = version_save(fs, 2, size);
    assert_int_equal(failing_allocator_remove(), 0);
    bool reached = simulated_fault_reached(fs);
    simulated_set_fault(fs, NULL);
    int found = version_find(fs);
    if (found != VERSION_NONE && !(status == DCP_OK && found == 2))
        fail_with(fs, n, dcp_status_string(status), found);
    if (simulated_open_descriptors(fs) != 0)
        fail_with(fs, n, "a descriptor leaked", found);
    if (version_save(fs, 3, size) != DCP_OK || version_find(fs) != 3)
        fail_with(fs, n, "the retry failed", found);
    assert_int_equal(version_count_files(fs), size);
    simulated_free(fs);
    return reached;
}

static void test_save_into_what_vanishes(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        for (int size = 1; size <= 3; size += 2) {
            struct simulated_file_system *before = disk_with(old);
            for (size_t i = 0; i < IO_WAY_COUNT; i++) {
                long n = 1;
                version_save_by(io_ways[i]);
                while (save_with_vanishing(before, size, n))
                    n += stride;
                assert_true(n > 10);
            }
            simulated_free(before);
        }
    }
    version_save_by(DCP_IO_AUTO);
}

/* Bytes run out in the middle: an error that says so, and the old checkpoint is untouched. */
static void test_full_disk(void **state)
{
    (void)state;
    struct simulated_file_system *before = disk_with(1);
    for (uint64_t capacity = 512; capacity < 1 << 20; capacity = capacity * 5 / 4) {
        struct simulated_file_system *fs = simulated_copy(before);
        simulated_set_capacity(fs, capacity);
        simulated_hide_free_space(fs);
        dcp_status status = version_save(fs, 2, 1);
        if (status != DCP_OK)
            assert_int_equal(status, DCP_ERR_NO_SPACE);
        assert_int_equal(version_find(fs), status == DCP_OK ? 2 : 1);
        simulated_free(fs);
    }
    simulated_free(before);
}

/* The first operation of the last save that makes a file with this in its path; 0: there is none.
 */
static long first_creation(const struct simulated_file_system *fs, const char *part)
{
    for (long n = 1; *simulated_operation_name(fs, n); n++) {
        const char *name = simulated_operation_name(fs, n);
        if (strncmp(name, "create ", 7) == 0 && strstr(name, part))
            return n;
    }
    return 0;
}

/* The metadata waits for the shards only where it is not known before where these lie. */
static void test_metadata_is_prepared_early(void **state)
{
    (void)state;
    for (int compressed = 0; compressed <= DCP_HAVE_ZSTD; compressed++) {
        struct simulated_file_system *fs = disk_with(0);
        simulated_set_fault(fs, NULL);
        version_compress(compressed != 0);
        assert_int_equal(version_save(fs, 1, 1), DCP_OK);
        long metadata = first_creation(fs, "/.metadata.");
        long shard = first_creation(fs, "/__0_0.distcp");
        assert_true(metadata > 0 && shard > 0);
        assert_int_equal(metadata > shard, compressed);
        simulated_free(fs);
    }
    version_compress(false);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        stride = strtol(argv[1], NULL, 10);
    if (stride < 1)
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fresh_save),
        cmocka_unit_test(test_overwrite),
        cmocka_unit_test(test_fresh_save_of_ranks),
        cmocka_unit_test(test_crash_in_fresh_save),
        cmocka_unit_test(test_crash_in_overwrite),
        cmocka_unit_test(test_extra_files),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_metadata_is_prepared_early),
        cmocka_unit_test(test_large_load),
        cmocka_unit_test(test_load_of_what_shrinks_or_vanishes),
        cmocka_unit_test(test_save_into_what_vanishes),
        cmocka_unit_test(test_compressed_save),
        cmocka_unit_test(test_compressed_load),
        cmocka_unit_test(test_asynchronous_save),
        cmocka_unit_test(test_hooked_save),
        cmocka_unit_test(test_save_into_own_files),
        cmocka_unit_test(test_save_to_own_storage),
        cmocka_unit_test(test_hooked_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
