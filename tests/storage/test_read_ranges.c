/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges that lie apart in a file, read several at a time, around the page cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/error.h"
#include "base/memory_account.h"
#include "fault/failing_allocator.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "storage/reader_disk.h"

enum { COUNT = 184, STEP = 50000, BYTES = 200, DIRECT_RING = DCP_IO_RING | DCP_IO_DIRECT };

/* What came of each range. */
struct visits {
    const struct reader_disk *disk;
    const struct byte_range *ranges;
    size_t count;
    size_t failed;
    size_t until; /* the visit that ends the reading */
};

static dcp_status visit(void *context, size_t index, const unsigned char *bytes, dcp_status status)
{
    struct visits *visits = context;
    assert_int_equal(index, visits->count++);
    assert_int_equal(bytes == NULL, status != DCP_OK);
    if (index == visits->until)
        return dcp_error_set(DCP_ERR_STATE, "enough");
    if (bytes)
        assert_memory_equal(bytes, visits->disk->content + visits->ranges[index].offset,
                            visits->ranges[index].size);
    visits->failed += status != DCP_OK;
    if (status != DCP_OK)
        error_clear();
    return DCP_OK;
}

/* The first `count` ranges. */
static dcp_status read_all(struct reader_disk *disk, size_t count, struct visits *visits)
{
    struct byte_range ranges[COUNT];
    unsigned char room[BYTES];
    for (size_t i = 0; i < COUNT; i++)
        ranges[i] = (struct byte_range){i * STEP, BYTES - i % 3};
    *visits = (struct visits){.disk = disk, .ranges = ranges, .until = visits->until};
    const struct byte_source source = shard_file_source(&disk->file);
    return byte_source_read_ranges(&source, ranges, count, room, visit, visits);
}

static void they_go_around_the_page_cache(void **state)
{
    struct reader_disk *disk = *state;
    struct visits visits = {.until = COUNT};
    reader_disk_open(disk, transfer_watch(simulated_ops(disk->fs)), DIRECT_RING);
    assert_int_equal(read_all(disk, COUNT, &visits), DCP_OK);
    assert_int_equal(visits.count, COUNT);
    assert_int_equal(visits.failed, 0);
    struct transfer_count direct = transfer_watch_count(true);
    assert_int_equal(direct.count, COUNT);
    assert_int_equal(transfer_watch_count(false).count, 0);
    assert_in_range(direct.largest, 4096, 8192);
    assert_in_range(transfer_watch_at_once(), 8, COUNT);
    assert_int_equal(transfer_watch_announced(), 0);
    reader_disk_close(disk);
}

/* A few are announced, so that they come through the page cache; so do all within a limit. */
static void few_are_announced(void **state)
{
    struct reader_disk *disk = *state;
    struct visits visits = {.until = COUNT};
    reader_disk_open(disk, transfer_watch(simulated_ops(disk->fs)), DCP_IO_AUTO);
    assert_int_equal(read_all(disk, 5, &visits), DCP_OK);
    assert_int_equal(visits.count, 5);
    assert_int_equal(transfer_watch_count(true).count, 0);
    assert_in_range(transfer_watch_announced(), 1, BYTES);
    struct memory_account *account = memory_account_open((uint64_t)1 << 30);
    struct memory_account *before = memory_account_enter(account);
    assert_int_equal(read_all(disk, COUNT, &visits), DCP_OK);
    memory_account_enter(before);
    assert_int_equal(visits.count, COUNT);
    assert_int_equal(transfer_watch_count(true).count, 0);
    memory_account_close(account);
    assert_int_equal(read_all(disk, 0, &visits), DCP_OK);
    assert_int_equal(visits.count, 0);
    reader_disk_close(disk);
}

static void the_visitor_may_end_it(void **state)
{
    struct reader_disk *disk = *state;
    struct visits visits = {.until = 100};
    reader_disk_open(disk, simulated_ops(disk->fs), DIRECT_RING);
    assert_int_equal(read_all(disk, COUNT, &visits), DCP_ERR_STATE);
    assert_int_equal(visits.count, 101);
    reader_disk_close(disk);
}

/* What cannot be read is told to the visitor, and the others are read. */
static void a_failure_is_that_of_one_range(void **state)
{
    struct reader_disk *disk = *state;
    struct simulated_fault fault = {.kind = SIMULATED_ERROR, .error_number = EIO};
    struct visits visits = {.until = COUNT};
    size_t failed = 0;
    bool reached = true;
    reader_disk_open(disk, simulated_ops(disk->fs), DIRECT_RING);
    for (fault.operation = 1; reached; fault.operation++) {
        simulated_set_fault(disk->fs, &fault);
        assert_int_equal(read_all(disk, COUNT, &visits), DCP_OK);
        reached = simulated_fault_reached(disk->fs);
        assert_int_equal(visits.count, COUNT);
        assert_in_range(visits.failed, 0, 1);
        failed += visits.failed;
    }
    assert_int_equal(failed, COUNT);
    simulated_set_fault(disk->fs, NULL);
    reader_disk_close(disk);
}

static void they_are_read_without_memory(void **state)
{
    struct reader_disk *disk = *state;
    bool reached = true;
    for (long n = 1; reached; n++) {
        struct visits visits = {.until = COUNT};
        reader_disk_open(disk, simulated_ops(disk->fs), DCP_IO_AUTO);
        failing_allocator_install(n, true);
        dcp_status status = read_all(disk, COUNT, &visits);
        reached = failing_allocator_reached();
        shard_reader_free_lanes(&disk->reader);
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, DCP_OK);
        assert_int_equal(visits.failed, 0);
        reader_disk_close(disk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_go_around_the_page_cache),
        cmocka_unit_test(few_are_announced),
        cmocka_unit_test(the_visitor_may_end_it),
        cmocka_unit_test(a_failure_is_that_of_one_range),
        cmocka_unit_test(they_are_read_without_memory),
    };
    return cmocka_run_group_tests(tests, reader_disk_setup, reader_disk_teardown);
}
