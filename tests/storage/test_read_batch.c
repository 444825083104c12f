/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of a file that are read at once, around the page cache, before they are asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fault/failing_allocator.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "storage/reader_disk.h"
#include "storage/shard/read_batch.h"

#define KIB  ((uint64_t)1 << 10)
#define MIB  ((uint64_t)1 << 20)
#define PAGE ((uint64_t)4096)

static bool has(const struct reader_disk *disk, struct read_batch *batch, uint64_t offset,
                uint64_t size)
{
    const unsigned char *bytes;
    assert_int_equal(read_batch_find(batch, &disk->file, offset, size, &bytes), DCP_OK);
    if (bytes)
        assert_memory_equal(bytes, disk->content + offset, size);
    return bytes != NULL;
}

static void ranges_are_whole_pages_and_joined(void **state)
{
    struct batch_plan plan = {0};
    (void)state;
    assert_true(batch_plan_add(&plan, 0, 5000, 10));
    assert_int_equal(plan.count, 1);
    assert_int_equal(plan.ranges[0].start, PAGE);
    assert_int_equal(plan.ranges[0].end, 2 * PAGE);
    assert_true(batch_plan_add(&plan, 0, 5000, 100 * KIB)); /* more of the same */
    assert_true(batch_plan_add(&plan, 0, 136 * KIB, PAGE)); /* not far behind it */
    assert_int_equal(plan.count, 1);
    assert_int_equal(plan.bytes, 136 * KIB);
    assert_true(batch_plan_add(&plan, 0, 176 * KIB, PAGE)); /* farther */
    assert_true(batch_plan_add(&plan, 1, 180 * KIB, PAGE)); /* in another file */
    assert_true(batch_plan_add(&plan, 1, 8 * KIB, PAGE));   /* in front of the last one */
    assert_true(batch_plan_add(&plan, 0, 100 * KIB, 50));   /* which the first one has */
    assert_int_equal(plan.count, 4);
    assert_int_equal(plan.bytes, 136 * KIB + 3 * PAGE);
}

static void what_has_no_room_is_not_added(void **state)
{
    struct batch_plan plan = {0};
    (void)state;
    assert_false(batch_plan_add(&plan, 0, 0, READ_BATCH_BYTES + 1));
    assert_false(batch_plan_add(&plan, 0, UINT64_MAX - PAGE, PAGE));
    assert_false(batch_plan_add(&plan, 0, UINT64_MAX, UINT64_MAX));
    assert_int_equal(plan.count, 0);
    assert_true(batch_plan_add(&plan, 0, 0, READ_BATCH_BYTES - PAGE));
    assert_false(batch_plan_add(&plan, 0, READ_BATCH_BYTES - 1, 2));
    assert_false(batch_plan_add(&plan, 0, 6 * MIB, PAGE + 1));
    assert_true(batch_plan_add(&plan, 0, 6 * MIB, PAGE));
    assert_true(batch_plan_add(&plan, 0, 6 * MIB, 1)); /* which it has */
    plan = (struct batch_plan){0};
    for (size_t i = 0; i < READ_BATCH_RANGES; i++)
        assert_true(batch_plan_add(&plan, 0, i * MIB, 1));
    assert_false(batch_plan_add(&plan, 0, 100 * MIB, 1));
    assert_true(batch_plan_add(&plan, 0, (READ_BATCH_RANGES - 1) * MIB + PAGE, 1));
}

static struct batch_plan three_ranges(void)
{
    struct batch_plan plan = {0};
    assert_true(batch_plan_add(&plan, 0, 3 * MIB + 100, 300 * KIB));
    assert_true(batch_plan_add(&plan, 0, 5 * MIB, 2 * MIB));
    assert_true(batch_plan_add(&plan, 0, 0, 64 * KIB));
    return plan;
}

/* Two at a time in one reader, and others when they have ended. */
static void it_has_its_ranges(void **state)
{
    struct reader_disk *disk = *state;
    reader_disk_open(disk, transfer_watch(simulated_ops(disk->fs)), DCP_IO_AUTO);
    for (int i = 0; i < 3; i++) {
        const struct batch_plan plan = three_ranges();
        struct batch_plan other = {0};
        assert_true(batch_plan_add(&other, 0, 7 * MIB + 512 * KIB, 50));
        struct read_batch *batch = read_batch_begin(&disk->reader, &plan, DCP_VERIFY_ALL);
        struct read_batch *next = read_batch_begin(&disk->reader, &other, DCP_VERIFY_ALL);
        assert_true(has(disk, batch, 3 * MIB + 100, 300 * KIB));
        assert_true(has(disk, batch, 3 * MIB, 300 * KIB + PAGE));
        assert_true(has(disk, batch, 6 * MIB, 100));
        assert_true(has(disk, batch, 64 * KIB - 1, 1));
        assert_false(has(disk, batch, 64 * KIB - 1, 2));
        assert_false(has(disk, batch, 3 * MIB - 1, 2));
        assert_false(has(disk, batch, 7 * MIB + 512 * KIB, 1));
        assert_false(has(disk, batch, UINT64_MAX, 2));
        assert_true(has(disk, next, 7 * MIB + 512 * KIB, PAGE));
        assert_false(has(disk, NULL, 0, 1));
        assert_int_equal(disk->file.users, 4);
        read_batch_end(batch);
        read_batch_end(next);
    }
    assert_int_equal(transfer_watch_count(true).count, 3 * 4);
    assert_int_equal(transfer_watch_count(false).count, 0);
    assert_int_equal(disk->reader.bytes_read, 3 * (2 * MIB + 304 * KIB + 64 * KIB + PAGE));
    assert_true(disk->reader.direct);
    reader_disk_close(disk);
}

/* Every other group of 8 MiB is in the page cache of a simulated disk. */
static void it_lacks_what_the_page_cache_has(void **state)
{
    struct reader_disk *disk = *state;
    struct batch_plan plan = {0};
    assert_true(batch_plan_add(&plan, 0, 8 * MIB + 5, 50));
    reader_disk_open(disk, simulated_ops(disk->fs), DCP_IO_AUTO);
    assert_null(read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE));
    assert_true(batch_plan_add(&plan, 0, 7 * MIB, MIB));
    struct read_batch *batch = read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE);
    assert_false(has(disk, batch, 8 * MIB + 5, 50));
    assert_true(has(disk, batch, 7 * MIB, MIB));
    read_batch_end(batch);
    reader_disk_close(disk);
    reader_disk_open(disk, simulated_ops(disk->fs), DCP_IO_POOL | DCP_IO_DIRECT);
    batch = read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE);
    assert_true(has(disk, batch, 8 * MIB + 5, 50));
    read_batch_end(batch);
    reader_disk_close(disk);
}

/* Blocks that are checked as a whole are read as a whole. */
static void it_begins_and_ends_with_blocks(void **state)
{
    struct reader_disk *disk = *state;
    struct batch_plan plan = {0};
    reader_disk_open(disk, simulated_ops(disk->fs), DCP_IO_AUTO);
    disk->file.footer = FOOTER_GOOD;
    disk->file.block_size = (uint32_t)(64 * KIB);
    assert_true(batch_plan_add(&plan, 0, 70 * KIB, 60 * KIB));
    struct read_batch *batch = read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE);
    assert_true(has(disk, batch, 64 * KIB, 128 * KIB));
    assert_false(has(disk, batch, 64 * KIB, 128 * KIB + 1));
    read_batch_end(batch);
    reader_disk_close(disk);
}

/* The page that the file ends in cannot be read around the page cache: it is read when it is asked
 * for, unless it is all. */
static void it_has_the_end_of_the_file(void **state)
{
    struct reader_disk *disk = *state;
    struct batch_plan plan = {0};
    reader_disk_open(disk, transfer_watch(simulated_ops(disk->fs)), DCP_IO_POOL | DCP_IO_DIRECT);
    assert_true(batch_plan_add(&plan, 0, 9 * MIB, 12345));
    assert_true(batch_plan_add(&plan, 0, 20 * MIB, 12345));
    struct read_batch *batch = read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE);
    assert_true(has(disk, batch, 9 * MIB, 3 * PAGE));
    assert_int_equal(transfer_watch_count(false).count, 0);
    assert_true(has(disk, batch, 9 * MIB + 3 * PAGE + 10, 47));
    assert_true(has(disk, batch, 9 * MIB, 12345));
    assert_int_equal(transfer_watch_count(false).count, 1);
    assert_false(has(disk, batch, 9 * MIB, 12346));
    assert_false(has(disk, batch, 20 * MIB, 1));
    read_batch_end(batch);
    plan = (struct batch_plan){0};
    assert_true(batch_plan_add(&plan, 0, 9 * MIB + 3 * PAGE, 57));
    assert_null(read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE));
    reader_disk_close(disk);
}

static void nothing_begins_where_it_cannot(void **state)
{
    struct reader_disk *disk = *state;
    const struct batch_plan plan = three_ranges(), none = {0};
    struct batch_plan other = {0};
    assert_true(batch_plan_add(&other, 7, 0, 50)); /* there is no such file */
    reader_disk_open(disk, simulated_ops(disk->fs), DCP_IO_BUFFERED);
    assert_null(read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE));
    reader_disk_close(disk);
    reader_disk_open(disk, simulated_ops(disk->fs), DCP_IO_AUTO);
    assert_null(read_batch_begin(&disk->reader, &none, DCP_VERIFY_NONE));
    assert_null(read_batch_begin(&disk->reader, &other, DCP_VERIFY_NONE));
    disk->reader.how.plain = true;
    assert_null(read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE));
    reader_disk_close(disk);
}

/* How many of its ranges failed. What does is lacked from then on: it is read otherwise. */
static int count_failed(const struct reader_disk *disk, struct read_batch *batch,
                        const struct batch_plan *plan)
{
    const unsigned char *bytes;
    int failed = 0;
    for (size_t i = 0; i < plan->count; i++)
        if (read_batch_find(batch, &disk->file, plan->ranges[i].start, 1, &bytes) != DCP_OK) {
            assert_non_null(strstr(dcp_error_message(), READER_DISK_NAME));
            assert_false(has(disk, batch, plan->ranges[i].start, 1));
            failed++;
        }
    return failed;
}

static void what_fails_is_an_error_once(void **state)
{
    struct reader_disk *disk = *state;
    const struct batch_plan plan = three_ranges();
    struct simulated_fault fault = {.kind = SIMULATED_ERROR, .error_number = EIO};
    int failed = 0;
    bool reached = true;
    reader_disk_open(disk, simulated_ops(disk->fs), DCP_IO_RING | DCP_IO_DIRECT);
    for (fault.operation = 1; reached; fault.operation++) {
        simulated_set_fault(disk->fs, &fault);
        struct read_batch *batch = read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE);
        failed += count_failed(disk, batch, &plan);
        read_batch_end(batch);
        reached = simulated_fault_reached(disk->fs);
    }
    assert_int_equal(failed, 3);
    reader_disk_close(disk);
}

static void what_nobody_asks_for_is_nobodys_error(void **state)
{
    struct reader_disk *disk = *state;
    const struct batch_plan plan = three_ranges();
    struct simulated_fault fault = {
        .operation = 3, .kind = SIMULATED_ERROR, .error_number = EIO, .from_then_on = true};
    reader_disk_open(disk, simulated_ops(disk->fs), DCP_IO_RING | DCP_IO_DIRECT);
    simulated_set_fault(disk->fs, &fault);
    struct read_batch *batch = read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE);
    dcp_error_set(DCP_ERR_ARGUMENT, "of another call");
    read_batch_end(batch);
    assert_true(simulated_fault_reached(disk->fs));
    assert_string_equal(dcp_error_message(), "of another call");
    simulated_set_fault(disk->fs, NULL);
    reader_disk_close(disk);
}

/* What is there without memory for it is right, and nothing is lost. */
static void it_does_without_memory(void **state)
{
    struct reader_disk *disk = *state;
    const struct batch_plan plan = three_ranges();
    bool reached = true;
    for (long n = 1; reached; n++) {
        reader_disk_open(disk, simulated_ops(disk->fs), DCP_IO_AUTO);
        failing_allocator_install(n, true);
        struct read_batch *batch = read_batch_begin(&disk->reader, &plan, DCP_VERIFY_NONE);
        reached = failing_allocator_reached();
        assert_true(has(disk, batch, 5 * MIB, 2 * MIB) || reached);
        read_batch_end(batch);
        shard_reader_free_lanes(&disk->reader);
        assert_int_equal(failing_allocator_remove(), 0);
        reader_disk_close(disk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_whole_pages_and_joined),
        cmocka_unit_test(what_has_no_room_is_not_added),
        cmocka_unit_test(it_has_its_ranges),
        cmocka_unit_test(it_lacks_what_the_page_cache_has),
        cmocka_unit_test(it_begins_and_ends_with_blocks),
        cmocka_unit_test(it_has_the_end_of_the_file),
        cmocka_unit_test(nothing_begins_where_it_cannot),
        cmocka_unit_test(what_fails_is_an_error_once),
        cmocka_unit_test(what_nobody_asks_for_is_nobodys_error),
        cmocka_unit_test(it_does_without_memory),
    };
    return cmocka_run_group_tests(tests, reader_disk_setup, reader_disk_teardown);
}
