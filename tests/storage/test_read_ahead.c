/* SPDX-License-Identifier: BSD-3-Clause */
/* A large range, read on every way: visited piece after piece, in order, whatever goes wrong with
 * the reads under way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fault/at_path.h"
#include "fault/failing_allocator.h"
#include "fault/io_ways.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "scratch.h"
#include "storage/opened.h"
#include "storage/shard/shard_file.h"
#include "storage/storage_queue.h"

#define NAME       "file"
#define SIZE       (((size_t)17 << 20) + 12345)
#define CACHED     ((size_t)512 << 10) /* so little is read through the page cache */
#define PIECE      ((size_t)512 << 10)
#define LARGE_PAGE ((size_t)2 << 20)
#define DIRECT     LARGE_PAGE /* a piece around the page cache */

struct visit {
    uint64_t position;
    uint64_t refuse; /* the piece with this byte; 0: none */
    bool nowhere;    /* pieces are only visited */
    size_t ahead;    /* pieces that have been started by then, this one included; 0: any */
    const unsigned char *content;
};

static unsigned char *make_content(void)
{
    uint64_t random = 3;
    unsigned char *content = malloc(SIZE);
    assert_non_null(content);
    scratch_fill(&random, content, SIZE);
    return content;
}

static dcp_status visit_piece(void *context, uint64_t position, const unsigned char *bytes,
                              size_t size)
{
    struct visit *visit = context;
    assert_int_equal(position, visit->position);
    assert_memory_equal(bytes, visit->content + position, size);
    if (visit->ahead)
        assert_true(transfer_watch_count(true).count >=
                    (long)(position / DIRECT + visit->ahead < SIZE / DIRECT
                               ? position / DIRECT + visit->ahead
                               : SIZE / DIRECT));
    visit->position += size;
    if (visit->refuse && visit->position > visit->refuse)
        return dcp_error_set(DCP_ERR_CHECKSUM, "refused");
    return DCP_OK;
}

/* way: where the range begins, in the file and, with skew, beyond a page of memory. */
static dcp_status read_range(const struct file_ops *ops, const char *path, uint32_t io, size_t way,
                             size_t skew, struct visit visit, size_t size)
{
    unsigned char *memory =
        aligned_alloc(MEMORY_PAGE, SIZE / MEMORY_PAGE * MEMORY_PAGE + 2 * MEMORY_PAGE);
    struct shard_reader reader = {.io = io, .mutex = PTHREAD_MUTEX_INITIALIZER};
    const dcp_storage_access access = {.size_of = sizeof access, .io = io, .trusted = true};
    struct opened opened;
    struct shard_file file = {.reader = &reader};
    assert_non_null(memory);
    transfer_watch_memory(memory, SIZE + way + skew);
    visit.position = way;
    dcp_status status = opened_open(&opened, ops, path);
    if (status != DCP_OK) {
        free(memory);
        return status;
    }
    status = storage_file_open(&file.file, &opened.directory, opened.name, &access);
    if (status == DCP_OK)
        status = shard_file_read_ahead(&file, visit.nowhere ? NULL : memory + way + skew,
                                       size - way, way, visit_piece, &visit, NULL);
    if (status == DCP_OK)
        assert_int_equal(visit.position, size);
    if (status == DCP_OK && !visit.nowhere)
        assert_memory_equal(memory + way + skew, visit.content + way, size - way);
    struct saved_error error;
    error_save(&error);
    shard_reader_free_lanes(&reader);
    storage_file_close(&file.file);
    opened_close(&opened);
    free(memory);
    return status == DCP_OK ? DCP_OK : error_restore(&error);
}

static void every_way_reads_the_same_bytes(void **state)
{
    static const size_t ways[] = {0, 4096, 64, 12345};
    struct visit visit = {.content = make_content()};
    char *path = scratch_path(*state, NAME);
    scratch_write(*state, NAME, visit.content, SIZE);
    for (size_t i = 0; i < IO_WAY_COUNT * 8; i++) {
        visit.nowhere = i >= IO_WAY_COUNT * 4;
        dcp_status status = read_range(&file_ops_system, path, io_ways[i / 4 % IO_WAY_COUNT],
                                       ways[i % 4], i % 3, visit, SIZE);
        if (status == DCP_ERR_UNSUPPORTED)
            print_message("not tested: %s\n", dcp_error_message());
        else
            assert_int_equal(status, DCP_OK);
    }
    assert_int_equal(read_range(&file_ops_system, path, DCP_IO_AUTO, 1, 0, visit, SIZE + 1),
                     DCP_ERR_FORMAT);
    free(path);
    free((void *)visit.content);
}

static struct simulated_file_system *disk_with(const unsigned char *content)
{
    struct simulated_file_system *fs = simulated_new();
    assert_int_equal(write_at_path(FILE_PATHS(simulated_ops(fs)), NAME, content, SIZE, true),
                     DCP_OK);
    return fs;
}

/* Whether the fault was reached. */
static bool read_with_fault(struct simulated_file_system *fs, const struct simulated_fault *fault,
                            uint32_t io, struct visit visit)
{
    simulated_set_fault(fs, fault);
    dcp_status status = read_range(simulated_ops(fs), NAME, io, 0, 0, visit, SIZE);
    const char *name = simulated_operation_name(fs, fault->operation);
    bool read = strncmp(name, "pread", 5) == 0, submit = strncmp(name, "queue_submit", 12) == 0;
    bool lasting = fault->kind == SIMULATED_ERROR && fault->error_number == EIO;
    if ((read || submit) && !lasting && status != DCP_OK)
        fail_msg("operation %ld (%s): %s", fault->operation, name, dcp_error_message());
    if (read && lasting && status != DCP_ERR_IO)
        fail_msg("operation %ld (%s) failed unnoticed", fault->operation, name);
    assert_int_equal(simulated_open_descriptors(fs), 0);
    return simulated_fault_reached(fs);
}

static void reads_end_that_were_cut_short(void **state)
{
    static const struct simulated_fault faults[] = {
        {0, SIMULATED_SHORT_ONE, 0, false}, {0, SIMULATED_SHORT_BY_ONE, 0, true},
        {0, SIMULATED_ERROR, EINTR, false}, {0, SIMULATED_ERROR, EAGAIN, false},
        {0, SIMULATED_ERROR, EIO, false},   {0, SIMULATED_ERROR, EIO, true},
    };
    (void)state;
    struct visit visit = {.content = make_content()};
    struct simulated_file_system *fs = disk_with(visit.content);
    const size_t tries = IO_WAY_COUNT * (sizeof faults / sizeof *faults);
    for (size_t i = 0; i < 2 * tries; i++) {
        struct simulated_fault fault = faults[i % tries / IO_WAY_COUNT];
        visit.nowhere = i >= tries;
        if (visit.nowhere && fault.error_number != EIO)
            continue; /* files complete short reads wherever these go */
        fault.operation = 1;
        while (read_with_fault(fs, &fault, io_ways[i % IO_WAY_COUNT], visit))
            fault.operation += TRIAL_STEP + fault.operation / 8;
        assert_true(fault.operation > 8);
    }
    simulated_free(fs);
    free((void *)visit.content);
}

/* Nothing is under way any more when a piece has been refused. */
static void a_refused_piece_ends_the_reading(void **state)
{
    (void)state;
    struct visit visit = {.content = make_content()};
    struct simulated_file_system *fs = disk_with(visit.content);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        for (visit.refuse = 1; visit.refuse < SIZE; visit.refuse += 1 << 20) {
            assert_int_equal(read_range(simulated_ops(fs), NAME, io_ways[i], 0, 0, visit, SIZE),
                             DCP_ERR_CHECKSUM);
            assert_int_equal(simulated_open_descriptors(fs), 0);
        }
    }
    simulated_free(fs);
    free((void *)visit.content);
}

static void missing_memory_is_an_error(void **state)
{
    (void)state;
    struct visit visit = {.content = make_content()};
    struct simulated_file_system *fs = disk_with(visit.content);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        bool reached = true;
        for (long n = 1; reached; n++) {
            failing_allocator_install(n, false);
            dcp_status status = read_range(simulated_ops(fs), NAME, io_ways[i], 0, 0, visit, SIZE);
            reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        }
    }
    simulated_free(fs);
    free((void *)visit.content);
}

static void files_from_a_mebibyte_on_are_read_around_the_cache(void **state)
{
    static const size_t sizes[] = {((size_t)1 << 20) - 1, (size_t)1 << 20, SIZE};
    unsigned char *content = make_content();
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const dcp_storage_access access = {.size_of = sizeof access};
        struct simulated_file_system *fs = simulated_new();
        struct opened opened;
        struct storage_file file;
        assert_int_equal(
            write_at_path(FILE_PATHS(simulated_ops(fs)), NAME, content, sizes[i], true), DCP_OK);
        assert_int_equal(opened_open(&opened, simulated_ops(fs), NAME), DCP_OK);
        assert_int_equal(storage_file_open(&file, &opened.directory, opened.name, &access), DCP_OK);
        assert_int_equal(storage_file_wants_alignment(&file), i > 0);
        storage_file_close(&file);
        opened_close(&opened);
        simulated_free(fs);
    }
    free(content);
}

/* To gather ordinary pages costs a device more than the copy. */
static void direct_reads_use_large_pages(void **state)
{
    static const uint32_t io[] = {DCP_IO_RING | DCP_IO_DIRECT, DCP_IO_POOL | DCP_IO_DIRECT};
    static const size_t ways[] = {0, 4096, 64, 12345};
    struct visit visit = {.content = make_content()};
    struct simulated_file_system *fs = disk_with(visit.content);
    (void)state;
    for (size_t i = 0; i < 2 * 2 * 4; i++) {
        const struct file_ops *ops = transfer_watch(simulated_ops(fs));
        size_t way = ways[i % 4], begins = way - way % MEMORY_PAGE;
        visit.nowhere = i >= 2 * 4;
        assert_int_equal(read_range(ops, NAME, io[i / 4 % 2], way, 0, visit, SIZE), DCP_OK);
        struct transfer_count count = transfer_watch_count(true);
        /* The last piece ends inside the file's last page. */
        assert_int_equal(count.count, (SIZE - begins) / DIRECT);
        assert_int_equal(count.callers, 0);
        assert_int_equal(count.largest, DIRECT);
        assert_int_equal(count.lowest % LARGE_PAGE, 0);
        assert_int_equal(count.addresses % DIRECT, 0);
    }
    simulated_free(fs);
    free((void *)visit.content);
}

/* The system's copy would be slow. */
static void skewed_memory_is_reached_through_a_buffer(void **state)
{
    static const size_t skews[] = {0, 64, 16, 1};
    struct visit visit = {.content = make_content()};
    struct simulated_file_system *fs = disk_with(visit.content);
    (void)state;
    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        const struct file_ops *ops = transfer_watch(simulated_ops(fs));
        assert_int_equal(read_range(ops, NAME, DCP_IO_AUTO, 0, skews[i], visit, CACHED), DCP_OK);
        struct transfer_count count = transfer_watch_count(false);
        assert_int_equal(count.count, CACHED / PIECE);
        assert_int_equal(count.callers, skews[i] % 64 == 0 ? count.count : 0);
    }
    simulated_free(fs);
    free((void *)visit.content);
}

/* Even when the next ones are there already: three, and the one that is visited, whose successor
 * has been started before. */
static void the_next_pieces_are_under_way(void **state)
{
    struct visit visit = {.content = make_content(), .ahead = 4};
    struct simulated_file_system *fs = disk_with(visit.content);
    const struct file_ops *ops = transfer_watch(simulated_ops(fs));
    (void)state;
    assert_int_equal(read_range(ops, NAME, DCP_IO_RING | DCP_IO_DIRECT, 0, 0, visit, SIZE), DCP_OK);
    assert_int_equal(transfer_watch_at_once(), visit.ahead - 1);
    simulated_free(fs);
    free((void *)visit.content);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_way_reads_the_same_bytes, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(reads_end_that_were_cut_short),
        cmocka_unit_test(a_refused_piece_ends_the_reading),
        cmocka_unit_test(missing_memory_is_an_error),
        cmocka_unit_test(files_from_a_mebibyte_on_are_read_around_the_cache),
        cmocka_unit_test(direct_reads_use_large_pages),
        cmocka_unit_test(skewed_memory_is_reached_through_a_buffer),
        cmocka_unit_test(the_next_pieces_are_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
