/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/operation_faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "fault/versions.h"

const struct simulated_fault fault_ways[WAY_COUNT] = {
    {0, SIMULATED_ERROR, EIO, false},      {0, SIMULATED_ERROR, EIO, true},
    {0, SIMULATED_ERROR, ENOSPC, false},   {0, SIMULATED_ERROR, ENOSPC, true},
    {0, SIMULATED_ERROR, EAGAIN, false},   {0, SIMULATED_ERROR, EAGAIN, true},
    {0, SIMULATED_ERROR, EINTR, false},    {0, SIMULATED_SHORT_ONE, 0, false},
    {0, SIMULATED_SHORT_BY_ONE, 0, false}, {0, SIMULATED_SHORT_BY_ONE, 0, true},
    {0, SIMULATED_SHORT_ONE, 0, true},
};

long fault_stride = 1;

bool fault_stride_read(int argc, char **argv)
{
    if (argc > 1)
        fault_stride = strtol(argv[1], NULL, 10);
    return fault_stride >= 1;
}

bool fault_is_harmless(const struct simulated_fault *way, const char *operation)
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

struct simulated_file_system *disk_with(int version)
{
    struct simulated_file_system *fs = simulated_new();
    if (version)
        assert_int_equal(version_save(fs, version, 1), DCP_OK);
    struct simulated_file_system *durable = simulated_copy(fs);
    simulated_free(fs);
    return durable;
}

void fail_with(const struct simulated_file_system *fs, long n, const char *what, int found)
{
    fail_msg("operation %ld, %s: %s, found version %d: %s", n, simulated_operation_name(fs, n),
             what, found, dcp_error_message());
}

/* One save of version 2 with one fault. Returns whether the fault was reached. */
static bool save_with_fault(const struct simulated_file_system *before, int old, int size,
                            struct simulated_fault fault, bool own_files)
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
    if (status != DCP_OK &&
        fault_is_harmless(&fault, simulated_operation_name(fs, fault.operation)))
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

void loop_over_faults(int old, int size, bool own_files)
{
    struct simulated_file_system *before = disk_with(old);
    for (size_t w = 0; w < WAY_COUNT; w++) {
        struct simulated_fault fault = fault_ways[w];
        for (fault.operation = 1 + (long)w % fault_stride;
             save_with_fault(before, old, size, fault, own_files); fault.operation += fault_stride)
            ;
        assert_true(fault.operation > 10);
    }
    simulated_free(before);
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

void loop_over_crashes(int old)
{
    struct simulated_file_system *before = disk_with(old);
    long n = 1;
    while (crash_after(before, old, n))
        n += fault_stride;
    assert_true(n > 10);
    simulated_free(before);
}
