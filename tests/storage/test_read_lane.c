/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges that are read one after the other: the next one begins while the last pieces of this one
 * are under way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/thread.h"
#include "fault/at_path.h"
#include "fault/failing_allocator.h"
#include "fault/io_ways.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "scratch.h"
#include "storage/opened.h"
#include "storage/shard/shard_file.h"

#define NAME  "file"
#define MIB   ((size_t)1 << 20)
#define SIZE  (17 * MIB + 12345)
#define BLOCK ((uint32_t)64 << 10) /* the largest */
#define PIECE ((size_t)512 << 10)

#define DIRECT_RING (DCP_IO_RING | DCP_IO_DIRECT)

/* Seven MiB, and ten behind them. */
static const struct shard_range first_part = {NULL, 0, 7 * MIB},
                                second_part = {NULL, 7 * MIB, 10 * MIB};

struct disk {
    unsigned char *content;
    struct simulated_file_system *fs;
};

/* A file of a reader, open, and again as another one; and what ranges of it are read into. */
struct file_reader {
    const unsigned char *content;
    struct shard_reader reader;
    struct shard_file file, other;
    struct opened opened;
    unsigned char *memory;
};

static int make_disk(void **state)
{
    uint64_t random = 3;
    struct disk *disk = malloc(sizeof *disk);
    assert_non_null(disk);
    *disk = (struct disk){malloc(SIZE), simulated_new()};
    assert_non_null(disk->content);
    scratch_fill(&random, disk->content, SIZE);
    assert_int_equal(
        write_at_path(FILE_PATHS(simulated_ops(disk->fs)), NAME, disk->content, SIZE, true),
        DCP_OK);
    *state = disk;
    return 0;
}

static int free_disk(void **state)
{
    struct disk *disk = *state;
    assert_int_equal(simulated_open_descriptors(disk->fs), 0);
    simulated_free(disk->fs);
    free(disk->content);
    free(disk);
    return 0;
}

static dcp_status reader_open(struct file_reader *with, const struct disk *disk,
                              const struct file_ops *ops, uint32_t io)
{
    const dcp_storage_access access = {.size_of = sizeof access, .io = io, .trusted = true};
    *with = (struct file_reader){.content = disk->content,
                                 .reader = {.io = io, .mutex = PTHREAD_MUTEX_INITIALIZER},
                                 .file = {.users = 1},
                                 .other = {.users = 1},
                                 .memory = malloc(SIZE)};
    with->file.reader = with->other.reader = &with->reader;
    assert_non_null(with->memory);
    dcp_status status = opened_open(&with->opened, ops, NAME);
    if (status != DCP_OK) {
        free(with->memory);
        return status;
    }
    status =
        storage_file_open(&with->file.file, &with->opened.directory, with->opened.name, &access);
    if (status == DCP_OK)
        status = storage_file_open(&with->other.file, &with->opened.directory, with->opened.name,
                                   &access);
    if (status != DCP_OK) {
        storage_file_close(&with->file.file);
        opened_close(&with->opened);
        free(with->memory);
    }
    return status;
}

static void open_watched(struct file_reader *with, const struct disk *disk)
{
    const struct file_ops *ops = transfer_watch(simulated_ops(disk->fs));
    assert_int_equal(reader_open(with, disk, ops, DIRECT_RING), DCP_OK);
}

static void reader_close(struct file_reader *with)
{
    shard_reader_settle(&with->reader);
    assert_int_equal(with->file.users, 1);
    assert_int_equal(with->other.users, 1);
    shard_reader_free_lanes(&with->reader);
    storage_file_close(&with->file.file);
    storage_file_close(&with->other.file);
    opened_close(&with->opened);
    free(with->memory);
}

struct visit {
    const struct file_reader *with;
    uint64_t start, position;
    uint64_t refuse; /* the piece with this byte; 0: none */
};

static dcp_status visit_piece(void *context, uint64_t position, const unsigned char *bytes,
                              size_t size)
{
    struct visit *visit = context;
    uint32_t block = visit->with->file.block_size;
    assert_int_equal(position, visit->position);
    assert_in_range(size, 1, PIECE);
    assert_memory_equal(bytes, visit->with->content + position, size);
    if (position > visit->start)
        assert_int_equal(position % 4096, 0);
    if (block > 0 && visit->start % block == 0)
        assert_int_equal(position % block, 0);
    visit->position += size;
    if (visit->refuse > 0 && visit->position > visit->refuse)
        return dcp_error_set(DCP_ERR_CHECKSUM, "refused");
    return DCP_OK;
}

/* Ranges whose file is NULL are of the first one. */
static dcp_status try_range(struct file_reader *with, const struct shard_range *range,
                            const struct shard_range *next, uint64_t refuse)
{
    struct visit visit = {
        .with = with, .start = range->offset, .position = range->offset, .refuse = refuse};
    struct shard_file *file = range->file ? range->file : &with->file;
    struct shard_range then = next ? *next : (struct shard_range){.file = NULL};
    if (!then.file)
        then.file = &with->file;
    dcp_status status =
        shard_file_read_ahead(file, with->memory + range->offset, (size_t)range->size,
                              range->offset, visit_piece, &visit, next ? &then : NULL);
    if (status == DCP_OK)
        assert_int_equal(visit.position, range->offset + range->size);
    return status;
}

static void read_range(struct file_reader *with, const struct shard_range *range,
                       const struct shard_range *next)
{
    memset(with->memory + range->offset, 0, (size_t)range->size);
    assert_int_equal(try_range(with, range, next, 0), DCP_OK);
    assert_memory_equal(with->memory + range->offset, with->content + range->offset, range->size);
}

/* Each byte comes once, although the second range begins behind where it was expected to. */
static void the_next_range_has_begun(void **state)
{
    static const size_t ways[] = {0, 64, 5000, 300000};
    const struct disk *disk = *state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct file_reader with;
        const struct shard_range rest = {NULL, second_part.offset + ways[i],
                                         second_part.size - ways[i]};
        open_watched(&with, disk);
        read_range(&with, &first_part, &second_part);
        assert_int_equal(transfer_watch_count(true).count, 4 + 3);
        assert_int_equal(with.file.users, 2);
        read_range(&with, &rest, NULL);
        assert_int_equal(transfer_watch_count(true).count, 4 + 5);
        assert_int_equal(with.file.users, 1);
        reader_close(&with);
    }
}

static void it_has_begun_in_another_file(void **state)
{
    const struct disk *disk = *state;
    struct file_reader with;
    open_watched(&with, disk);
    const struct shard_range next = {&with.other, second_part.offset, second_part.size};
    read_range(&with, &first_part, &next);
    assert_int_equal(transfer_watch_count(true).count, 4 + 3);
    assert_int_equal(with.other.users, 2);
    read_range(&with, &next, &first_part);
    assert_int_equal(transfer_watch_count(true).count, 4 + 5 + 3);
    assert_int_equal(with.file.users, 2);
    reader_close(&with);
}

/* The same place in one file is not that in another. */
static void what_has_begun_is_of_one_file(void **state)
{
    const struct disk *disk = *state;
    struct file_reader with;
    open_watched(&with, disk);
    const struct shard_range next = {&with.other, second_part.offset, second_part.size};
    read_range(&with, &first_part, &next);
    read_range(&with, &second_part, NULL);
    assert_int_equal(transfer_watch_count(true).count, 4 + 3 + 5);
    reader_close(&with);
}

/* Up to the end of the file: its last page cannot be read around the cache, and the piece with it
 * is not begun in part. So it ends with one that another range does not wait for. */
static void a_range_begins_that_ends_with_the_file(void **state)
{
    const struct disk *disk = *state;
    const struct shard_range last = {NULL, 7 * MIB, SIZE - 7 * MIB};
    const struct shard_range little = {NULL, 16 * MIB, SIZE - 16 * MIB};
    struct file_reader with;
    open_watched(&with, disk);
    read_range(&with, &first_part, &last);
    assert_int_equal(transfer_watch_count(true).count, 4 + 3);
    read_range(&with, &last, &first_part);
    assert_int_equal(transfer_watch_count(true).count, 4 + 5 + 3);
    read_range(&with, &first_part, &little);
    assert_int_equal(transfer_watch_count(true).count, 4 + 5 + 4);
    assert_int_equal(with.file.users, 1);
    read_range(&with, &little, NULL);
    reader_close(&with);
}

/* One piece that reaches into the last page comes straight to its place: the first buffers of the
 * lane are those of the next range. */
static void it_has_begun_behind_the_end_of_a_file(void **state)
{
    const struct disk *disk = *state;
    const struct shard_range end = {NULL, SIZE - MIB, MIB};
    struct file_reader with;
    open_watched(&with, disk);
    const struct shard_range next = {&with.other, 0, 7 * MIB};
    read_range(&with, &end, &next);
    assert_int_equal(transfer_watch_count(true).count, 3);
    read_range(&with, &next, NULL);
    assert_int_equal(transfer_watch_count(true).count, 4);
    reader_close(&with);
}

/* The next range waits for its turn without memory for that. */
static void it_begins_later_without_memory(void **state)
{
    const struct disk *disk = *state;
    const struct shard_range end = {NULL, SIZE - MIB, MIB};
    bool reached = true;
    long failures = 0, successes = 0;
    for (long n = 1; reached; n++) {
        struct file_reader with;
        assert_int_equal(reader_open(&with, disk, simulated_ops(disk->fs), DIRECT_RING), DCP_OK);
        const struct shard_range next = {&with.other, 0, 7 * MIB};
        failing_allocator_install(n, false);
        dcp_status status = try_range(&with, &end, &next, 0);
        reached = failing_allocator_reached();
        successes += reached && status == DCP_OK;
        failures += status != DCP_OK;
        shard_reader_settle(&with.reader);
        shard_reader_free_lanes(&with.reader);
        assert_int_equal(failing_allocator_remove(), 0);
        reader_close(&with);
    }
    assert_int_equal(successes, 1);
    assert_true(failures > 0);
}

/* Another range, a shorter one, a small one, or none. */
static void what_has_begun_in_vain_is_dropped(void **state)
{
    static const struct shard_range reads[] = {{NULL, 0, 5 * MIB},
                                               {NULL, 12 * MIB, 5 * MIB},
                                               {NULL, 7 * MIB, 4 * MIB},
                                               {NULL, 7 * MIB, MIB},
                                               {NULL, 0, 0}};
    const struct disk *disk = *state;
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        struct file_reader with;
        assert_int_equal(reader_open(&with, disk, simulated_ops(disk->fs), DIRECT_RING), DCP_OK);
        read_range(&with, &first_part, &second_part);
        assert_int_equal(with.file.users, 2);
        if (reads[i].size > 0)
            read_range(&with, &reads[i], NULL);
        reader_close(&with);
    }
}

/* What the file does not have, or what would be read through the page cache. */
static void what_cannot_be_read_around_the_cache_does_not_begin(void **state)
{
    static const struct shard_range nexts[] = {{NULL, SIZE - MIB, MIB},
                                               {NULL, SIZE, 10 * MIB},
                                               {NULL, SIZE + 5 * MIB, 10 * MIB},
                                               {NULL, 7 * MIB, UINT64_MAX - MIB},
                                               {NULL, UINT64_MAX - MIB, UINT64_MAX}};
    const struct disk *disk = *state;
    for (size_t i = 0; i < sizeof nexts / sizeof *nexts; i++) {
        struct file_reader with;
        assert_int_equal(reader_open(&with, disk, simulated_ops(disk->fs), DIRECT_RING), DCP_OK);
        read_range(&with, &first_part, &nexts[i]);
        assert_int_equal(with.file.users, 1);
        reader_close(&with);
    }
    struct file_reader with;
    assert_int_equal(reader_open(&with, disk, simulated_ops(disk->fs), DCP_IO_BUFFERED), DCP_OK);
    read_range(&with, &first_part, &second_part);
    assert_int_equal(with.file.users, 1);
    reader_close(&with);
}

static struct shard_range random_range(uint64_t *random)
{
    uint64_t offset = scratch_random(random) % (SIZE - 1);
    if (scratch_random(random) % 2)
        offset -= offset % BLOCK;
    return (struct shard_range){NULL, offset, 1 + scratch_random(random) % (SIZE - offset)};
}

/* Of a range that begins, none, up to a block, as checks make it, or any. */
static uint64_t random_way(uint64_t *random, uint64_t offset)
{
    const uint64_t ways[] = {0, (BLOCK - offset % BLOCK) % BLOCK, scratch_random(random) % BLOCK};
    return ways[scratch_random(random) % 3];
}

/* Whatever follows: buffers are not filled before what is in them has been visited. */
static void ranges_follow_in_any_order(void **state)
{
    const struct disk *disk = *state;
    uint64_t random = 11;
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        struct file_reader with;
        assert_int_equal(reader_open(&with, disk, simulated_ops(disk->fs), io_ways[i]), DCP_OK);
        with.file.footer = with.other.footer = i % 2 ? FOOTER_GOOD : FOOTER_NONE;
        with.file.block_size = with.other.block_size = i % 2 ? BLOCK : 0;
        struct shard_range range = random_range(&random);
        for (int n = 0; n < 100; n += 1 + TRIAL_STEP / 4) {
            struct shard_range next = random_range(&random);
            next.file = scratch_random(&random) % 3 == 0 ? &with.other : &with.file;
            read_range(&with, &range, &next);
            range = scratch_random(&random) % 8 == 0 ? random_range(&random) : next;
            uint64_t way = random_way(&random, range.offset);
            if (way < range.size)
                range = (struct shard_range){range.file, range.offset + way, range.size - way};
        }
        reader_close(&with);
    }
}

/* Little is left of the first range beside its first and last pages: a piece more than buffers. */
static void buffers_of_parts_of_pieces_are_not_shared(void **state)
{
    const struct disk *disk = *state;
    for (size_t i = 0; i < 64; i += 1 + TRIAL_STEP / 4) {
        const struct shard_range range = {NULL, 2 * MIB - 4096 + i * 64,
                                          6 * MIB + 8192 - 2 * i * 64};
        const struct shard_range before = {NULL, 0, range.offset};
        const struct shard_range next = {NULL, 10 * MIB, 7 * MIB}, lead = {NULL, 8192, 5 * MIB};
        struct file_reader with;
        assert_int_equal(reader_open(&with, disk, simulated_ops(disk->fs), DIRECT_RING), DCP_OK);
        read_range(&with, &lead, &before);
        read_range(&with, &range, &next);
        read_range(&with, &next, NULL);
        reader_close(&with);
    }
}

/* Reads the first part, and if `both` the second one. */
static dcp_status read_parts(const struct disk *disk, uint32_t io, uint64_t refuse, bool both)
{
    struct file_reader with;
    struct saved_error error;
    dcp_status status = reader_open(&with, disk, simulated_ops(disk->fs), io);
    if (status != DCP_OK)
        return status;
    status = try_range(&with, &first_part, &second_part, refuse);
    if (status == DCP_OK && both)
        status = try_range(&with, &second_part, NULL, refuse);
    if (status == DCP_OK)
        assert_memory_equal(with.memory, with.content, (both ? 17 : 7) * MIB);
    if (status != DCP_OK)
        error_save(&error);
    reader_close(&with);
    if (status != DCP_OK)
        assert_string_equal(dcp_error_message(), error.text);
    return status;
}

/* Returns whether the fault was reached. */
static bool read_with_fault(const struct disk *disk, const struct simulated_fault *fault,
                            uint64_t refuse, bool both, bool *failed)
{
    simulated_set_fault(disk->fs, fault);
    dcp_status status = read_parts(disk, DIRECT_RING, refuse, both);
    bool reached = simulated_fault_reached(disk->fs);
    if (status == DCP_ERR_CHECKSUM)
        assert_string_equal(dcp_error_message(), "refused");
    else
        assert_true(status == DCP_OK ? refuse == 0 : fault->kind == SIMULATED_ERROR);
    *failed = *failed || status == DCP_ERR_IO;
    assert_int_equal(simulated_open_descriptors(disk->fs), 0);
    simulated_set_fault(disk->fs, NULL);
    return reached;
}

/* Of a refused piece, too, if what follows it cannot be read. */
static void errors_are_of_what_was_asked_for(void **state)
{
    static const struct simulated_fault faults[] = {{0, SIMULATED_ERROR, EIO, false},
                                                    {0, SIMULATED_SHORT_ONE, 0, false}};
    for (size_t i = 0; i < 6; i++) {
        struct simulated_fault fault = faults[i / 3];
        bool both = i % 3 > 0, failed = false;
        uint64_t refuse = i % 3 == 2 ? first_part.size - 1 : 0;
        fault.operation = 1;
        while (read_with_fault(*state, &fault, refuse, both, &failed))
            fault.operation++;
        assert_true(failed == (fault.kind == SIMULATED_ERROR));
    }
}

static void a_refused_piece_ends_all_that_has_begun(void **state)
{
    const struct disk *disk = *state;
    for (uint64_t refuse = MIB; refuse < 17 * MIB; refuse += MIB)
        assert_int_equal(read_parts(disk, DIRECT_RING, refuse, true), DCP_ERR_CHECKSUM);
}

static void missing_memory_is_an_error(void **state)
{
    const struct disk *disk = *state;
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        bool reached = true;
        for (long n = 1 + (long)(i % TRIAL_STEP); reached; n += TRIAL_STEP) {
            failing_allocator_install(n, false);
            dcp_status status = read_parts(disk, io_ways[i], 0, true);
            reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        }
    }
}

/* One thread's pieces are not taken by another one. */
#define RANGES 16

static struct shard_range share(size_t index)
{
    return (struct shard_range){NULL, index * MIB, SIZE / 3};
}

static dcp_status read_share(void *context, size_t index, struct thread_turn *turn)
{
    struct file_reader own = {.content = NULL}, *with = context;
    size_t taken = thread_turn_take_next(turn);
    struct shard_range range = share(index % 8), next = share(taken % 8);
    next.file = &with->file;
    struct visit visit = {.with = with, .start = range.offset, .position = range.offset};
    own.memory = malloc((size_t)range.size);
    assert_non_null(own.memory);
    dcp_status status =
        shard_file_read_ahead(&with->file, own.memory, (size_t)range.size, range.offset,
                              visit_piece, &visit, taken < RANGES ? &next : NULL);
    if (status == DCP_OK)
        assert_memory_equal(own.memory, with->content + range.offset, range.size);
    free(own.memory);
    return status;
}

static void threads_have_lanes_of_their_own(void **state)
{
    const struct disk *disk = *state;
    struct file_reader with;
    assert_int_equal(reader_open(&with, disk, simulated_ops(disk->fs), DIRECT_RING), DCP_OK);
    assert_int_equal(thread_run_turns(RANGES, 4, read_share, &with), DCP_OK);
    reader_close(&with);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_disk, free_disk)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_next_range_has_begun),
        TEST(it_has_begun_in_another_file),
        TEST(it_has_begun_behind_the_end_of_a_file),
        TEST(it_begins_later_without_memory),
        TEST(what_has_begun_is_of_one_file),
        TEST(a_range_begins_that_ends_with_the_file),
        TEST(what_has_begun_in_vain_is_dropped),
        TEST(what_cannot_be_read_around_the_cache_does_not_begin),
        TEST(ranges_follow_in_any_order),
        TEST(buffers_of_parts_of_pieces_are_not_shared),
        TEST(errors_are_of_what_was_asked_for),
        TEST(a_refused_piece_ends_all_that_has_begun),
        TEST(missing_memory_is_an_error),
        TEST(threads_have_lanes_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
