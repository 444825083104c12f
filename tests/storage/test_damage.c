/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that were damaged, lost, cut or exchanged after they were written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/memory_account.h"
#include "format/footer/footer.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/metadata_trailer.h"
#include "sample.h"
#include "scratch.h"
#include "storage/file_source.h"
#include "storage/opened.h"
#include "storage/verify/verify.h"

#define SHARD "__0_0.distcp"

/* One large tensor, a small one and an object in one file. */
static void save_one(struct sample *sample, const char *path, uint64_t seed)
{
    sample_make(
        sample,
        &(struct sample_options){
            .seed = seed, .ranks = 1, .files = 1, .tensors = 4, .objects = 1, .large = true});
    assert_int_equal(sample_save(sample, dcp_storage_files(), path, DCP_OVERWRITE_REPLACE, false),
                     DCP_OK);
}

struct faults {
    uint64_t count;
    char file[64];
    uint64_t offset;
    char name[64];
    char text[1024];
};

static void take_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    struct faults *faults = context;
    faults->count++;
    faults->offset = offset;
    snprintf(faults->file, sizeof faults->file, "%s", file);
    if (*name || faults->count == 1)
        snprintf(faults->name, sizeof faults->name, "%s", name);
    snprintf(faults->text, sizeof faults->text, "%s", fault);
}

static struct faults verify(const char *path)
{
    struct faults faults = {0};
    uint64_t count;
    assert_int_equal(
        storage_verify(dcp_storage_files(), storage_at(path), take_fault, &faults, NULL, &count),
        DCP_OK);
    assert_int_equal(count, faults.count);
    return faults;
}

static dcp_status read_with(const struct sample *sample, const char *path,
                            dcp_verification verification)
{
    return sample_read(sample, dcp_storage_files(), path, verification, 0);
}

static void assert_says(const char *part)
{
    if (!strstr(dcp_error_message(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, dcp_error_message());
}

static const struct sample_item *item_of(const struct sample *sample, const char *name)
{
    for (size_t i = 0; i < sample->item_count; i++) {
        if (strcmp(sample->items[i].item.name, name) == 0)
            return &sample->items[i];
    }
    fail_msg("no item %s", name);
    return NULL;
}

/* More than a thousand single bits over the whole file: each is noticed by the verification, and no
 * read gives other values than were written without saying so, unless it was told not to look. */
static void flipped_bits_are_found(void **state)
{
    struct sample sample;
    sample_make(&sample, &(struct sample_options){
                             .seed = 3, .ranks = 1, .files = 1, .tensors = 6, .objects = 1});
    assert_int_equal(sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, false),
                     DCP_OK);
    size_t size;
    free(scratch_read(*state, SHARD, &size));
    for (uint64_t at = 0; at < size; at += 1 + size / 1500) {
        unsigned char mask = (unsigned char)(1 << at % 8);
        scratch_flip(*state, SHARD, at, mask);
        struct faults faults = verify(*state);
        if (faults.count == 0)
            fail_msg("bit flipped at %llu of %zu was not noticed", (unsigned long long)at, size);
        /* Differences fail inside; everything else may be an error or fine. */
        read_with(&sample, *state, DCP_VERIFY_ALL);
        assert_int_not_equal(read_with(&sample, *state, DCP_VERIFY_RECORDS), DCP_ERR_INTERNAL);
        scratch_flip(*state, SHARD, at, mask);
    }
    assert_int_equal(verify(*state).count, 0);
    sample_free(&sample);
}

static void a_mismatch_names_file_offset_name_and_sums(void **state)
{
    struct sample sample;
    save_one(&sample, *state, 7);
    const struct sample_item *item = item_of(&sample, "tensor.0");
    uint64_t at = item->order.offset + item->order.data_offset + 5;
    scratch_flip(*state, SHARD, at, 0x10);
    assert_int_equal(read_with(&sample, *state, DCP_VERIFY_ALL), DCP_ERR_CHECKSUM);
    assert_says("tensor.0");
    assert_says(SHARD);
    assert_says("expected");
    assert_int_equal(read_with(&sample, *state, DCP_VERIFY_RECORDS), DCP_ERR_CHECKSUM);
    assert_says("XXH3");
    struct faults faults = verify(*state);
    assert_true(faults.count >= 2); /* the block and the record */
    assert_string_equal(faults.file, SHARD);
    assert_string_equal(faults.name, "tensor.0");
    sample_free(&sample);
}

static dcp_status read_rows(struct shard_reader *reader, const struct metadata_entry *entry,
                            const struct metadata_piece *piece, int64_t first, int64_t count,
                            dcp_verification verification)
{
    int64_t row = piece->sizes[1], strides[] = {row, 1};
    float *memory = calloc((size_t)(count * row), sizeof *memory);
    struct box_storage rows = {{piece->offsets[0] + first, piece->offsets[1]}, {count, row}};
    struct box box = box_of(2, &rows);
    struct state_chunk target = layout_target(box, strides, memory);
    dcp_status status =
        shard_read_tensor(reader, entry, piece, box, DCP_F32, &target, verification);
    free(memory);
    return status;
}

/* A partial read notices what lies in the blocks that it takes, and nothing else. */
static void partial_reads_are_checked_by_block(void **state)
{
    struct sample sample;
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    save_one(&sample, *state, 7);
    const struct sample_item *item = item_of(&sample, "tensor.0");
    uint64_t data = item->order.offset + item->order.data_offset;
    uint64_t row = (uint64_t)item->box.sizes[1] * 4, flipped = data + row * 20 + 3;
    scratch_flip(*state, SHARD, flipped, 1);
    assert_int_equal(
        storage_read_metadata(dcp_storage_files(), storage_at(*state), &form, &metadata, &reader),
        DCP_OK);
    const struct metadata_entry *entry = metadata_find(&metadata, "tensor.0");
    const struct metadata_piece *piece = NULL;
    for (size_t i = 0; i < entry->piece_count; i++) {
        if (entry->pieces[i].offset == item->order.offset)
            piece = &entry->pieces[i];
    }
    assert_non_null(piece);
    for (int64_t first = 0; first < piece->sizes[0]; first++) {
        uint64_t start = (data + row * (uint64_t)first) / 4096,
                 end = (data + row * (uint64_t)(first + 1) - 1) / 4096, block = flipped / 4096;
        assert_int_equal(read_rows(reader, entry, piece, first, 1, DCP_VERIFY_ALL),
                         block >= start && block <= end ? DCP_ERR_CHECKSUM : DCP_OK);
        assert_int_equal(read_rows(reader, entry, piece, first, 1, DCP_VERIFY_NONE), DCP_OK);
    }
    shard_reader_free(reader);
    metadata_free(&metadata);
    sample_free(&sample);
}

static void damaged_footers_matter_only_with_verification(void **state)
{
    struct sample sample;
    size_t size;
    save_one(&sample, *state, 8);
    free(scratch_read(*state, SHARD, &size));
    scratch_flip(*state, SHARD, size - 60, 1);
    assert_int_not_equal(read_with(&sample, *state, DCP_VERIFY_ALL), DCP_OK);
    assert_says(SHARD);
    assert_int_equal(read_with(&sample, *state, DCP_VERIFY_NONE), DCP_OK);
    struct faults faults = verify(*state);
    assert_true(faults.count >= 1);
    assert_string_equal(faults.file, SHARD);
    sample_free(&sample);
}

/* Writes the shard file's footer anew, with blocks of this size. */
static void set_block_size(const char *directory, uint32_t block_size)
{
    struct file_source source;
    struct opened opened;
    struct footer footer;
    struct buffer encoded;
    size_t size;
    bool found = false;
    char *path = scratch_path(directory, SHARD);
    assert_int_equal(opened_open(&opened, &file_ops_system, path), DCP_OK);
    assert_int_equal(file_source_open(&source, &opened.directory, SHARD), DCP_OK);
    assert_int_equal(footer_decode(source.source, &footer, &found), DCP_OK);
    assert_true(found && footer.content_length > 0);
    unsigned char *bytes = scratch_read(directory, SHARD, &size);
    size_t length = (size_t)footer.content_length;
    size_t count = (size_t)footer_block_count(length, block_size);
    size_t page_count = (size_t)footer_page_count(count);
    uint64_t *sums = calloc(count, sizeof *sums), *pages = calloc(page_count, sizeof *pages);
    assert_true(sums && pages);
    for (size_t i = 0; i < count; i++) {
        size_t start = i * block_size, left = length - start;
        sums[i] = xxh3_64(bytes + start, left < block_size ? left : block_size);
    }
    footer_seal_sums(sums, count, pages);
    buffer_init(&encoded, 0);
    buffer_append(&encoded, bytes, length);
    buffer_append(&encoded, sums, count * sizeof *sums);
    assert_int_equal(footer_encode(&encoded, footer.save_id, length, block_size, pages, page_count,
                                   &footer.contents),
                     DCP_OK);
    scratch_write(directory, SHARD, encoded.data, encoded.size);
    buffer_free(&encoded);
    free(sums);
    free(pages);
    free(bytes);
    footer_free(&footer);
    file_source_close(&source);
    opened_close(&opened);
    free(path);
}

/* A lie about the size of blocks is damage, and takes no memory that the file does not. */
static void the_size_of_blocks_is_bounded(void **state)
{
    static const uint32_t sizes[] = {512, 4096, 65536, 1, 256, 1000, 131072, 64 << 20, UINT32_MAX};
    struct sample sample;
    save_one(&sample, *state, 18);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct memory_account *account = memory_account_open(48 << 20);
        bool lie = i > 2;
        char words[64];
        assert_non_null(account);
        set_block_size(*state, sizes[i]);
        struct memory_account *before = memory_account_enter(account);
        assert_int_equal(read_with(&sample, *state, DCP_VERIFY_ALL), lie ? DCP_ERR_FORMAT : DCP_OK);
        snprintf(words, sizeof words, "blocks of %u bytes", sizes[i]);
        if (lie)
            assert_says(words);
        assert_int_equal(verify(*state).count, lie);
        memory_account_enter(before);
        memory_account_close(account);
    }
    sample_free(&sample);
}

static void a_missing_file_is_named(void **state)
{
    struct sample sample;
    save_one(&sample, *state, 9);
    scratch_remove(*state, SHARD);
    assert_int_equal(read_with(&sample, *state, DCP_VERIFY_ALL), DCP_ERR_NOT_FOUND);
    assert_says(SHARD);
    assert_says("tensor.0");
    struct faults faults = verify(*state);
    assert_int_equal(faults.count, 1);
    assert_string_equal(faults.file, SHARD);
    sample_free(&sample);
}

/* The check goes on after a fault: every one has a line. */
static void every_fault_is_reported(void **state)
{
    struct sample sample;
    sample_make(&sample, &(struct sample_options){
                             .seed = 17, .ranks = 3, .files = 1, .tensors = 40, .objects = 3});
    assert_int_equal(sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, false),
                     DCP_OK);
    uint64_t flipped = 0;
    for (size_t i = 0; i < sample.item_count; i++) {
        const struct sample_item *item = &sample.items[i];
        if (item->rank == 2 || item->order.length < 100)
            continue;
        char name[SHARD_NAME_MAX];
        shard_name(name, item->rank, 0, 0);
        /* In the pickle, which every stream has. */
        scratch_flip(*state, name, item->order.offset + 70, 0x55);
        flipped++;
    }
    scratch_remove(*state, "__2_0.distcp");
    /* One for each item, for the blocks of both files, and for the file that is gone. */
    assert_true(verify(*state).count >= flipped + 2 + 1);
    sample_free(&sample);
}

static void cut_files_are_errors(void **state)
{
    struct sample sample;
    size_t size;
    save_one(&sample, *state, 10);
    unsigned char *bytes = scratch_read(*state, SHARD, &size);
    for (size_t cut = 0; cut < size; cut += 1 + size / 50) {
        scratch_write(*state, SHARD, bytes, cut);
        assert_int_not_equal(read_with(&sample, *state, DCP_VERIFY_ALL), DCP_OK);
        assert_says(SHARD);
        assert_true(verify(*state).count > 0);
    }
    scratch_write(*state, SHARD, bytes, size - 1);
    assert_true(verify(*state).count > 0);
    free(bytes);
    sample_free(&sample);
}

/* Cut exactly where the footer begins, a file looks as PyTorch's do, but beside ours, and in a save
 * whose id says that all files have one. */
static void a_file_without_the_footer_that_others_have_is_a_fault(void **state)
{
    struct sample sample;
    uint64_t end = 0;
    size_t size;
    sample_make(&sample,
                &(struct sample_options){.seed = 16, .ranks = 2, .files = 1, .tensors = 20});
    assert_int_equal(sample_save(&sample, dcp_storage_files(), *state, DCP_OVERWRITE_REFUSE, false),
                     DCP_OK);
    for (size_t i = 0; i < sample.item_count; i++) {
        if (sample.items[i].rank == 0)
            end = sample.items[i].order.offset + sample.items[i].order.length;
    }
    unsigned char *bytes = scratch_read(*state, SHARD, &size);
    scratch_write(*state, SHARD, bytes, end);
    assert_int_equal(read_with(&sample, *state, DCP_VERIFY_ALL), DCP_ERR_FORMAT);
    assert_says(SHARD ": no footer");
    assert_int_equal(read_with(&sample, *state, DCP_VERIFY_NONE), DCP_OK);
    struct faults faults = verify(*state);
    assert_int_equal(faults.count, 1);
    assert_string_equal(faults.file, SHARD);
    free(bytes);
    sample_free(&sample);
}

/* Nor does a flipped bit anywhere in a footer have the file pass for one without. */
static void no_bit_of_a_footer_switches_it_off(void **state)
{
    struct sample sample;
    size_t size;
    save_one(&sample, *state, 21);
    free(scratch_read(*state, SHARD, &size));
    for (size_t bit = (size - 40) * 8; bit < size * 8; bit++) {
        scratch_flip(*state, SHARD, bit / 8, (unsigned char)(1u << bit % 8));
        assert_int_not_equal(read_with(&sample, *state, DCP_VERIFY_ALL), DCP_OK);
        scratch_flip(*state, SHARD, bit / 8, (unsigned char)(1u << bit % 8));
    }
    assert_int_equal(read_with(&sample, *state, DCP_VERIFY_ALL), DCP_OK);
    sample_free(&sample);
}

/* The same rank's file of another save of the same state fits in every way but one. */
static void a_shard_of_another_save_is_foreign(void **state)
{
    struct sample sample;
    char *other = scratch_path(*state, "other"), *mine = scratch_path(*state, "mine");
    save_one(&sample, other, 11);
    sample_free(&sample);
    save_one(&sample, mine, 11);
    size_t size;
    unsigned char *bytes = scratch_read(other, SHARD, &size);
    scratch_write(mine, SHARD, bytes, size);
    assert_int_equal(read_with(&sample, mine, DCP_VERIFY_ALL), DCP_ERR_FOREIGN);
    assert_says(SHARD);
    assert_int_equal(read_with(&sample, mine, DCP_VERIFY_NONE), DCP_ERR_FOREIGN);
    struct faults faults = verify(mine);
    assert_int_equal(faults.count, 1);
    assert_non_null(strstr(faults.text, "save"));
    free(bytes);
    free(other);
    free(mine);
    sample_free(&sample);
}

static void what_is_no_file_is_refused(void **state)
{
    struct sample sample;
    char *path = scratch_path(*state, "c"), *shard = scratch_path(path, SHARD);
    char *outside = scratch_path(*state, "outside");
    save_one(&sample, path, 12);
    assert_int_equal(rename(shard, outside), 0);
    assert_int_equal(mkdir(shard, 0777), 0);
    assert_int_equal(read_with(&sample, path, DCP_VERIFY_ALL), DCP_ERR_FORMAT);
    assert_int_equal(verify(path).count, 1);
    assert_int_equal(rmdir(shard), 0);
    assert_int_equal(mkfifo(shard, 0666), 0);
    assert_int_equal(read_with(&sample, path, DCP_VERIFY_ALL), DCP_ERR_FORMAT);
    assert_int_equal(verify(path).count, 1);
    assert_int_equal(unlink(shard), 0);
    assert_int_equal(symlink(outside, shard), 0);
    assert_int_not_equal(read_with(&sample, path, DCP_VERIFY_ALL), DCP_OK);
    assert_int_equal(verify(path).count, 1);
    free(outside);
    free(shard);
    free(path);
    sample_free(&sample);
}

static void what_was_looked_for_is_said(void **state)
{
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    uint64_t faults;
    char *path = scratch_path(*state, "nowhere");
    assert_int_equal(
        storage_read_metadata(dcp_storage_files(), storage_at(path), &form, &metadata, &reader),
        DCP_ERR_NOT_FOUND);
    assert_null(reader);
    assert_says("nowhere");
    assert_int_equal(
        storage_verify(dcp_storage_files(), storage_at(path), NULL, NULL, NULL, &faults),
        DCP_ERR_NOT_FOUND);
    assert_int_equal(
        storage_read_metadata(dcp_storage_files(), storage_at(*state), &form, &metadata, &reader),
        DCP_ERR_NOT_FOUND);
    assert_says(".metadata");
    assert_says("*.safetensors");
    assert_int_equal(
        storage_verify(dcp_storage_files(), storage_at(*state), NULL, NULL, NULL, &faults),
        DCP_ERR_NOT_FOUND);

    struct sample sample;
    save_one(&sample, *state, 13);
    scratch_remove(*state, ".metadata");
    assert_int_equal(
        storage_read_metadata(dcp_storage_files(), storage_at(*state), &form, &metadata, &reader),
        DCP_ERR_NOT_FOUND);
    assert_says("interrupted");
    assert_int_equal(verify(*state).count, 1);
    scratch_flip(*state, SHARD, 100, 1);
    assert_int_equal(verify(*state).count, 2);
    sample_free(&sample);
    free(path);
}

static void unreadable_metadata_is_one_fault(void **state)
{
    struct sample sample;
    save_one(&sample, *state, 14);
    scratch_write(*state, ".metadata", "not a pickle", 12);
    struct faults faults = verify(*state);
    assert_int_equal(faults.count, 1);
    assert_string_equal(faults.file, ".metadata");
    scratch_flip(*state, SHARD, 100, 1);
    assert_int_equal(verify(*state).count, 2);
    sample_free(&sample);
}

/* Metadata that leaves out what the file says it holds. */
static void footers_are_held_against_the_metadata(void **state)
{
    struct sample sample;
    struct save_session session = {.path = *state};
    struct metadata metadata;
    struct buffer encoded;
    save_one(&sample, *state, 15);
    sample_metadata(&sample, &session, &metadata);
    metadata.count--;
    buffer_init(&encoded, 0);
    assert_int_equal(metadata_encode(&metadata, &encoded), DCP_OK);
    scratch_write(*state, ".metadata", encoded.data, encoded.size);
    struct faults faults = verify(*state);
    assert_int_equal(faults.count, 2);
    assert_string_equal(faults.name, "object.0");
    buffer_free(&encoded);
    metadata_free(&metadata);
    sample_free(&sample);
}

/* A pickle, which PyTorch reads, and behind it the compact form of what the files really hold. */
static void forms_that_differ_are_a_fault(void **state)
{
    struct sample sample;
    struct save_session session = {.path = *state};
    struct metadata metadata;
    struct metadata_trailer trailer;
    struct buffer encoded;
    save_one(&sample, *state, 16);
    sample_metadata(&sample, &session, &metadata);
    buffer_init(&encoded, 0);
    metadata.entries[0].requires_grad ^= true;
    assert_int_equal(metadata_encode(&metadata, &encoded), DCP_OK);
    assert_int_equal(metadata_trailer_read(encoded.data, encoded.size, &trailer), DCP_OK);
    encoded.size = trailer.pickle_size;
    metadata.entries[0].requires_grad ^= true;
    assert_int_equal(metadata_trailer_append(&metadata, 0, &encoded), DCP_OK);
    scratch_write(*state, ".metadata", encoded.data, encoded.size);
    struct faults faults = verify(*state);
    assert_int_equal(faults.count, 1);
    assert_string_equal(faults.file, ".metadata");
    assert_non_null(strstr(faults.text, "says something else than the compact form"));
    buffer_free(&encoded);
    metadata_free(&metadata);
    sample_free(&sample);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(flipped_bits_are_found),
        TEST(a_mismatch_names_file_offset_name_and_sums),
        TEST(partial_reads_are_checked_by_block),
        TEST(damaged_footers_matter_only_with_verification),
        TEST(the_size_of_blocks_is_bounded),
        TEST(a_missing_file_is_named),
        TEST(every_fault_is_reported),
        TEST(cut_files_are_errors),
        TEST(a_file_without_the_footer_that_others_have_is_a_fault),
        TEST(no_bit_of_a_footer_switches_it_off),
        TEST(a_shard_of_another_save_is_foreign),
        TEST(what_is_no_file_is_refused),
        TEST(what_was_looked_for_is_said),
        TEST(unreadable_metadata_is_one_fault),
        TEST(footers_are_held_against_the_metadata),
        TEST(forms_that_differ_are_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
