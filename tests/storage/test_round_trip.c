/* SPDX-License-Identifier: BSD-3-Clause */
/* What is written is read, whole and in boxes, in every layout and with every verification. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "fault/failing_allocator.h"
#include "fault/io_ways.h"
#include "format/footer/footer.h"
#include "sample.h"
#include "scratch.h"
#include "storage/file_source.h"
#include "storage/opened.h"
#include "storage/verify/verify.h"

static const dcp_verification verifications[] = {DCP_VERIFY_ALL, DCP_VERIFY_RECORDS,
                                                 DCP_VERIFY_NONE};

static void print_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    (void)context;
    print_message("%s:%llu: %s: %s\n", file, (unsigned long long)offset, name, fault);
}

static void assert_sound(const char *path)
{
    uint64_t faults;
    assert_int_equal(
        storage_verify(dcp_storage_files(), storage_at(path), print_fault, NULL, NULL, &faults),
        DCP_OK);
    assert_int_equal(faults, 0);
}

static void assert_reads(const struct sample *sample, const char *path, int boxes)
{
    for (size_t i = 0; i < 3; i++) {
        dcp_status status = sample_read(sample, dcp_storage_files(), path, verifications[i], boxes);
        if (status != DCP_OK)
            fail_msg("%s", dcp_error_message());
    }
}

static void random_checkpoints_come_back(void **state)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct sample sample;
        sample_make(&sample, &(struct sample_options){.seed = seed,
                                                      .ranks = 1 + (int)(seed % 3),
                                                      .files = 1 + (uint32_t)(seed / 3 % 3),
                                                      .tensors = 44,
                                                      .objects = seed % 4});
        assert_int_equal(sample_save(&sample, dcp_storage_files(), *state,
                                     seed == 1 ? DCP_OVERWRITE_REFUSE : DCP_OVERWRITE_REPLACE,
                                     seed % 2),
                         DCP_OK);
        assert_reads(&sample, *state, 6);
        assert_sound(*state);
        assert_int_equal(
            sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, true),
            DCP_ERR_EXISTS);
        sample_free(&sample);
    }
}

/* More than a block, than the write buffer's pieces, and than a read's piece. */
static void large_tensors_come_back(void **state)
{
    for (uint64_t seed = 20; seed < 26; seed++) {
        struct sample sample;
        sample_make(
            &sample,
            &(struct sample_options){
                .seed = seed, .ranks = 2, .files = 1, .tensors = 3, .objects = 1, .large = true});
        sample.io = io_ways[seed % IO_WAY_COUNT];
        dcp_status status =
            sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REPLACE, true);
        if (status == DCP_ERR_UNSUPPORTED) {
            print_message("not tested: %s\n", dcp_error_message());
            sample_free(&sample);
            continue;
        }
        assert_int_equal(status, DCP_OK);
        assert_reads(&sample, *state, 3);
        assert_sound(*state);
        sample_free(&sample);
    }
}

static void an_empty_checkpoint_comes_back(void **state)
{
    struct sample sample;
    sample_make(&sample, &(struct sample_options){.seed = 1, .ranks = 2, .files = 2});
    assert_int_equal(sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, true),
                     DCP_OK);
    assert_string_equal(
        scratch_list(*state),
        ".metadata __0_0.distcp __0_1.distcp __1_0.distcp __1_1.distcp metadata.json");
    assert_reads(&sample, *state, 0);
    assert_sound(*state);
    sample_free(&sample);
}

/* A file with nothing in it says which save it belongs to. */
static void every_file_ends_in_a_footer(void **state)
{
    struct sample sample;
    struct save_session session;
    sample_make(&sample, &(struct sample_options){.seed = 1, .ranks = 1, .files = 3, .tensors = 2});
    assert_int_equal(
        save_session_begin(&session, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, true, 1800),
        DCP_OK);
    assert_int_equal(sample_write(&sample, &session), DCP_OK);
    size_t pieces = 0;
    for (uint32_t i = 0; i < 3; i++) {
        char name[SHARD_NAME_MAX];
        struct file_source source;
        struct opened opened;
        struct footer footer;
        bool found = false;
        shard_name(name, 0, i, 0);
        char *path = scratch_path(*state, name);
        assert_int_equal(opened_open(&opened, &file_ops_system, path), DCP_OK);
        assert_int_equal(file_source_open(&source, &opened.directory, name), DCP_OK);
        assert_int_equal(footer_decode(source.source, &footer, &found), DCP_OK);
        assert_true(found);
        assert_string_equal(footer.save_id, session.save_id);
        assert_int_equal(footer.contents.file_count, 1);
        assert_string_equal(footer.contents.files[0], name);
        for (size_t e = 0; e < footer.contents.count; e++)
            pieces += footer.contents.entries[e].piece_count;
        footer_free(&footer);
        file_source_close(&source);
        opened_close(&opened);
        free(path);
    }
    assert_int_equal(pieces, sample.item_count);

    /* Others' files stay when a save's own are discarded. */
    scratch_write(*state, "__0_1.distcp", "not ours", 8);
    shard_files_discard(&session, 0, 3);
    assert_string_equal(scratch_list(*state), ".dcp_owner __0_1.distcp");
    save_session_free(&session);
    sample_free(&sample);
}

/* A file that is in the way is neither overwritten nor removed. */
static void files_in_the_way_stay(void **state)
{
    struct sample sample;
    struct save_session session;
    sample_make(&sample, &(struct sample_options){.seed = 1, .ranks = 1, .files = 3, .tensors = 5});
    assert_int_equal(
        save_session_begin(&session, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, true, 1800),
        DCP_OK);
    scratch_write(*state, "__0_2.distcp", "late", 4);
    assert_int_equal(sample_write(&sample, &session), DCP_ERR_EXISTS);
    assert_non_null(strstr(dcp_error_message(), "__0_2.distcp"));
    save_session_free(&session);
    assert_string_equal(scratch_list(*state), "__0_2.distcp");
    sample_free(&sample);
}

/* Where a stream lies is what makes its data lie at a page. */
static void an_order_that_does_not_fit_its_stream_is_refused(void **state)
{
    struct sample sample;
    struct save_session session;
    sample_make(&sample, &(struct sample_options){.seed = 1, .ranks = 1, .files = 1, .tensors = 5});
    assert_int_equal(
        save_session_begin(&session, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, true, 1800),
        DCP_OK);
    sample.items[sample.item_count - 1].order.length += 64;
    assert_int_equal(sample_write(&sample, &session), DCP_ERR_INTERNAL);
    assert_non_null(strstr(dcp_error_message(), "another length than the stream"));
    save_session_free(&session);
    assert_string_equal(scratch_list(*state), "");
    sample_free(&sample);
}

/* Metadata that claims more than its file has takes no memory for it; and ranks that each read a
 * part of a record must have seen the same record. */
static void what_a_file_does_not_hold_is_refused(void **state)
{
    struct sample sample;
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    sample_make(&sample, &(struct sample_options){
                             .seed = 31, .ranks = 1, .files = 1, .tensors = 1, .large = true});
    assert_int_equal(sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, false),
                     DCP_OK);
    assert_int_equal(
        storage_read_metadata(dcp_storage_files(), storage_at(*state), &form, &metadata, &reader),
        DCP_OK);
    const struct metadata_entry *entry = &metadata.entries[0];
    struct metadata_piece piece = entry->pieces[0];
    struct box whole = {entry->ndim, piece.offsets, piece.sizes};
    struct shard_piece *opened;
    piece.length += UINT64_C(1) << 40;
    assert_int_equal(
        shard_piece_open(reader, entry, &piece, whole, false, DCP_VERIFY_NONE, NULL, &opened),
        DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "bytes expected, but the file has"));

    piece = entry->pieces[0];
    struct shard_part_sum sums[] = {{.known = true, .crc = 1, .size = 100, .expected = 7},
                                    {.known = true, .crc = 2, .size = 100, .expected = 8}};
    assert_int_equal(shard_join_sums(reader, entry, &piece, sums, 2), DCP_ERR_CHECKSUM);
    assert_non_null(strstr(dcp_error_message(), "see different files"));
    sums[1] = (struct shard_part_sum){0};
    assert_int_equal(shard_join_sums(reader, entry, &piece, sums, 2), DCP_ERR_CHECKSUM);
    assert_non_null(strstr(dcp_error_message(), "see different files"));
    shard_reader_free(reader);
    metadata_free(&metadata);
    sample_free(&sample);
}

/* More files than are kept open, read out of order and by several threads. */
struct shared_reading {
    const struct sample *sample;
    const struct metadata *metadata;
    struct shard_reader *reader;
};

static dcp_status read_some(void *context, size_t index)
{
    const struct shared_reading *shared = context;
    for (size_t i = 0; i < 100; i++) {
        size_t number = (index * 37 + i * 53) % shared->sample->tensor_count;
        const struct sample_tensor *tensor = &shared->sample->tensors[number];
        const struct metadata_entry *entry = metadata_find(shared->metadata, tensor->name);
        unsigned char *memory = malloc(tensor->bytes + 1);
        int64_t strides[DCP_MAX_DIMS];
        struct box_storage whole = {{0}, {0}};
        memcpy(whole.sizes, tensor->layout.sizes, sizeof whole.sizes);
        struct state_chunk target = layout_target(box_of(entry->ndim, &whole), strides, memory);
        shape_strides(entry->ndim, whole.sizes, strides);
        dcp_status status = DCP_OK;
        for (size_t p = 0; p < entry->piece_count && status == DCP_OK; p++) {
            const struct metadata_piece *piece = &entry->pieces[p];
            status = shard_read_tensor(shared->reader, entry, piece,
                                       (struct box){entry->ndim, piece->offsets, piece->sizes},
                                       entry->dtype, &target, verifications[i % 3]);
        }
        if (status == DCP_OK && memcmp(memory, tensor->dense, tensor->bytes) != 0)
            status = dcp_error_set(DCP_ERR_INTERNAL, "%s differs", tensor->name);
        free(memory);
        if (status != DCP_OK)
            return status;
    }
    return DCP_OK;
}

static void many_files_and_threads_share_a_reader(void **state)
{
    struct sample sample;
    struct metadata metadata;
    struct shard_reader *reader;
    struct shard_read_figures figures;
    enum storage_form form;
    sample_make(&sample,
                &(struct sample_options){.seed = 9, .ranks = 2, .files = 150, .tensors = 300});
    assert_int_equal(sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, false),
                     DCP_OK);
    assert_int_equal(
        storage_read_metadata(dcp_storage_files(), storage_at(*state), &form, &metadata, &reader),
        DCP_OK);
    struct shared_reading shared = {&sample, &metadata, reader};
    if (thread_run(16, 8, read_some, &shared) != DCP_OK)
        fail_msg("%s", dcp_error_message());
    shard_reader_figures(reader, &figures);
    assert_true(figures.bytes_read > 0);
    shard_reader_free(reader);
    metadata_free(&metadata);
    sample_free(&sample);
}

/* A few rows of a large tensor cost little more than their bytes. */
static void partial_reads_are_partial(void **state)
{
    struct sample sample;
    struct metadata metadata;
    struct shard_reader *reader;
    struct shard_read_figures figures;
    enum storage_form form;
    sample_make(&sample, &(struct sample_options){
                             .seed = 31, .ranks = 1, .files = 1, .tensors = 1, .large = true});
    assert_int_equal(sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, false),
                     DCP_OK);
    assert_int_equal(
        storage_read_metadata(dcp_storage_files(), storage_at(*state), &form, &metadata, &reader),
        DCP_OK);
    const struct metadata_entry *entry = &metadata.entries[0];
    const struct metadata_piece *piece = &entry->pieces[0];
    int64_t sizes[] = {2, piece->sizes[1]}, strides[] = {piece->sizes[1], 1};
    struct box rows = {2, piece->offsets, sizes};
    float *memory = calloc((size_t)(2 * piece->sizes[1]), sizeof *memory);
    struct state_chunk target = layout_target(rows, strides, memory);
    assert_int_equal(
        shard_read_tensor(reader, entry, piece, rows, DCP_F32, &target, DCP_VERIFY_ALL), DCP_OK);
    shard_reader_figures(reader, &figures);
    assert_true(figures.bytes_read < (uint64_t)(2 * piece->sizes[1]) * 4 + 32768);
    assert_int_equal(
        shard_read_tensor(reader, entry, piece, rows, DCP_F32, &target, DCP_VERIFY_RECORDS),
        DCP_OK);
    uint64_t narrow = figures.bytes_read;
    shard_reader_figures(reader, &figures);
    assert_true(figures.bytes_read - narrow >= FOOTER_BLOCK_SIZE);

    /* On the way in, converted. */
    double *wide = calloc((size_t)(2 * piece->sizes[1]), sizeof *wide);
    struct state_chunk wide_target = layout_target(rows, strides, wide);
    assert_int_equal(
        shard_read_tensor(reader, entry, piece, rows, DCP_F64, &wide_target, DCP_VERIFY_ALL),
        DCP_OK);
    for (int64_t i = 0; i < 2 * piece->sizes[1]; i++)
        assert_true(wide[i] == (double)memory[i] || memory[i] != memory[i]);

    /* What does not fit together is refused, not written somewhere. */
    struct box_storage outside = {{0, 0}, {2, piece->sizes[1] + 1}};
    assert_int_equal(shard_read_tensor(reader, entry, piece, box_of(2, &outside), DCP_F32, &target,
                                       DCP_VERIFY_ALL),
                     DCP_ERR_INTERNAL);
    free(wide);
    free(memory);
    shard_reader_free(reader);
    metadata_free(&metadata);
    sample_free(&sample);
}

static void missing_memory_is_an_error(void **state)
{
    struct sample sample;
    uint64_t faults;
    sample_make(&sample, &(struct sample_options){
                             .seed = 5, .ranks = 1, .files = 2, .tensors = 4, .objects = 1});
    char *path = scratch_path(*state, "fresh");
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status =
            sample_save(&sample, dcp_storage_files(), path, DCP_OVERWRITE_REPLACE, false);
        if (status == DCP_OK)
            status = sample_read(&sample, dcp_storage_files(), path, verifications[n % 3], 1);
        if (status == DCP_OK)
            status = storage_verify(dcp_storage_files(), storage_at(path), print_fault, NULL, NULL,
                                    &faults);
        bool reached = failing_allocator_reached();
        long left = failing_allocator_remove();
        if (left != 0)
            fail_msg("allocation %ld: %ld blocks leaked: %s", n, left, dcp_error_message());
        if (status == DCP_OK)
            assert_int_equal(faults, 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        /* A sweep that finds no memory is logged, and the save has succeeded. */
        if (status != DCP_OK && status != DCP_ERR_NO_MEMORY)
            fail_msg("allocation %ld: %s: %s", n, dcp_status_string(status), dcp_error_message());
    }
    free(path);
    sample_free(&sample);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_checkpoints_come_back),
        TEST(large_tensors_come_back),
        TEST(an_empty_checkpoint_comes_back),
        TEST(every_file_ends_in_a_footer),
        TEST(files_in_the_way_stay),
        TEST(an_order_that_does_not_fit_its_stream_is_refused),
        TEST(what_a_file_does_not_hold_is_refused),
        TEST(many_files_and_threads_share_a_reader),
        TEST(partial_reads_are_partial),
        TEST(missing_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
