/* SPDX-License-Identifier: BSD-3-Clause */
/* Every file operation of a save fails, once and from then on, in every way; every operation is the
 * last before a crash. What is found afterwards is the old checkpoint or the new one, byte for
 * byte. With an argument of n only every n-th operation does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "fault/io_ways.h"
#include "fault/operation_faults.h"
#include "fault/slow_clock.h"
#include "fault/versions.h"

static void test_fresh_save(void **state)
{
    (void)state;
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        version_save_by(io_ways[i]);
        loop_over_faults(VERSION_NONE, 1, false);
    }
}

static void test_overwrite(void **state)
{
    (void)state;
    for (size_t i = 0; i < FEW_WAYS; i++) {
        version_save_by(io_ways[i]);
        loop_over_faults(1, 1, false);
    }
}

static void test_fresh_save_of_ranks(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    loop_over_faults(VERSION_NONE, 3, false);
}

/* Places are not known beforehand: the ranks' results are on the way when a fault strikes. */
static void test_compressed_save(void **state)
{
    (void)state;
    if (!DCP_HAVE_ZSTD)
        skip();
    version_save_by(DCP_IO_AUTO);
    version_compress(true);
    loop_over_faults(VERSION_NONE, 1, false);
    loop_over_faults(1, 3, false);
    version_compress(false);
}

/* The same, with copies that threads of the library write. */
static void test_asynchronous_save(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_course(VERSION_IN_BACKGROUND);
    loop_over_faults(1, 1, false);
    loop_over_faults(VERSION_NONE, 3, false);
    version_save_course(VERSION_COMMITS_WHEN_WAITED);
    loop_over_faults(1, 3, false);
    version_save_course(VERSION_AT_ONCE);
}

/* Every hook that there is calls what the library does, whose failures come out of them. */
static void test_hooked_save(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_hooked(VERSION_BY_HOOKS);
    loop_over_faults(VERSION_NONE, 1, false);
    loop_over_faults(1, 3, false);
    version_save_course(VERSION_IN_BACKGROUND);
    loop_over_faults(1, 3, false);
    version_save_course(VERSION_AT_ONCE);
    version_save_hooked(VERSION_WITHOUT_HOOKS);
}

/* Files of one's own beside the library's .metadata. */
static void test_save_into_own_files(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_hooked(VERSION_OWN_FILES);
    loop_over_faults(VERSION_NONE, 1, true);
    loop_over_faults(1, 3, true);
    version_save_hooked(VERSION_WITHOUT_HOOKS);
}

static void test_save_to_own_storage(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    version_save_hooked(VERSION_OWN_STORAGE);
    loop_over_faults(VERSION_NONE, 1, false);
    loop_over_faults(1, 3, false);
    version_save_hooked(VERSION_WITHOUT_HOOKS);
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

/* What makes names and small files durable is waited for on threads then. */
static void test_slow_disk(void **state)
{
    (void)state;
    version_save_by(DCP_IO_AUTO);
    slow_clock_install();
    loop_over_faults(VERSION_NONE, 1, false);
    loop_over_faults(1, 3, false);
    loop_over_crashes(VERSION_NONE);
    loop_over_crashes(1);
    slow_clock_remove();
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
                    n += fault_stride;
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
    if (!fault_stride_read(argc, argv))
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fresh_save),
        cmocka_unit_test(test_overwrite),
        cmocka_unit_test(test_fresh_save_of_ranks),
        cmocka_unit_test(test_compressed_save),
        cmocka_unit_test(test_asynchronous_save),
        cmocka_unit_test(test_hooked_save),
        cmocka_unit_test(test_save_into_own_files),
        cmocka_unit_test(test_save_to_own_storage),
        cmocka_unit_test(test_crash_in_fresh_save),
        cmocka_unit_test(test_crash_in_overwrite),
        cmocka_unit_test(test_slow_disk),
        cmocka_unit_test(test_save_into_what_vanishes),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_metadata_is_prepared_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
