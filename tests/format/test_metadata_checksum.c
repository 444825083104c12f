/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fixture.h"
#include "format/metadata/metadata_checksum.h"
#include "format/metadata/metadata_codec.h"

enum { CHECKSUM_SIZE = 16 };

static dcp_status decode(const void *bytes, size_t size)
{
    struct metadata metadata;
    dcp_status status = metadata_decode(bytes, size, &metadata);
    if (status == DCP_OK)
        metadata_free(&metadata);
    return status;
}

/* What PyTorch wrote, which has no checksum, as this library writes it. */
static void make(struct buffer *out)
{
    struct metadata metadata;
    struct bytes bytes = fixture_file("nesting/ckpt/.metadata");
    assert_int_equal(metadata_decode(bytes.data, bytes.size, &metadata), DCP_OK);
    bytes_free(&bytes);
    buffer_init(out, 0);
    assert_int_equal(metadata_encode(&metadata, out), DCP_OK);
    metadata_free(&metadata);
}

static void finds_every_flipped_bit(void **state)
{
    (void)state;
    struct buffer file;
    make(&file);
    assert_int_equal(decode(file.data, file.size), DCP_OK);
    for (size_t bit = 0; bit < 8 * file.size; bit++) {
        file.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        dcp_status status = decode(file.data, file.size);
        bool in_magic = bit / 8 >= file.size - CHECKSUM_SIZE && bit / 8 < file.size - 8;
        assert_int_equal(status, in_magic ? DCP_ERR_FORMAT : DCP_ERR_CHECKSUM);
        assert_non_null(strstr(dcp_error_message(), "the file is damaged"));
        file.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    buffer_free(&file);
}

static void reads_pickles_without_a_checksum(void **state)
{
    (void)state;
    struct buffer file;
    make(&file);
    size_t pickle = file.size - CHECKSUM_SIZE;
    for (size_t size = 0; size < file.size; size++)
        assert_int_equal(decode(file.data, size) == DCP_OK, size == pickle);
    /* Python does not read what is behind a pickle. */
    file.size = pickle;
    buffer_append(&file, "and something else", 18);
    assert_int_equal(decode(file.data, file.size), DCP_OK);
    buffer_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_flipped_bit),
        cmocka_unit_test(reads_pickles_without_a_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
