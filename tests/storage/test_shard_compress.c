/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed shard files: everything comes back, from any number of threads the same bytes, in
 * bounded memory; whatever fails, nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fault/failing_allocator.h"
#include "fault/io_ways.h"
#include "fault/simulated_file_system.h"
#include "format/footer/footer.h"
#include "sample.h"
#include "scratch.h"
#include "storage/file_source.h"
#include "storage/opened.h"
#include "storage/verify/verify.h"

static void print_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    (void)context;
    print_message("%s:%llu: %s: %s\n", file, (unsigned long long)offset, name, fault);
}

static void assert_whole(const struct sample *sample, const dcp_storage *storage, const char *path)
{
    static const dcp_verification verifications[] = {DCP_VERIFY_ALL, DCP_VERIFY_RECORDS,
                                                     DCP_VERIFY_NONE};
    uint64_t faults;
    for (size_t i = 0; i < 3; i++)
        if (sample_read(sample, storage, path, verifications[i], 2) != DCP_OK)
            fail_msg("%s", dcp_error_message());
    assert_int_equal(storage_verify(storage, storage_at(path), print_fault, NULL, NULL, &faults),
                     DCP_OK);
    assert_int_equal(faults, 0);
}

static void random_checkpoints_come_back(void **state)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct sample sample;
        sample_make(&sample, &(struct sample_options){.seed = seed,
                                                      .ranks = 1 + (int)(seed % 3),
                                                      .files = 1 + (uint32_t)(seed / 3 % 3),
                                                      .tensors = 44,
                                                      .objects = seed % 4,
                                                      .large = seed % 4 == 0});
        sample.zstd = true;
        sample.zstd_threads = 1 + (uint32_t)(seed % 5);
        sample.io = io_ways[seed % IO_WAY_COUNT];
        dcp_status status =
            sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REPLACE, seed % 2);
        if (status == DCP_ERR_UNSUPPORTED)
            print_message("not tested: %s\n", dcp_error_message());
        else
            assert_int_equal(status, DCP_OK);
        if (status == DCP_OK)
            assert_whole(&sample, dcp_storage_files(), *state);
        sample_free(&sample);
    }
}

/* Pieces of a footer say that they are compressed, lie one behind the other, and fill the file. */
static void footers_record_it(void **state)
{
    struct sample sample;
    struct file_source source;
    struct opened opened;
    struct footer footer;
    bool found = false;
    sample_make(&sample, &(struct sample_options){
                             .seed = 3, .ranks = 1, .files = 1, .tensors = 20, .objects = 2});
    sample.zstd = true;
    assert_int_equal(sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, true),
                     DCP_OK);
    char *path = scratch_path(*state, "__0_0.distcp");
    assert_int_equal(opened_open(&opened, &file_ops_system, path), DCP_OK);
    assert_int_equal(file_source_open(&source, &opened.directory, opened.name), DCP_OK);
    assert_int_equal(footer_decode(source.source, &footer, &found), DCP_OK);
    uint64_t total = 0;
    for (size_t i = 0; i < footer.contents.count; i++)
        for (size_t p = 0; p < footer.contents.entries[i].piece_count; p++) {
            assert_true(footer.contents.entries[i].pieces[p].zstd);
            total += footer.contents.entries[i].pieces[p].length;
        }
    assert_int_equal(total, footer.content_length);
    footer_free(&footer);
    file_source_close(&source);
    opened_close(&opened);
    free(path);
    sample_free(&sample);
}

/* What one thread writes, without zstd's own for large streams, is different there and nowhere
 * else; from two on it is all the same. */
static void any_number_of_threads_writes_the_same(void **state)
{
    struct sample sample;
    size_t sizes[3] = {0};
    sample_make(&sample,
                &(struct sample_options){
                    .seed = 8, .ranks = 1, .files = 1, .tensors = 30, .objects = 3, .large = true});
    sample.zstd = true;
    struct sample_item *first = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        sample.zstd_threads = 2 + i * 3;
        assert_int_equal(
            sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REPLACE, false),
            DCP_OK);
        assert_whole(&sample, dcp_storage_files(), *state);
        for (size_t n = 0; n < sample.item_count; n++)
            sizes[i] += (size_t)(sample.items[n].stored.offset * (n + 1));
        if (!first) {
            first = malloc(sample.item_count * sizeof *first);
            assert_non_null(first);
            memcpy(first, sample.items, sample.item_count * sizeof *first);
        }
        for (size_t n = 0; n < sample.item_count; n++) {
            assert_int_equal(first[n].stored.offset, sample.items[n].stored.offset);
            assert_int_equal(first[n].stored.length, sample.items[n].stored.length);
        }
    }
    assert_int_equal(sizes[0], sizes[2]);
    free(first);
    sample_free(&sample);
}

/* An allocator that knows how much is taken. */
static atomic_long taken, most_taken;

static void count(long change)
{
    long now = atomic_fetch_add(&taken, change) + change;
    long most = atomic_load(&most_taken);
    while (now > most && !atomic_compare_exchange_weak(&most_taken, &most, now))
        ;
}

static void *counting_allocate(void *context, size_t size)
{
    (void)context;
    void *block = malloc(size);
    count(block ? (long)malloc_usable_size(block) : 0);
    return block;
}

static void *counting_reallocate(void *context, void *block, size_t size)
{
    (void)context;
    long before = block ? (long)malloc_usable_size(block) : 0;
    void *moved = realloc(block, size);
    count(moved ? (long)malloc_usable_size(moved) - before : 0);
    return moved;
}

static void counting_release(void *context, void *block)
{
    (void)context;
    count(block ? -(long)malloc_usable_size(block) : 0);
    free(block);
}

/* A tensor many times as large as what may be taken, of bytes that do not shrink. */
static long peak_of(const char *path, int64_t bytes, uint32_t threads)
{
    static const dcp_allocator counting = {counting_allocate, counting_reallocate, counting_release,
                                           NULL};
    unsigned char *data = malloc((size_t)bytes);
    int64_t offsets[] = {0}, sizes[] = {bytes}, strides[] = {1};
    dcp_path_part part = {.key = "t"};
    struct write_item item = {.name = "t",
                              .path = &part,
                              .path_length = 1,
                              .is_tensor = true,
                              .dtype = DCP_U8,
                              .ndim = 1,
                              .global_shape = sizes,
                              .box = {1, offsets, sizes}};
    struct state_chunk chunk = {
        .offsets = offsets, .sizes = sizes, .strides = strides, .data = data};
    struct shard_source source = {.item = &item, .chunk = &chunk};
    struct write_order order = {.box = item.box, .length = (uint64_t)bytes + 2000};
    struct write_orders orders = {.orders = &order, .count = 1, .file_count = 1};
    struct shard_write_options options = {.thread_count = 1, .zstd = true, .zstd_threads = threads};
    struct write_results results;
    struct shard_write_figures figures;
    struct save_session session;
    uint64_t random = 5;
    assert_non_null(data);
    scratch_fill(&random, data, (size_t)bytes);
    assert_int_equal(
        save_session_begin(&session, dcp_storage_files(), path, DCP_OVERWRITE_REFUSE, false, 1800),
        DCP_OK);
    atomic_store(&taken, 0);
    atomic_store(&most_taken, 0);
    dcp_set_allocator(&counting);
    assert_int_equal(shard_files_write(&session, 0, &orders, &source, &options, &results, &figures),
                     DCP_OK);
    assert_true(results.results[0].length < (uint64_t)bytes + (uint64_t)bytes / 100);
    write_results_free(&results);
    dcp_set_allocator(NULL);
    assert_int_equal(atomic_load(&taken), 0);
    shard_files_discard(&session, 0, 1);
    save_session_free(&session);
    free(data);
    return atomic_load(&most_taken);
}

static void memory_is_bounded(void **state)
{
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        long small = peak_of(*state, (int64_t)24 << 20, threads);
        long large = peak_of(*state, (int64_t)96 << 20, threads);
        print_message("%u threads: %ld KiB for 24 MiB, %ld KiB for 96 MiB\n", (unsigned)threads,
                      small >> 10, large >> 10);
        assert_true(large < ((long)16 << 20) + (long)threads * (12 << 20));
        if (threads == 1)
            assert_true(large < small + (1 << 20));
    }
}

static void missing_memory_is_an_error(void **state)
{
    struct sample sample;
    sample_make(&sample,
                &(struct sample_options){
                    .seed = 5, .ranks = 1, .files = 1, .tensors = 3, .objects = 1, .large = true});
    sample.zstd = true;
    char *path = scratch_path(*state, "fresh");
    for (uint32_t threads = 1; threads <= 2; threads++) {
        sample.zstd_threads = threads;
        for (long n = 1;; n += TRIAL_STEP) {
            failing_allocator_install(n, false);
            dcp_status status =
                sample_save(&sample, dcp_storage_files(), path, DCP_OVERWRITE_REPLACE, false);
            bool reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            if (status == DCP_OK)
                assert_whole(&sample, dcp_storage_files(), path);
            else
                assert_int_equal(status, DCP_ERR_NO_MEMORY);
            if (!reached)
                break;
        }
    }
    free(path);
    sample_free(&sample);
}

/* Operations fail, small streams and large ones being on their way. */
static void failing_operations_leave_nothing(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, EINTR};
    struct sample sample;
    sample_make(&sample,
                &(struct sample_options){
                    .seed = 6, .ranks = 2, .files = 1, .tensors = 6, .objects = 1, .large = true});
    sample.zstd = true;
    sample.zstd_threads = 3;
    for (size_t e = 0; e < 3; e++) {
        bool reached = true;
        for (long n = 1; reached; n += TRIAL_STEP + n / 8) {
            struct simulated_file_system *fs = simulated_new();
            struct simulated_fault fault = {n, SIMULATED_ERROR, errors[e], n % 2 && e < 2};
            simulated_set_fault(fs, &fault);
            dcp_status status =
                sample_save(&sample, simulated_storage(fs), "c", DCP_OVERWRITE_REPLACE, true);
            reached = simulated_fault_reached(fs);
            assert_int_equal(simulated_open_descriptors(fs), 0);
            struct simulated_file_system *after = simulated_copy(fs);
            if (status != DCP_OK)
                status = sample_save(&sample, simulated_storage(after), "c", DCP_OVERWRITE_REPLACE,
                                     true);
            assert_int_equal(status, DCP_OK);
            if (n % 4 == 0 || !reached)
                assert_whole(&sample, simulated_storage(after), "c");
            simulated_free(after);
            simulated_free(fs);
        }
    }
    sample_free(&sample);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_checkpoints_come_back),
        TEST(footers_record_it),
        TEST(any_number_of_threads_writes_the_same),
        TEST(memory_is_bounded),
        TEST(missing_memory_is_an_error),
        TEST(failing_operations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
