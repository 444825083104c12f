/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of parts of many small tensors: these are read whole, along with their neighbours, and as
 * many reads, bytes and checks as parts that are read one by one would not need are not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/parts.h"
#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "storage/files/files.h"
#include "storage/scratch.h"

enum { COUNT = 200, MANY = 1600, ROWS = 128, COLUMNS = 40 };
#define FILE_NAME "__0_0.distcp"

#define SHAPE                                                                                      \
    {                                                                                              \
        ROWS, COLUMNS                                                                              \
    }
#define ALL_OF(from, to)                                                                           \
    {                                                                                              \
        SHAPE, {0, 0}, {ROWS, COLUMNS}, DCP_F32, from, to                                          \
    }
static const struct part rows = {SHAPE, {20, 0}, {40, COLUMNS}, DCP_F32, 0, COUNT},
                         columns = {SHAPE, {0, 20}, {ROWS, 15}, DCP_F32, 0, COUNT},
                         corner = {SHAPE, {30, 5}, {70, 30}, DCP_F32, 0, COUNT},
                         wide = {SHAPE, {20, 10}, {100, 20}, DCP_F64, 0, COUNT},
                         few = {SHAPE, {5, 0}, {2, COLUMNS}, DCP_F32, 0, COUNT},
                         all = ALL_OF(0, COUNT), all_of_many = ALL_OF(0, MANY);
static const struct part *const parts[] = {&rows, &columns, &corner, &wide, &few};
#define PARTS (sizeof parts / sizeof *parts)

static void save_plain(const char *path)
{
    assert_true(parts_save(path, &all, &(dcp_save_options){.skip_sync = true}));
}

static void they_are_right_however_they_are_stored(void **state)
{
    static const dcp_compression compressions[] = {DCP_COMPRESSION_NONE, DCP_COMPRESSION_ZSTD};
    static const dcp_load_options ways[] = {{.thread_count = 1},
                                            {.thread_count = 3},
                                            {.thread_count = 1, .verification = DCP_VERIFY_NONE},
                                            {.thread_count = 2, .io = DCP_IO_POOL | DCP_IO_DIRECT},
                                            {.memory_limit = (uint64_t)4 << 20}};
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

static void they_share_reads_with_their_neighbours(void **state)
{
    static const struct part *const halves[] = {&rows, &columns, &corner, &wide};
    dcp_figures figures;
    save_plain(*state);
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        long before = scratch_count_reads();
        assert_int_equal(
            parts_load(*state, halves[i], &(dcp_load_options){.thread_count = 1}, &figures),
            DCP_OK);
        if (before < 0)
            print_message("not tested: the system does not count reads\n");
        else if (scratch_count_reads() - before > COUNT / 2)
            fail_msg("%ld reads", scratch_count_reads() - before);
    }
}

/* Two rows of a tensor are in two blocks at most. */
static void little_of_each_is_read_alone(void **state)
{
    dcp_figures figures;
    save_plain(*state);
    assert_int_equal(parts_load(*state, &few, &(dcp_load_options){.thread_count = 1}, &figures),
                     DCP_OK);
    assert_true(figures.bytes_read < (COUNT + 50) * 2 * (uint64_t)4096);
}

/* What two ranks load. */
struct pair {
    const dcp_storage *storage;
    const struct part *parts[2];
    uint32_t io;
};

static dcp_status load_as_rank(struct rank *self)
{
    const struct pair *pair = self->context;
    const dcp_load_options how = {
        .storage = pair->storage, .group = self->group, .thread_count = 1, .io = pair->io};
    dcp_figures figures;
    return parts_load(self->path, pair->parts[self->rank], &how, &figures);
}

/* Returns how many transfers went around the page cache. */
static long count_direct(struct simulated_file_system *fs, const struct part *first,
                         const struct part *second, uint32_t io)
{
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    struct pair pair = {&storage, {first, second}, io};
    ranks_must(2, "c", load_as_rank, &pair);
    return transfer_watch_count(true).count;
}

/* What each rank reads for itself alone goes around the page cache; what the other one reads as
 * well comes into it, unless that is not wanted. */
static void what_is_read_twice_comes_into_the_page_cache(void **state)
{
    static const struct part lower = ALL_OF(0, MANY / 2), upper = ALL_OF(MANY / 2, MANY),
                             more = ALL_OF(0, MANY * 11 / 20), less = ALL_OF(MANY * 11 / 20, MANY),
                             left = {SHAPE, {0, 0}, {ROWS, 30}, DCP_F32, 0, MANY},
                             right = {SHAPE, {0, 10}, {ROWS, 30}, DCP_F32, 0, MANY};
    struct simulated_file_system *fs = simulated_new();
    (void)state;
    assert_true(
        parts_save("c", &all_of_many, &(dcp_save_options){.storage = simulated_storage(fs)}));
    long even = count_direct(fs, &lower, &upper, DCP_IO_AUTO);
    assert_true(even > 0);
    assert_true(count_direct(fs, &more, &less, DCP_IO_AUTO) > even * 3 / 4); /* of both ranks */
    assert_int_equal(count_direct(fs, &left, &right, DCP_IO_AUTO), 0);
    assert_int_equal(count_direct(fs, &all_of_many, &all_of_many, DCP_IO_AUTO), 0);
    assert_true(count_direct(fs, &left, &right, DCP_IO_RING | DCP_IO_DIRECT) > 0);
    simulated_free(fs);
}

/* While the tensors of one batch are copied, the next one is under way: alone, each would be a
 * transfer after which nothing is. */
static void the_next_neighbours_are_under_way(void **state)
{
    struct simulated_file_system *fs = simulated_new();
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    const dcp_load_options how = {
        .storage = &storage, .thread_count = 1, .io = DCP_IO_RING | DCP_IO_DIRECT};
    dcp_figures figures;
    (void)state;
    assert_true(
        parts_save("c", &all_of_many, &(dcp_save_options){.storage = simulated_storage(fs)}));
    assert_int_equal(parts_load("c", &all_of_many, &how, &figures), DCP_OK);
    long batches = transfer_watch_count(true).count;
    assert_in_range(batches, 8, 10);
    assert_int_equal(transfer_watch_idle(), 1);
    simulated_free(fs);
}

/* Also while the next window is under way. */
static void a_failing_disk_is_an_error(void **state)
{
    struct simulated_file_system *fs = simulated_new();
    const dcp_load_options how = {
        .storage = simulated_storage(fs), .thread_count = 1, .io = DCP_IO_RING | DCP_IO_DIRECT};
    dcp_figures figures;
    bool reached = true;
    int failed = 0;
    (void)state;
    assert_true(
        parts_save("c", &all_of_many, &(dcp_save_options){.storage = simulated_storage(fs)}));
    for (long n = 1; reached; n += TRIAL_STEP + n / 8) {
        simulated_set_fault(fs, &(struct simulated_fault){
                                    .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO});
        dcp_status status = parts_load("c", &all_of_many, &how, &figures);
        reached = simulated_fault_reached(fs);
        assert_true(status == DCP_OK || reached);
        failed += status != DCP_OK;
        assert_int_equal(simulated_open_descriptors(fs), 0);
    }
    assert_true(failed > 0);
    simulated_free(fs);
}

/* As if each part had been read alone: what is damaged besides them hinders none, unless only the
 * record has a checksum. */
static void try_damage(const char *path, const dcp_load_options *how, bool bare)
{
    uint64_t wanted = parts_find(path, FILE_NAME, &all, 150, 30),
             other = parts_find(path, FILE_NAME, &all, 150, ROWS - 1);
    dcp_figures figures;
    scratch_flip(path, FILE_NAME, wanted, 1);
    assert_int_equal(parts_load(path, &rows, how, &figures), DCP_ERR_CHECKSUM);
    assert_non_null(strstr(dcp_error_message(), "t150 ("));
    scratch_flip(path, FILE_NAME, wanted, 1);
    scratch_flip(path, FILE_NAME, other, 1);
    assert_int_equal(parts_load(path, &rows, how, &figures), bare ? DCP_ERR_CHECKSUM : DCP_OK);
    assert_int_equal(parts_load(path, &columns, how, &figures), DCP_ERR_CHECKSUM);
    assert_non_null(strstr(dcp_error_message(), "t150 ("));
    scratch_flip(path, FILE_NAME, other, 1);
}

static void damage_fails_those_that_have_it(void **state)
{
    static const dcp_load_options ways[] = {{.thread_count = 1},
                                            {.thread_count = 1, .io = DCP_IO_POOL | DCP_IO_DIRECT}};
    dcp_figures figures;
    save_plain(*state);
    for (int bare = 0; bare < 2; bare++) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            dcp_status status = parts_load(*state, &all, &ways[i], &figures);
            if (status == DCP_ERR_UNSUPPORTED)
                print_message("not tested: %s\n", dcp_error_message());
            else
                try_damage(*state, &ways[i], bare);
        }
        if (!bare)
            scratch_drop_footer(*state, FILE_NAME);
    }
}

/* What is only read ahead may do without. */
static void missing_memory_is_an_error(void **state)
{
    const dcp_load_options how = {.thread_count = 2};
    dcp_figures figures;
    bool reached = true;
    int failed = 0;
    save_plain(*state);
    for (long n = 1; reached; n += 1 + n / 3) {
        failing_allocator_install(n, false);
        dcp_status status = parts_load(*state, &columns, &how, &figures);
        reached = failing_allocator_reached();
        failing_allocator_remove();
        if (status != DCP_ERR_ARGUMENT && status != DCP_OK) /* the state lacks a tensor */
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
        failed += status == DCP_ERR_NO_MEMORY;
        assert_true(reached || status == DCP_OK);
    }
    assert_true(failed > 0);
}

#define small_test(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        small_test(they_are_right_however_they_are_stored),
        small_test(they_share_reads_with_their_neighbours),
        small_test(little_of_each_is_read_alone),
        cmocka_unit_test(what_is_read_twice_comes_into_the_page_cache),
        cmocka_unit_test(the_next_neighbours_are_under_way),
        cmocka_unit_test(a_failing_disk_is_an_error),
        small_test(damage_fails_those_that_have_it),
        small_test(missing_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
