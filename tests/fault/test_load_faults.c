/* SPDX-License-Identifier: BSD-3-Clause */
/* Every file operation of a load fails, once and from then on, in every way: an error, or every
 * byte. Others change the disk meanwhile. With an argument of n only every n-th operation does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "fault/io_ways.h"
#include "fault/operation_faults.h"
#include "fault/versions.h"

#define LARGE_WAY_COUNT (WAY_COUNT - 1)
/* A matrix of 4 MiB and a bit. */
#define LARGE_COLUMNS 175000
/* Half a megabyte of it. */
#define COMPRESSED_COLUMNS 20000

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
                         : fault_is_harmless(fault, simulated_operation_name(fs, fault->operation)))
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
        struct simulated_fault fault = fault_ways[w];
        for (fault.operation = 1 + (long)w % fault_stride; load_with_fault(fs, size, &fault);
             fault.operation += fault_stride)
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
            fault.operation += fault_stride;
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

int main(int argc, char **argv)
{
    if (!fault_stride_read(argc, argv))
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_hooked_load),
        cmocka_unit_test(test_large_load),
        cmocka_unit_test(test_compressed_load),
        cmocka_unit_test(test_load_of_what_shrinks_or_vanishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
