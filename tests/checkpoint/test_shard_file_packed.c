/* SPDX-License-Identifier: BSD-3-Clause */
/* Items of a shard file that are added in one call: the same file as by single calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "dcp/packed.h"
#include "fault/failing_allocator.h"

enum { ROWS = 8, COLUMNS = 16, HALF = ROWS / 2 };

static const char save_id[] = "save-a", stream[] = "bytes of a stream";
static float elements[ROWS * COLUMNS];

struct bytes {
    unsigned char data[4096];
    size_t size;
};

static dcp_status gather(void *context, const void *data, size_t size)
{
    struct bytes *bytes = context;
    assert_true(size <= sizeof bytes->data - bytes->size);
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return DCP_OK;
}

static dcp_tensor rows_of(int64_t first)
{
    return (dcp_tensor){.dtype = DCP_F32,
                        .ndim = 2,
                        .sharded = true,
                        .data = elements + first * COLUMNS,
                        .global_shape = {ROWS, COLUMNS},
                        .offsets = {first, 0},
                        .sizes = {HALF, COLUMNS}};
}

/* Two chunks of one tensor, with a stream between them. */
static dcp_state *make_list(dcp_state *root)
{
    const dcp_tensor first = rows_of(0), second = rows_of(HALF);
    dcp_state *list = dcp_state_list(root, "items");
    dcp_state_string(list, NULL, "w");
    dcp_state_tensor(list, NULL, &first);
    dcp_state_string(list, NULL, "blob");
    dcp_state_bytes(list, NULL, stream, sizeof stream);
    dcp_state_string(list, NULL, "w");
    dcp_state_tensor(list, NULL, &second);
    return list;
}

static void pack(dcp_state *root, const dcp_state *list, struct bytes *bytes)
{
    bytes->size = 0;
    must(dcp_state_pack(list, 0, gather, bytes));
    dcp_state_free(root);
}

static dcp_shard_writer *open_writer(const char *directory, const char *file)
{
    const dcp_shard_writer_options options = {.save_id = save_id, .skip_sync = true};
    dcp_shard_writer *writer;
    must(dcp_shard_writer_open(directory, file, &options, &writer));
    return writer;
}

static void add_one_by_one(dcp_shard_writer *writer)
{
    const dcp_shard_name w = {.name = "w"}, blob = {.name = "blob"};
    const dcp_tensor first = rows_of(0), second = rows_of(HALF);
    must(dcp_shard_writer_add_tensor(writer, &w, &first));
    must(dcp_shard_writer_add_stream(writer, &blob, stream, sizeof stream));
    must(dcp_shard_writer_add_tensor(writer, &w, &second));
}

static void test_file_is_the_same(void **state)
{
    const char *directory = path_in(state, "c");
    struct bytes bytes;
    uint64_t places[6];
    dcp_state *root = dcp_state_new();
    dcp_shard_writer *single = open_writer(directory, "__0_0.distcp");
    dcp_shard_writer *packed = open_writer(directory, "__0_1.distcp");
    for (int i = 0; i < ROWS * COLUMNS; i++)
        elements[i] = (float)i;
    add_one_by_one(single);
    pack(root, make_list(root), &bytes);
    must(dcp_shard_writer_add_packed(packed, bytes.data, bytes.size));
    memset(bytes.data, 0xff, sizeof bytes.data); /* the description is not kept */
    assert_int_equal(dcp_shard_writer_count(packed), 3);
    must_fail(dcp_shard_writer_locations(packed, places, 3), DCP_ERR_STATE, "sealed");
    must(dcp_shard_writer_seal(single));
    must(dcp_shard_writer_seal(packed));
    must(dcp_shard_writer_locations(packed, places, 3));
    must_fail(dcp_shard_writer_locations(packed, places, 2), DCP_ERR_ARGUMENT, "3 items");
    for (size_t i = 0; i < 3; i++) {
        dcp_storage_location location;
        must(dcp_shard_writer_location(single, i, &location));
        assert_int_equal(places[2 * i], location.offset);
        assert_int_equal(places[2 * i + 1], location.length);
    }
    assert_int_equal(dcp_shard_writer_file_size(packed), dcp_shard_writer_file_size(single));
    dcp_shard_writer_free(single);
    dcp_shard_writer_free(packed);
}

static void must_refuse(dcp_shard_writer *writer, const struct bytes *bytes, dcp_status status,
                        const char *text)
{
    must_fail(dcp_shard_writer_add_packed(writer, bytes->data, bytes->size), status, text);
    assert_int_equal(dcp_shard_writer_count(writer), 0);
}

static void test_refused_as_a_whole(void **state)
{
    dcp_shard_writer *writer = open_writer(path_in(state, "c"), "__0_0.distcp");
    struct bytes bytes;
    dcp_state *root = dcp_state_new(), *list = make_list(root);
    dcp_state_string(list, NULL, "alone");
    pack(root, list, &bytes);
    must_refuse(writer, &bytes, DCP_ERR_FORMAT, "names and items");
    bytes.size -= 3;
    must_refuse(writer, &bytes, DCP_ERR_FORMAT, "larger than what follows");
    root = dcp_state_new(), list = make_list(root);
    dcp_state_text(list, NULL, "a\0b", 3);
    dcp_state_bytes(list, NULL, stream, sizeof stream);
    pack(root, list, &bytes);
    must_refuse(writer, &bytes, DCP_ERR_UNSUPPORTED, "NUL");
    root = dcp_state_new(), list = make_list(root);
    dcp_state_string(list, NULL, "number");
    dcp_state_int(list, NULL, 7);
    pack(root, list, &bytes);
    assert_int_not_equal(dcp_shard_writer_add_packed(writer, bytes.data, bytes.size), DCP_OK);
    root = dcp_state_new(), list = make_list(root);
    const dcp_tensor first = rows_of(0), second = rows_of(HALF);
    dcp_state_string(list, NULL, "two chunks");
    dcp_state_add_chunk(dcp_state_tensor(list, NULL, &first), &second);
    pack(root, list, &bytes);
    must_refuse(writer, &bytes, DCP_ERR_ARGUMENT, "\"two chunks\": expected one chunk, found 2");
    add_one_by_one(writer);
    must(dcp_shard_writer_seal(writer));
    must_fail(dcp_shard_writer_add_packed(writer, bytes.data, bytes.size), DCP_ERR_STATE, "sealed");
    dcp_shard_writer_free(writer);
}

static void test_no_memory(void **state)
{
    const char *directory = path_in(state, "c");
    struct bytes bytes;
    dcp_state *root = dcp_state_new();
    pack(root, make_list(root), &bytes);
    for (long n = 1;; n++) {
        dcp_shard_writer *writer = open_writer(directory, "__0_0.distcp");
        failing_allocator_install(n, false);
        dcp_status status = dcp_shard_writer_add_packed(writer, bytes.data, bytes.size);
        bool reached = failing_allocator_reached();
        failing_allocator_remove();
        assert_int_equal(dcp_shard_writer_count(writer), status == DCP_OK ? 3 : 0);
        assert_true(status == DCP_OK || (reached && status == DCP_ERR_NO_MEMORY));
        dcp_shard_writer_free(writer);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file_is_the_same, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_refused_as_a_whole, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, directory_setup, directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
