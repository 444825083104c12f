/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "failing_allocator.h"
#include "format/footer/footer.h"

enum { BLOCK = 1000, TRAILER = 40, HASHED = 24 };

/* The contents of one file: a tensor of two chunks, a 0-d tensor, an object in a list. */
struct sample {
    struct metadata metadata;
    struct metadata_entry entries[3];
    struct metadata_piece pieces[4];
    dcp_path_part path[4];
    int64_t numbers[10];
    const char *file;
    uint64_t sums[3];
};

static void sample_make(struct sample *sample)
{
    *sample = (struct sample){
        .numbers = {4, 3, 0, 0, 2, 3, 2, 0, 2, 3},
        .path = {{.key = "model"}, {.key = "w.0"}, {.key = "list"}, {.position = 7}},
        .file = "__3_1.distcp",
        .sums = {11, 22, 33},
        .pieces = {{.offsets = sample->numbers + 2,
                    .sizes = sample->numbers + 4,
                    .offset = 0,
                    .length = 1600},
                   {.offsets = sample->numbers + 6,
                    .sizes = sample->numbers + 8,
                    .offset = 1600,
                    .length = 400,
                    .zstd = true},
                   {.offset = 2000, .length = 100},
                   {.offset = 2100, .length = 101}},
        .entries = {{.name = "model.w.0",
                     .path = sample->path,
                     .path_length = 2,
                     .is_tensor = true,
                     .requires_grad = true,
                     .dtype = DCP_BF16,
                     .ndim = 2,
                     .global_shape = sample->numbers,
                     .pieces = sample->pieces,
                     .piece_count = 2},
                    {.name = "model",
                     .path = sample->path,
                     .path_length = 1,
                     .is_tensor = true,
                     .dtype = DCP_F8_E8M0FNU,
                     .pieces = sample->pieces + 2,
                     .piece_count = 1},
                    {.name = "list.7",
                     .path = sample->path + 2,
                     .path_length = 2,
                     .pieces = sample->pieces + 3,
                     .piece_count = 1}},
    };
    metadata_init(&sample->metadata);
    sample->metadata.entries = sample->entries;
    sample->metadata.count = 3;
    sample->metadata.files = &sample->file;
    sample->metadata.file_count = 1;
    sample->metadata.has_paths = true;
}

static dcp_status sample_encode(const struct sample *sample, struct buffer *out)
{
    uint64_t sums[3], page;
    memcpy(sums, sample->sums, sizeof sums);
    footer_seal_sums(sums, 3, &page);
    buffer_init(out, 0);
    buffer_append_zeros(out, 2500);
    buffer_append(out, sums, sizeof sums);
    return footer_encode(out, "f3c88b9a-1f2e-4a55-9d0f-afe173c86fc2", 2500, BLOCK, &page, 1,
                         &sample->metadata);
}

static dcp_status decode(const struct buffer *file, struct footer *footer, bool *found)
{
    return footer_decode(byte_source_memory(file->data, file->size), footer, found);
}

static void assert_same_numbers(int32_t count, const int64_t *a, const int64_t *b)
{
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(a[i], b[i]);
}

static void assert_same_entry(const struct metadata_entry *a, const struct metadata_entry *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->path_length, b->path_length);
    for (size_t i = 0; i < a->path_length; i++) {
        assert_int_equal(a->path[i].key != NULL, b->path[i].key != NULL);
        if (a->path[i].key != NULL)
            assert_string_equal(a->path[i].key, b->path[i].key);
        assert_int_equal(a->path[i].position, b->path[i].position);
    }
    assert_int_equal(a->is_tensor, b->is_tensor);
    assert_int_equal(a->requires_grad, b->requires_grad);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_same_numbers(a->ndim, a->global_shape, b->global_shape);
    assert_int_equal(a->piece_count, b->piece_count);
    for (size_t i = 0; i < a->piece_count; i++) {
        assert_same_numbers(a->ndim, a->pieces[i].offsets, b->pieces[i].offsets);
        assert_same_numbers(a->ndim, a->pieces[i].sizes, b->pieces[i].sizes);
        assert_int_equal(a->pieces[i].offset, b->pieces[i].offset);
        assert_int_equal(a->pieces[i].length, b->pieces[i].length);
        assert_int_equal(a->pieces[i].zstd, b->pieces[i].zstd);
        assert_int_equal(a->pieces[i].encoding, b->pieces[i].encoding);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct sample sample;
    struct buffer file;
    struct footer footer;
    bool found = false;
    sample_make(&sample);
    assert_int_equal(sample_encode(&sample, &file), DCP_OK);
    assert_int_equal(decode(&file, &footer, &found), DCP_OK);
    assert_true(found);
    assert_string_equal(footer.save_id, "f3c88b9a-1f2e-4a55-9d0f-afe173c86fc2");
    assert_string_equal(footer.contents.save_id, footer.save_id);
    assert_int_equal(footer.content_length, 2500);
    assert_int_equal(footer.block_size, BLOCK);
    assert_int_equal(footer.block_count, 3);
    assert_int_equal(footer.page_count, 1);
    assert_int_equal(footer.pages[0], xxh3_64(file.data + 2500, sizeof sample.sums));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(load_u64(file.data + 2500 + 8 * i), sample.sums[i]);
    assert_int_equal(footer.contents.file_count, 1);
    assert_string_equal(footer.contents.files[0], "__3_1.distcp");
    assert_true(footer.contents.has_paths);
    assert_int_equal(footer.contents.count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_same_entry(&sample.entries[i], &footer.contents.entries[i]);
    assert_ptr_equal(metadata_find(&footer.contents, "list.7"), &footer.contents.entries[2]);
    footer_free(&footer);
    buffer_free(&file);
}

static void test_without_paths_or_entries(void **state)
{
    (void)state;
    struct sample sample;
    struct buffer file;
    struct footer footer;
    bool found = false;
    sample_make(&sample);
    sample.metadata.has_paths = false;
    assert_int_equal(sample_encode(&sample, &file), DCP_OK);
    assert_int_equal(decode(&file, &footer, &found), DCP_OK);
    assert_false(footer.contents.has_paths);
    assert_int_equal(footer.contents.entries[0].path_length, 1);
    assert_string_equal(footer.contents.entries[0].path[0].key, "model.w.0");
    footer_free(&footer);
    buffer_free(&file);

    sample.metadata.count = 0;
    buffer_init(&file, 0);
    assert_int_equal(footer_encode(&file, "", 0, BLOCK, NULL, 0, &sample.metadata), DCP_OK);
    assert_int_equal(decode(&file, &footer, &found), DCP_OK);
    assert_true(found);
    assert_int_equal(footer.contents.count, 0);
    assert_int_equal(footer.block_count, 0);
    footer_free(&footer);
    buffer_free(&file);
}

/* Several pages of sums, and a body that does not fit what is read at first. */
static void test_large_footer(void **state)
{
    (void)state;
    enum { BLOCKS = 300 * FOOTER_PAGE_SUMS - 5, SMALL_BLOCK = 10 };
    struct sample sample;
    struct buffer file;
    struct footer footer;
    bool found = false;
    uint64_t *sums = calloc(BLOCKS, sizeof *sums), pages[300];
    assert_non_null(sums);
    for (size_t i = 0; i < BLOCKS; i++)
        sums[i] = i * i;
    footer_seal_sums(sums, BLOCKS, pages);
    sample_make(&sample);
    buffer_init(&file, 0);
    uint64_t content_length = (uint64_t)BLOCKS * SMALL_BLOCK - 7;
    buffer_append_zeros(&file, (size_t)content_length);
    buffer_append(&file, sums, BLOCKS * sizeof *sums);
    assert_int_equal(
        footer_encode(&file, "id", content_length, SMALL_BLOCK, pages, 300, &sample.metadata),
        DCP_OK);
    assert_int_equal(decode(&file, &footer, &found), DCP_OK);
    assert_int_equal(footer.block_count, BLOCKS);
    assert_int_equal(footer.page_count, 300);
    assert_memory_equal(footer.pages, pages, sizeof pages);
    assert_same_entry(&sample.entries[0], &footer.contents.entries[0]);
    footer_free(&footer);
    buffer_free(&file);
    free(sums);
}

static void test_no_footer(void **state)
{
    (void)state;
    static const char zeros[100];
    struct footer footer;
    bool found = true;
    for (size_t size = 0; size < sizeof zeros; size++) {
        assert_int_equal(footer_decode(byte_source_memory(zeros, size), &footer, &found), DCP_OK);
        assert_false(found);
        footer_free(&footer);
    }
}

/* Whatever is cut off or changed, nothing is taken for what was written. */
static void test_cut_and_flipped(void **state)
{
    (void)state;
    struct sample sample;
    struct buffer file;
    struct footer footer;
    bool found = false;
    sample_make(&sample);
    assert_int_equal(sample_encode(&sample, &file), DCP_OK);
    for (size_t cut = 1; cut < file.size; cut++) {
        struct byte_source source = byte_source_memory(file.data, file.size - cut);
        assert_int_equal(footer_decode(source, &footer, &found), DCP_OK);
        assert_false(found);
        source = byte_source_memory(file.data + cut, file.size - cut);
        assert_true(footer_decode(source, &footer, &found) != DCP_OK || !found);
    }
    /* Sums of blocks are looked at when blocks are. */
    for (size_t bit = (2500 + sizeof sample.sums) * 8; bit < file.size * 8; bit++) {
        file.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        dcp_status status = decode(&file, &footer, &found);
        assert_true(status != DCP_OK || !found);
        if (bit / 8 < file.size - TRAILER)
            assert_int_equal(status, DCP_ERR_CHECKSUM);
        file.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    buffer_free(&file);
}

static void seal(struct buffer *file)
{
    size_t hashed = (size_t)load_u64(file->data + file->size - TRAILER + 8) + HASHED;
    size_t offset = file->size - (TRAILER - HASHED) - hashed;
    store_u64(file->data + file->size - (TRAILER - HASHED), xxh3_64(file->data + offset, hashed));
}

/* A footer whose checksum is right is still not believed. */
static void test_sealed_lies(void **state)
{
    (void)state;
    struct sample sample;
    struct buffer file;
    struct footer footer;
    bool found = false;
    sample_make(&sample);
    assert_int_equal(sample_encode(&sample, &file), DCP_OK);
    for (size_t at = 2500 + sizeof sample.sums; at < file.size - TRAILER; at++)
        for (unsigned value = 0; value < 256; value++) {
            unsigned char old = file.data[at];
            file.data[at] = (unsigned char)value;
            seal(&file);
            if (decode(&file, &footer, &found) == DCP_OK)
                footer_free(&footer);
            file.data[at] = old;
        }
    for (uint32_t version = 0; version < 5; version++) {
        store_u32(file.data + file.size - TRAILER + 16, version);
        seal(&file);
        if (version == 2)
            continue;
        assert_int_equal(decode(&file, &footer, &found), DCP_ERR_UNSUPPORTED);
        assert_true(found);
    }
    buffer_free(&file);
}

/* Lengths that do not add up to the file, or would if they were added up carelessly. */
static void test_sealed_lengths(void **state)
{
    (void)state;
    static const uint64_t contents[] = {0, 1, 2499, 2501, 2524, 1 << 20, INT64_MAX, UINT64_MAX};
    static const uint32_t blocks[] = {0, 1, 2, 833, 834, 1250, 2500, UINT32_MAX};
    struct sample sample;
    struct buffer file;
    struct footer footer;
    bool found = false;
    sample_make(&sample);
    assert_int_equal(sample_encode(&sample, &file), DCP_OK);
    unsigned char *trailer = file.data + file.size - TRAILER;
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        store_u64(trailer, contents[i]);
        seal(&file);
        assert_int_equal(decode(&file, &footer, &found), DCP_ERR_FORMAT);
    }
    store_u64(trailer, 2500);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        bool three = blocks[i] >= 834 && blocks[i] < 1250;
        store_u32(trailer + 20, blocks[i]);
        seal(&file);
        assert_int_equal(decode(&file, &footer, &found), three ? DCP_OK : DCP_ERR_FORMAT);
        if (three)
            footer_free(&footer);
    }
    store_u32(trailer + 20, BLOCK);
    uint64_t body = load_u64(trailer + 8);
    for (uint64_t change = 1; change != 0; change <<= 1) {
        store_u64(trailer + 8, body ^ change);
        dcp_status status = decode(&file, &footer, &found);
        assert_true(status == DCP_ERR_FORMAT || status == DCP_ERR_UNSUPPORTED);
    }
    buffer_free(&file);
}

/* A body that begins in front of the file, whose lengths agree by running around 2^64. */
static void test_sealed_around(void **state)
{
    (void)state;
    struct sample sample;
    struct buffer file;
    struct footer footer;
    bool found = false;
    sample_make(&sample);
    assert_int_equal(sample_encode(&sample, &file), DCP_OK);
    unsigned char *trailer = file.data + file.size - TRAILER;
    uint64_t body = file.size - TRAILER + 100, start = UINT64_MAX - 99, content = start;
    for (int i = 0; i < 5; i++)
        content = start - 8 * footer_block_count(content, UINT32_MAX);
    assert_int_equal(start - content, 8 * footer_block_count(content, UINT32_MAX));
    store_u64(trailer, content);
    store_u64(trailer + 8, body);
    store_u32(trailer + 20, UINT32_MAX);
    assert_int_equal(decode(&file, &footer, &found), DCP_ERR_FORMAT);
    buffer_free(&file);
}

static void expect_refused(const struct sample *sample, const char *words)
{
    struct buffer file;
    struct footer footer;
    bool found = false;
    assert_int_equal(sample_encode(sample, &file), DCP_OK);
    dcp_status status = decode(&file, &footer, &found);
    assert_true(status == DCP_ERR_FORMAT || status == DCP_ERR_DUPLICATE);
    if (strstr(dcp_error_message(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, dcp_error_message());
    buffer_free(&file);
}

static void test_impossible_contents(void **state)
{
    (void)state;
    struct sample sample;
    sample_make(&sample);
    sample.pieces[3].length = 401;
    expect_refused(&sample, "not inside its file");
    sample_make(&sample);
    sample.pieces[3].length = UINT64_MAX - 2000;
    expect_refused(&sample, "not inside its file");
    sample_make(&sample);
    sample.numbers[6] = 3;
    expect_refused(&sample, "not inside its tensor");
    sample_make(&sample);
    sample.numbers[0] = -1;
    expect_refused(&sample, "a shape");
    sample_make(&sample);
    sample.numbers[0] = INT64_MAX;
    expect_refused(&sample, "exceeds 2^63 bytes");
    sample_make(&sample);
    sample.entries[1].dtype = DCP_DTYPE_NONE;
    expect_refused(&sample, "unknown dtype");
    sample_make(&sample);
    sample.entries[1].ndim = DCP_MAX_DIMS + 1;
    sample.entries[1].global_shape = (const int64_t[DCP_MAX_DIMS + 1]){0};
    sample.entries[1].piece_count = 0;
    expect_refused(&sample, "too many dimensions");
    sample_make(&sample);
    sample.entries[1].piece_count = 0;
    expect_refused(&sample, "wrong number of pieces");
    sample_make(&sample);
    sample.entries[1].path_length = 0;
    expect_refused(&sample, "has no parts");
    sample_make(&sample);
    sample.path[3].position = -1;
    expect_refused(&sample, "a path");
    sample_make(&sample);
    sample.entries[1].name = "list.7";
    expect_refused(&sample, "list.7");
    sample_make(&sample);
    sample.entries[1].name = "\xff";
    expect_refused(&sample, "UTF-8");
    static const char *const names[] = {"", ".", "..", "a/../b", "/etc/passwd"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        sample_make(&sample);
        sample.file = names[i];
        expect_refused(&sample, names[i]);
    }
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    struct sample sample;
    struct buffer out;
    const struct metadata *metadata = &sample.metadata;
    const uint64_t *pages = sample.sums;
    sample_make(&sample);
    buffer_init(&out, 0);
    assert_int_equal(footer_encode(&out, "id", 512001, BLOCK, pages, 1, metadata),
                     DCP_ERR_ARGUMENT);
    assert_int_equal(footer_encode(&out, "id", 2500, 0, pages, 1, metadata), DCP_ERR_ARGUMENT);
    assert_int_equal(footer_encode(&out, "an id that has one character too many....", 2500, BLOCK,
                                   pages, 1, metadata),
                     DCP_ERR_ARGUMENT);
    sample.metadata.file_count = 2;
    assert_int_equal(footer_encode(&out, "id", 2500, BLOCK, pages, 1, metadata), DCP_ERR_ARGUMENT);
    sample.metadata.file_count = 1;
    sample.pieces[0].encoding = PIECE_RAW;
    assert_int_equal(footer_encode(&out, "id", 2500, BLOCK, pages, 1, metadata), DCP_ERR_ARGUMENT);
    assert_int_equal(out.size, 0);
    buffer_free(&out);
}

/* Encodes and decodes with every allocation failing in turn; returns how many there are. */
static size_t fail_allocations(const struct sample *sample)
{
    for (size_t failed = 0;; failed++) {
        struct buffer file;
        struct footer footer;
        bool found = false;
        failing_allocator_install(failed);
        dcp_status status = sample_encode(sample, &file);
        if (status == DCP_OK)
            status = decode(&file, &footer, &found);
        if (status == DCP_OK)
            footer_free(&footer);
        buffer_free(&file);
        failing_allocator_remove();
        if (status == DCP_OK)
            return failed;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    enum { LONG_NAME = 70000 };
    struct sample sample;
    sample_make(&sample);
    assert_true(fail_allocations(&sample) >= 3);

    /* With a name that makes the footer larger than what is read at first. */
    char *name = malloc(LONG_NAME);
    assert_non_null(name);
    memset(name, 'n', LONG_NAME - 1);
    name[LONG_NAME - 1] = '\0';
    sample.entries[2].name = name;
    sample.metadata.has_paths = false;
    assert_true(fail_allocations(&sample) >= 6);
    free(name);
}

/* Replaces the body by bytes of our own. */
static void expect_body_refused(const void *body, size_t size, uint64_t content_length,
                                const char *words)
{
    struct buffer file;
    struct footer footer;
    bool found = false;
    buffer_init(&file, 0);
    buffer_append_zeros(&file, (size_t)content_length);
    buffer_append_zeros(&file, (size_t)content_length * 8);
    buffer_append(&file, body, size);
    buffer_append_u64(&file, content_length);
    buffer_append_u64(&file, size);
    buffer_append_u32(&file, 2);
    buffer_append_u32(&file, 1);
    buffer_append_u64(&file, 0);
    buffer_append(&file, "\211DCPEND\n", 8);
    seal(&file);
    assert_int_equal(decode(&file, &footer, &found), DCP_ERR_FORMAT);
    if (strstr(dcp_error_message(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, dcp_error_message());
    buffer_free(&file);
}

static void test_impossible_bodies(void **state)
{
    (void)state;
#define REFUSED(words, content_length, body)                                                       \
    expect_body_refused(body, sizeof(body) - 1, content_length, words)
    REFUSED("ends too early", 0, "");
    REFUSED("ends too early", 0, "\100");
    REFUSED("save id", 0, "\50a save id that is longer than any can be.");
    REFUSED("NUL", 0, "\1\0");
    REFUSED("too few checksums", 513, "\0 two are ex");
    REFUSED("ends too early", 0, "\0");
    REFUSED("a count", 0, "\0\1f\0\377\377\377\377\377\377\377\377\177");
    REFUSED("a count", 0, "\0\1f\0\2ABCDEFGHIJ");
    REFUSED("unknown kind", 0, "\0\1f\0\1\1n\377\0\0\0\0\0");
#undef REFUSED
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),          cmocka_unit_test(test_without_paths_or_entries),
        cmocka_unit_test(test_large_footer),        cmocka_unit_test(test_no_footer),
        cmocka_unit_test(test_cut_and_flipped),     cmocka_unit_test(test_sealed_lies),
        cmocka_unit_test(test_sealed_lengths),      cmocka_unit_test(test_sealed_around),
        cmocka_unit_test(test_impossible_contents), cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_impossible_bodies),   cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
