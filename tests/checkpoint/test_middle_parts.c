/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of tensors that are neither small nor large, as a rank has them of a model on many: several
 * are read at a time, around the page cache, by who wants them or by one rank for others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/parts.h"
#include "checkpoint/ranks.h"
#include "checkpoint/verify_scene.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "storage/files/files.h"
#include "storage/scratch.h"

enum { COUNT = 60, ROWS = 240, COLUMNS = 200 };
#define FILE_NAME   "__0_0.distcp"
#define DIRECT_RING (DCP_IO_RING | DCP_IO_DIRECT)
#define MIB         ((uint64_t)1 << 20)

#define SHAPE                                                                                      \
    {                                                                                              \
        ROWS, COLUMNS                                                                              \
    }
static const struct part rows = {SHAPE, {60, 0}, {80, COLUMNS}, DCP_F32, 0, COUNT},
                         columns = {SHAPE, {0, 20}, {ROWS, 150}, DCP_F32, 0, COUNT},
                         corner = {SHAPE, {30, 5}, {70, 30}, DCP_F32, 0, COUNT},
                         wide = {SHAPE, {20, 0}, {200, COLUMNS}, DCP_F64, 0, COUNT},
                         few = {SHAPE, {5, 0}, {2, COLUMNS}, DCP_F32, 0, COUNT},
                         all = {SHAPE, {0, 0}, SHAPE, DCP_F32, 0, COUNT},
                         left = {SHAPE, {0, 0}, {ROWS, 90}, DCP_F32, 0, COUNT},
                         right = {SHAPE, {0, 90}, {ROWS, 110}, DCP_F32, 0, COUNT};
static const struct part *const parts[] = {&rows, &columns, &corner, &wide, &few, &all};
#define PARTS (sizeof parts / sizeof *parts)

static void they_are_right_however_they_are_stored(void **state)
{
    static const dcp_compression compressions[] = {DCP_COMPRESSION_NONE, DCP_COMPRESSION_ZSTD};
    static const dcp_load_options ways[] = {
        {.thread_count = 1},
        {.thread_count = 3, .io = DIRECT_RING},
        {.thread_count = 2, .io = DCP_IO_POOL | DCP_IO_DIRECT},
        {.thread_count = 1, .io = DIRECT_RING, .verification = DCP_VERIFY_NONE},
        {.thread_count = 1, .io = DIRECT_RING, .verification = DCP_VERIFY_RECORDS},
        {.memory_limit = 4 * MIB}};
    for (int bare = 0; bare < 2; bare++)
        for (int c = 0; c < 2; c++) {
            char *path = scratch_path(*state, bare ? c ? "bare-zstd" : "bare" : c ? "zstd" : "c");
            const dcp_save_options options = {.skip_sync = true, .compression = compressions[c]};
            bool saved = parts_save(path, &all, &options);
            if (saved && bare)
                scratch_drop_footer(path, FILE_NAME);
            for (size_t i = 0; saved && i < sizeof ways / sizeof *ways; i++)
                parts_check_loads(path, parts, PARTS, &ways[i]);
            free(path);
        }
}

static struct simulated_file_system *make_disk(void)
{
    struct simulated_file_system *fs = simulated_new();
    assert_true(parts_save("c", &all, &(dcp_save_options){.storage = simulated_storage(fs)}));
    return fs;
}

/* Of what one rank reads: how often around the page cache. Nothing else comes through it than
 * metadata, footers and what is in a few blocks. */
static long count_direct(struct simulated_file_system *fs, const struct part *part,
                         dcp_figures *figures)
{
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    const dcp_load_options how = {.storage = &storage, .thread_count = 1, .io = DIRECT_RING};
    assert_int_equal(parts_load("c", part, &how, figures), DCP_OK);
    assert_in_range(transfer_watch_count(false).largest, 1, 64 << 10);
    return transfer_watch_count(true).count;
}

static void neighbours_are_read_at_once(void **state)
{
    struct simulated_file_system *fs = make_disk();
    uint64_t bytes = parts_bytes(&all);
    dcp_figures figures;
    (void)state;
    assert_in_range(count_direct(fs, &all, &figures), bytes / (4 * MIB), bytes / (2 * MIB));
    assert_in_range(figures.bytes_read, bytes, bytes + bytes / 20);
    assert_int_equal(transfer_watch_idle(), 1); /* at the end */
    simulated_free(fs);
}

/* What lies between two regions is not read. */
static void parts_are_read_by_themselves(void **state)
{
    struct simulated_file_system *fs = make_disk();
    uint64_t bytes = parts_bytes(&rows);
    dcp_figures figures;
    (void)state;
    assert_int_equal(count_direct(fs, &rows, &figures), COUNT);
    assert_in_range(figures.bytes_read, bytes, bytes + COUNT * (uint64_t)(16 << 10));
    assert_in_range(transfer_watch_idle(), 1, COUNT / 4);
    simulated_free(fs);
}

/* Where streams without footers have their elements, their ends say: these are not read one by one
 * while a thread waits. */
static void ends_of_streams_are_read_with_them(void **state)
{
    static const struct part front = {SHAPE, {0, 0}, {80, COLUMNS}, DCP_F32, 0, COUNT},
                             back = {SHAPE, {160, 0}, {80, COLUMNS}, DCP_F32, 0, COUNT};
    const struct part *const wanted[] = {&front, &rows, &back};
    struct simulated_file_system *fs = simulated_new();
    (void)state;
    assert_true(
        parts_save(VERIFY_SCENE, &all, &(dcp_save_options){.storage = simulated_storage(fs)}));
    verify_scene_make_bare(fs);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
        const dcp_load_options how = {.storage = &storage,
                                      .thread_count = 1,
                                      .io = DIRECT_RING,
                                      .verification = DCP_VERIFY_NONE};
        dcp_figures figures;
        assert_int_equal(parts_load(VERIFY_SCENE, wanted[i], &how, &figures), DCP_OK);
        assert_in_range(transfer_watch_count(true).count, COUNT, 5 * COUNT / 2);
        assert_in_range(transfer_watch_count(false).count, 0, COUNT / 4);
    }
    simulated_free(fs);
}

/* What two ranks load, each byte read by one of them. */
struct pair {
    const dcp_storage *storage;
    const struct part *parts[2];
    uint32_t io;
    dcp_figures figures[2];
};

static dcp_status load_as_rank(struct rank *self)
{
    struct pair *pair = self->context;
    const dcp_load_options how = {.storage = pair->storage,
                                  .group = self->group,
                                  .reading = DCP_READING_COOPERATIVE,
                                  .io = pair->io};
    return parts_load(self->path, pair->parts[self->rank], &how, &pair->figures[self->rank]);
}

static void one_rank_reads_for_both(void **state)
{
    struct simulated_file_system *fs = make_disk();
    uint64_t bytes = parts_bytes(&all);
    (void)state;
    for (int by_columns = 0; by_columns < 2; by_columns++) {
        const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
        struct pair pair = {
            &storage, {by_columns ? &left : &all, by_columns ? &right : &all}, DIRECT_RING, {{0}}};
        ranks_must(2, "c", load_as_rank, &pair);
        assert_int_equal(pair.figures[0].bytes_unchecked + pair.figures[1].bytes_unchecked, 0);
        assert_in_range(pair.figures[0].bytes_read + pair.figures[1].bytes_read, bytes,
                        bytes + bytes / 10);
        assert_in_range(transfer_watch_count(true).count, bytes / (4 * MIB), COUNT);
        assert_in_range(transfer_watch_count(false).largest, 1, 64 << 10);
        assert_int_equal(transfer_watch_rings(), 2 * 2); /* of what is read now, and then */
    }
    simulated_free(fs);
}

/* Tensors of which each rank reads a half that is not large, though they are: none is read by both,
 * so that nothing need come into the page cache, nor be read twice. */
static void halves_of_large_ones_are_read_at_once(void **state)
{
    static const struct part wholes = {{320, 1000}, {0, 0}, {320, 1000}, DCP_F32, 0, 20},
                             top = {{320, 1000}, {0, 0}, {160, 1000}, DCP_F32, 0, 20},
                             bottom = {{320, 1000}, {160, 0}, {160, 1000}, DCP_F32, 0, 20};
    struct simulated_file_system *fs = simulated_new();
    uint64_t bytes = parts_bytes(&wholes);
    (void)state;
    assert_true(parts_save("c", &wholes, &(dcp_save_options){.storage = simulated_storage(fs)}));
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    struct pair pair = {&storage, {&top, &bottom}, 0, {{0}}};
    ranks_must(2, "c", load_as_rank, &pair);
    assert_in_range(pair.figures[0].bytes_read + pair.figures[1].bytes_read, bytes,
                    bytes + bytes / 10);
    /* The simulated page cache has every other group of 8 MiB. */
    assert_in_range(transfer_watch_count(true).count, bytes / (3 * 4 * MIB), 2 * 20);
    simulated_free(fs);
}

/* Flips a byte of an element of t40. */
static void damage(const char *path, int64_t row)
{
    scratch_flip(path, FILE_NAME, parts_find(path, FILE_NAME, &all, 40, row), 1);
}

/* Both ranks are told which tensor it is. */
static void fail_together(const char *path, struct pair *pair)
{
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, 2, path, load_as_rank, pair);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_CHECKSUM);
        assert_non_null(strstr(ranks[r].message, "t40 ("));
    }
}

/* Without the footer's sums of blocks, by the checksum of the whole tensor. */
static void damage_is_found_in_what_is_wanted(void **state)
{
    const dcp_load_options how = {.thread_count = 1, .io = DCP_IO_POOL | DCP_IO_DIRECT};
    struct pair same = {NULL, {&rows, &rows}, how.io, {{0}}};
    struct pair halves = {NULL, {&left, &right}, how.io, {{0}}};
    dcp_figures figures;
    assert_true(parts_save(*state, &all, &(dcp_save_options){.skip_sync = true}));
    dcp_status status = parts_load(*state, &rows, &how, &figures);
    if (status == DCP_ERR_UNSUPPORTED) {
        print_message("not tested: %s\n", dcp_error_message());
        return;
    }
    assert_int_equal(status, DCP_OK);
    damage(*state, 230);
    assert_int_equal(parts_load(*state, &rows, &how, &figures), DCP_OK);
    ranks_must(2, *state, load_as_rank, &same);
    fail_together(*state, &halves);
    damage(*state, 100);
    assert_int_equal(parts_load(*state, &rows, &how, &figures), DCP_ERR_CHECKSUM);
    assert_non_null(strstr(dcp_error_message(), "t40 ("));
    fail_together(*state, &same);
    scratch_drop_footer(*state, FILE_NAME);
    assert_int_equal(parts_load(*state, &all, &how, &figures), DCP_ERR_CHECKSUM);
    fail_together(*state, &halves);
}

/* Alone, and of two ranks that read for each other: whatever fails, both are told. */
static void a_failing_disk_is_an_error(void **state)
{
    struct simulated_file_system *fs = make_disk();
    const dcp_load_options how = {
        .storage = simulated_storage(fs), .thread_count = 1, .io = DIRECT_RING};
    struct pair pair = {how.storage, {&left, &right}, how.io, {{0}}};
    struct rank ranks[RANKS_MAX];
    dcp_figures figures;
    int failed = 0, together = 0;
    bool reached = true;
    (void)state;
    for (long n = 1; reached; n += TRIAL_STEP + n / 8) {
        const struct simulated_fault fault = {
            .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO};
        simulated_set_fault(fs, &fault);
        dcp_status status = parts_load("c", &all, &how, &figures);
        reached = simulated_fault_reached(fs);
        assert_true(status == DCP_OK || reached);
        failed += status != DCP_OK;
        simulated_set_fault(fs, &fault);
        ranks_run(ranks, 2, "c", load_as_rank, &pair);
        assert_int_equal(ranks[0].status, ranks[1].status);
        assert_true(ranks[0].status == DCP_OK || simulated_fault_reached(fs));
        together += ranks[0].status != DCP_OK;
        assert_int_equal(simulated_open_descriptors(fs), 0);
    }
    assert_true(failed > 0 && together > 0);
    simulated_free(fs);
}

#define file_test(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        file_test(they_are_right_however_they_are_stored),
        cmocka_unit_test(neighbours_are_read_at_once),
        cmocka_unit_test(parts_are_read_by_themselves),
        cmocka_unit_test(ends_of_streams_are_read_with_them),
        cmocka_unit_test(one_rank_reads_for_both),
        cmocka_unit_test(halves_of_large_ones_are_read_at_once),
        file_test(damage_is_found_in_what_is_wanted),
        cmocka_unit_test(a_failing_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
