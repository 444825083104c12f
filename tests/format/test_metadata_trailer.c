/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/checksum.h"
#include "fixture.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/metadata_trailer.h"

enum { CHECKSUM_SIZE = 16 };

static dcp_status decode(const void *bytes, size_t size)
{
    struct metadata metadata;
    dcp_status status = metadata_decode(bytes, size, &metadata);
    if (status == DCP_OK)
        metadata_free(&metadata);
    return status;
}

/* What PyTorch wrote, which has no trailer. */
static void read_fixture(struct metadata *metadata)
{
    struct bytes bytes = fixture_file("nesting/ckpt/.metadata");
    assert_int_equal(metadata_decode(bytes.data, bytes.size, metadata), DCP_OK);
    assert_int_equal(metadata_compare_forms(bytes.data, bytes.size), DCP_OK);
    bytes_free(&bytes);
}

/* As this library writes it. Returns the size of the pickle. */
static size_t make(struct buffer *out)
{
    struct metadata metadata;
    struct metadata_trailer trailer;
    read_fixture(&metadata);
    buffer_init(out, 0);
    assert_int_equal(metadata_encode(&metadata, out), DCP_OK);
    metadata_free(&metadata);
    assert_int_equal(metadata_trailer_read(out->data, out->size, &trailer), DCP_OK);
    assert_non_null(trailer.compact);
    return trailer.pickle_size;
}

/* As metadata is written that has no compact form. */
static void make_without_compact(struct buffer *out)
{
    out->size = make(out);
    uint64_t sum = xxh3_64(out->data, out->size);
    buffer_append(out, "\211DCPSUM\n", 8);
    buffer_append_u64(out, sum);
}

static void find_every_flipped_bit(struct buffer *file)
{
    assert_int_equal(decode(file->data, file->size), DCP_OK);
    for (size_t bit = 0; bit < 8 * file->size; bit++) {
        file->data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        dcp_status status = decode(file->data, file->size);
        bool in_magic = bit / 8 >= file->size - CHECKSUM_SIZE && bit / 8 < file->size - 8;
        assert_int_equal(status, in_magic ? DCP_ERR_FORMAT : DCP_ERR_CHECKSUM);
        assert_non_null(strstr(dcp_error_message(), "the file is damaged"));
        file->data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    buffer_free(file);
}

static void finds_every_flipped_bit(void **state)
{
    (void)state;
    struct buffer file;
    make(&file);
    find_every_flipped_bit(&file);
    make_without_compact(&file);
    find_every_flipped_bit(&file);
}

static void reads_pickles_without_a_trailer(void **state)
{
    (void)state;
    struct buffer file;
    size_t pickle = make(&file);
    for (size_t size = 0; size < file.size; size++)
        assert_int_equal(decode(file.data, size) == DCP_OK, size == pickle);
    /* Python does not read what is behind a pickle. */
    file.size = pickle;
    buffer_append(&file, "and something else", 18);
    assert_int_equal(decode(file.data, file.size), DCP_OK);
    assert_int_equal(metadata_compare_forms(file.data, file.size), DCP_OK);
    buffer_free(&file);
}

/* The pickle of one metadata with the compact form of another. */
static void join(const struct metadata *compact, struct buffer *out)
{
    out->size = make(out);
    assert_int_equal(metadata_trailer_append(compact, 0, out), DCP_OK);
}

static void both_forms_say_the_same(void **state)
{
    (void)state;
    struct buffer file;
    struct metadata metadata, found;
    read_fixture(&metadata);
    join(&metadata, &file);
    assert_int_equal(metadata_compare_forms(file.data, file.size), DCP_OK);
    buffer_free(&file);

    metadata.entries[0].requires_grad ^= true;
    join(&metadata, &file);
    assert_int_equal(metadata_decode(file.data, file.size, &found), DCP_OK);
    assert_int_equal(found.entries[0].requires_grad, metadata.entries[0].requires_grad);
    metadata_free(&found);
    assert_int_equal(metadata_compare_forms(file.data, file.size), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "says something else than the compact form"));
    buffer_free(&file);
    metadata_free(&metadata);
}

/* What ranks tell each other beyond what a pickle can say. */
static void the_compact_form_says_no_more(void **state)
{
    (void)state;
    struct buffer file;
    struct metadata metadata;
    read_fixture(&metadata);
    uint64_t *sizes =
        arena_allocate_array(&metadata.arena, metadata.file_count, sizeof *metadata.file_sizes);
    assert_non_null(sizes);
    memset(sizes, 0, metadata.file_count * sizeof *sizes);
    metadata.file_sizes = sizes;
    join(&metadata, &file);
    assert_int_equal(decode(file.data, file.size), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "sizes of files"));
    buffer_free(&file);

    size_t object = 0;
    while (metadata.entries[object].is_tensor)
        object++;
    metadata.file_sizes = NULL;
    metadata.entries[object].pieces[0].encoding = PIECE_HELD;
    metadata.entries[object].pieces[0].object = "";
    metadata.entries[object].pieces[0].length = 1;
    join(&metadata, &file);
    assert_int_equal(decode(file.data, file.size), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "is not stored as streams"));
    buffer_free(&file);
    metadata_free(&metadata);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_flipped_bit),
        cmocka_unit_test(reads_pickles_without_a_trailer),
        cmocka_unit_test(both_forms_say_the_same),
        cmocka_unit_test(the_compact_form_says_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
