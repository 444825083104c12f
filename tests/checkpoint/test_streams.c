/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams as they are stored: read, checked, saved again byte for byte, and made of values. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

struct bytes {
    unsigned char *data;
    size_t size;
};

static dcp_status take(void *context, const void *bytes, size_t size)
{
    struct bytes *all = context;
    all->data = realloc(all->data, all->size + size + 1);
    memcpy(all->data + all->size, bytes, size);
    all->size += size;
    return DCP_OK;
}

static dcp_status refuse(void *context, const void *bytes, size_t size)
{
    (void)bytes;
    (void)size;
    ++*(int *)context;
    return dcp_error_set(DCP_ERR_IO, "the sink is full");
}

static struct bytes stream_of(dcp_checkpoint *checkpoint, const char *name, size_t chunk)
{
    struct bytes stream = {0};
    size_t index;
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_read_stream(checkpoint, index, chunk, take, &stream, NULL));
    return stream;
}

static void assert_same(struct bytes a, struct bytes b)
{
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    free(a.data);
    free(b.data);
}

/* ---- copying checkpoints ---- */

/* Each object of a checkpoint as its stream, and back. */
static void copy_objects(const char *from, const char *to, bool zstd)
{
    dcp_checkpoint *source, *copy;
    dcp_entry entry;
    dcp_save_options options = {.compression = zstd ? DCP_COMPRESSION_ZSTD : DCP_COMPRESSION_NONE};
    must(dcp_checkpoint_open(from, NULL, &source));
    dcp_state *root = dcp_state_new();
    for (size_t i = 0; i < dcp_checkpoint_count(source); i++) {
        must(dcp_checkpoint_entry(source, i, &entry));
        if (entry.is_tensor)
            continue;
        struct bytes stream = {0};
        must(dcp_checkpoint_read_stream(source, i, 0, take, &stream, NULL));
        must(dcp_state_stream(root, entry.name, stream.data, stream.size));
        free(stream.data);
    }
    assert_true(dcp_state_count(root) > 0);
    must(dcp_save(root, to, &options));
    must(dcp_checkpoint_open(to, NULL, &copy));
    for (size_t i = 0; i < dcp_state_count(root); i++) {
        const char *name;
        must(dcp_state_as_text(dcp_state_key_at(root, i), &name, NULL));
        assert_same(stream_of(source, name, 0), stream_of(copy, name, 0));
    }
    dcp_checkpoint_close(copy);
    dcp_checkpoint_close(source);
    dcp_state_free(root);
}

static void test_objects_are_copied(void **state)
{
    static const char *const fixtures[] = {"objects/ckpt", "nesting/ckpt", "pt_objects/ckpt.pt"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        char from[512];
        uint64_t faults;
        snprintf(from, sizeof from, "%s/%s", FIXTURES, fixtures[i]);
        char name[32];
        snprintf(name, sizeof name, "plain%zu", i);
        const char *path = path_in(state, name);
        copy_objects(from, path, false);
        must(dcp_verify(path, NULL, NULL, NULL, &faults));
        assert_int_equal(faults, 0);
#if DCP_HAVE_ZSTD
        snprintf(name, sizeof name, "compressed%zu", i);
        copy_objects(from, path_in(state, name), true);
#endif
    }
}

/* ---- streams of values ---- */

static const float elements[6] = {1, 2, 3, 4, 5, 6};

static dcp_tensor chunk_of(int64_t row)
{
    return (dcp_tensor){.dtype = DCP_F32,
                        .ndim = 2,
                        .global_shape = {2, 3},
                        .sharded = true,
                        .offsets = {row, 0},
                        .sizes = {1, 3},
                        .data = (void *)(elements + 3 * row)};
}

/* A value with all that an object may have in it, and a tensor in two chunks. */
static dcp_state *sample(void)
{
    dcp_state *root = dcp_state_new();
    dcp_state *tuple = dcp_state_tuple(root, "object");
    dcp_state_int(tuple, NULL, -5);
    dcp_state_string(tuple, NULL, "text");
    dcp_state_float(dcp_state_dict(tuple, NULL), "x", 0.1);
    for (int64_t row = 0; row < 2; row++) {
        dcp_tensor chunk = chunk_of(row);
        if (row == 0)
            dcp_state_tensor(root, "tensor", &chunk);
        else
            must(dcp_state_add_chunk(dcp_state_find(root, "tensor"), &chunk));
    }
    return root;
}

static void test_encoded_as_stored(void **state)
{
    dcp_checkpoint *checkpoint;
    struct bytes object = {0};
    dcp_state *root = sample();
    const char *path = path_in(state, "saved");
    for (int zstd = 0; zstd <= DCP_HAVE_ZSTD; zstd++) {
        dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                    .compression =
                                        zstd ? DCP_COMPRESSION_ZSTD : DCP_COMPRESSION_NONE};
        must(dcp_save(root, path, &options));
        must(dcp_checkpoint_open(path, NULL, &checkpoint));
        object = (struct bytes){0};
        must(dcp_object_encode(dcp_state_find(root, "object"), take, &object));
        assert_same(object, stream_of(checkpoint, "object", 0));
        for (int64_t row = 0; row < 2; row++) {
            struct bytes encoded = {0};
            dcp_tensor chunk = chunk_of(row);
            must(dcp_tensor_encode(&chunk, take, &encoded));
            assert_same(encoded, stream_of(checkpoint, "tensor", (size_t)row));
        }
        dcp_checkpoint_close(checkpoint);
    }
    dcp_state_free(root);
}

/* Strided elements are written as if they lay close together. */
static void test_strided_tensor(void **state)
{
    struct bytes dense = {0}, strided = {0};
    float transposed[6];
    (void)state;
    for (int i = 0; i < 6; i++)
        transposed[i % 3 * 2 + i / 3] = elements[i];
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {2, 3}, .data = (void *)elements};
    must(dcp_tensor_encode(&tensor, take, &dense));
    tensor.strided = true;
    tensor.strides[0] = 1;
    tensor.strides[1] = 2;
    tensor.data = transposed;
    must(dcp_tensor_encode(&tensor, take, &strided));
    assert_same(dense, strided);
    tensor.data = NULL;
    assert_int_equal(dcp_tensor_encode(&tensor, take, &dense), DCP_ERR_ARGUMENT);
}

static void test_decoded_again(void **state)
{
    dcp_state *root = sample();
    struct bytes object = {0};
    char *before, *after;
    (void)state;
    must(dcp_object_encode(dcp_state_find(root, "object"), take, &object));
    must(dcp_object_decode(object.data, object.size, root, "again", NULL));
    must(dcp_state_to_json(dcp_state_find(root, "object"), 0, &before));
    must(dcp_state_to_json(dcp_state_find(root, "again"), 0, &after));
    assert_string_equal(before, after);
    dcp_text_free(before);
    dcp_text_free(after);
    free(object.data);
    dcp_state_free(root);
}

/* A small stream of a value that is a hundred times larger. */
static void test_decoded_within_a_limit(void **state)
{
    dcp_state *root = dcp_state_new(), *list = dcp_state_list(root, "object");
    const dcp_decode_options limited = {.memory_limit = 64 << 10},
                             enough = {.memory_limit = 2 << 20};
    struct bytes object = {0}, metadata = {0};
    dcp_checkpoint *checkpoint = NULL;
    char path[600];
    for (int i = 0; i < 5000; i++)
        dcp_state_int(list, NULL, 1);
    must(dcp_object_encode(dcp_state_find(root, "object"), take, &object));
    assert_true(object.size < 32 << 10);
    must_fail(dcp_object_decode(object.data, object.size, root, "again", &limited),
              DCP_ERR_NO_MEMORY, "65536");
    assert_null(dcp_state_find(root, "again"));
    must(dcp_object_decode(object.data, object.size, root, "again", &enough));
    list = dcp_state_find(root, "again");
    assert_int_equal(dcp_state_count(list), 5000);
    snprintf(path, sizeof path, "%s/limited", (const char *)*state);
    must(dcp_save(root, path, NULL));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_encode(checkpoint, take, &metadata));
    dcp_checkpoint_close(checkpoint);
    const dcp_decode_options tiny = {.memory_limit = 256};
    must_fail(dcp_checkpoint_decode(metadata.data, metadata.size, &tiny, &checkpoint),
              DCP_ERR_NO_MEMORY, "256");
    assert_null(checkpoint);
    must(dcp_checkpoint_decode(metadata.data, metadata.size, &enough, &checkpoint));
    dcp_checkpoint_close(checkpoint);
    /* What was decoded may grow beyond the limit afterwards. */
    for (int i = 0; i < 400000; i++)
        must(dcp_state_int(list, NULL, 2));
    free(object.data);
    free(metadata.data);
    dcp_state_free(root);
}

static void test_node_of_a_stream(void **state)
{
    dcp_state *root = dcp_state_new();
    const void *bytes;
    size_t size;
    char *text;
    (void)state;
    must(dcp_state_stream(root, "k", "abc", 3));
    const dcp_state *copy = dcp_state_copy(root, "copy", dcp_state_find(root, "k"));
    assert_int_equal(dcp_state_kind(copy), DCP_KIND_STREAM);
    must(dcp_state_as_bytes(copy, &bytes, &size));
    assert_int_equal(size, 3);
    assert_memory_equal(bytes, "abc", 3);
    must(dcp_state_to_json(copy, 0, &text));
    assert_string_equal(text, "{\"$stream\": 3}");
    dcp_text_free(text);
    dcp_state_free(root);
}

/* ---- what is refused ---- */

static void expect_refused(void **state, const void *bytes, size_t size, bool nested,
                           dcp_status expected)
{
    dcp_state *root = dcp_state_new();
    must(dcp_state_stream(nested ? dcp_state_tuple(root, "k") : root, nested ? NULL : "k", bytes,
                          size));
    assert_int_equal(dcp_save(root, path_in(state, "refused"), NULL), expected);
    assert_non_null(strstr(dcp_error_message(), "k"));
    dcp_state_free(root);
}

static void test_damaged_streams(void **state)
{
    dcp_state *root = sample();
    struct bytes object = {0};
    must(dcp_object_encode(dcp_state_find(root, "object"), take, &object));
    expect_refused(state, object.data, object.size, true, DCP_ERR_UNSUPPORTED);
    expect_refused(state, object.data, object.size - 30, false, DCP_ERR_FORMAT);
    expect_refused(state, "not a zip archive", 17, false, DCP_ERR_FORMAT);
    for (size_t i = 0; i + 4 < object.size; i++) {
        if (memcmp(object.data + i, "text", 4) != 0)
            continue;
        object.data[i] ^= 1;
        expect_refused(state, object.data, object.size, false, DCP_ERR_CHECKSUM);
        break;
    }
    free(object.data);
    assert_int_equal(dcp_state_stream(root, "empty", "", 0), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_status(root), DCP_ERR_ARGUMENT);
    dcp_state_free(root);
}

static void flip_byte(const char *path, const dcp_stored_chunk *stored, uint64_t at)
{
    char file[256];
    unsigned char byte;
    snprintf(file, sizeof file, "%s/%s", path, stored->file);
    int descriptor = open(file, O_RDWR);
    assert_true(descriptor >= 0);
    assert_int_equal(pread(descriptor, &byte, 1, (off_t)(stored->offset + at)), 1);
    byte ^= 1;
    assert_int_equal(pwrite(descriptor, &byte, 1, (off_t)(stored->offset + at)), 1);
    close(descriptor);
}

/* The sink sees nothing of a damaged stream, of objects and tensors alike. */
static void test_damage_is_found_first(void **state)
{
    static const char *const names[] = {"object", "tensor"};
    dcp_state *root = sample();
    for (size_t i = 0; i < 2; i++) {
        dcp_checkpoint *checkpoint;
        dcp_stored_chunk stored;
        size_t index;
        int calls = 0;
        const char *path = path_in(state, names[i]);
        must(dcp_save(root, path, NULL));
        must(dcp_checkpoint_open(path, NULL, &checkpoint));
        must(dcp_checkpoint_find(checkpoint, names[i], &index));
        assert_int_equal(dcp_checkpoint_read_stream(checkpoint, index, 0, refuse, &calls, NULL),
                         DCP_ERR_IO);
        assert_int_equal(calls, 1);
        must(dcp_checkpoint_chunk(checkpoint, index, 0, &stored));
        flip_byte(path, &stored, stored.length / 2);
        dcp_checkpoint_close(checkpoint);
        must(dcp_checkpoint_open(path, NULL, &checkpoint));
        assert_int_equal(dcp_checkpoint_read_stream(checkpoint, index, 0, refuse, &calls, NULL),
                         DCP_ERR_CHECKSUM);
        assert_int_equal(calls, 1);
        assert_int_equal(dcp_checkpoint_read_stream(checkpoint, index, 9, refuse, &calls, NULL),
                         DCP_ERR_ARGUMENT);
        assert_int_equal(dcp_checkpoint_read_stream(checkpoint, index, 0, refuse, &calls,
                                                    &(dcp_read_options){.convert = true}),
                         DCP_ERR_ARGUMENT);
        dcp_checkpoint_close(checkpoint);
    }
    dcp_state_free(root);
}

/* PyTorch's files have no sums of blocks: records' checksums are what tells. */
static void test_tensors_of_pytorch(void **state)
{
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    size_t tensors = 0;
    (void)state;
    must(dcp_checkpoint_open(FIXTURES "/fsdp2_adam_w2/ckpt", NULL, &checkpoint));
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        must(dcp_checkpoint_entry(checkpoint, i, &entry));
        for (size_t c = 0; c < entry.chunk_count && entry.is_tensor; c++) {
            struct bytes stream = {0};
            dcp_stored_chunk stored;
            must(dcp_checkpoint_chunk(checkpoint, i, c, &stored));
            must(dcp_checkpoint_read_stream(checkpoint, i, c, take, &stream, NULL));
            assert_int_equal(stream.size, stored.length);
            free(stream.data);
            tensors++;
        }
    }
    assert_true(tensors > 0);
    dcp_checkpoint_close(checkpoint);
    must(dcp_checkpoint_open(FIXTURES "/hf_single/ckpt", NULL, &checkpoint));
    assert_int_equal(dcp_checkpoint_read_stream(checkpoint, 0, 0, take, NULL, NULL),
                     DCP_ERR_UNSUPPORTED);
    dcp_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_objects_are_copied, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_encoded_as_stored, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_strided_tensor, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_decoded_again, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_decoded_within_a_limit, directory_setup,
                                        directory_teardown),
        cmocka_unit_test(test_node_of_a_stream),
        cmocka_unit_test_setup_teardown(test_damaged_streams, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_damage_is_found_first, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_tensors_of_pytorch, directory_setup,
                                        directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
