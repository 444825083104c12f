/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "dcp/packed.h"
#include "fault/failing_allocator.h"
#include "state/node.h"

static const float elements[12];

static dcp_status keep(void *context, const void *bytes, size_t size)
{
    struct buffer *out = context;
    buffer_append(out, bytes, size);
    return buffer_status(out);
}

static void add_scalars(dcp_state *dict)
{
    const int64_t sizes[] = {2, 0, INT64_MAX};
    dcp_state_none(dict, "none");
    dcp_state_bool(dict, "false", false);
    dcp_state_bool(dict, "true", true);
    dcp_state_int(dict, "least", INT64_MIN);
    dcp_state_uint(dict, "most", UINT64_MAX);
    dcp_state_digits(dict, "big", "-123456789012345678901234567890");
    dcp_state_float(dict, "float", -0.0);
    dcp_state_complex(dict, "complex", 1.5, -2.5);
    dcp_state_text(dict, "", "a\0b", 3);
    dcp_state_bytes(dict, "bytes", "", 0);
    dcp_state_bytearray(dict, "bytearray", "\xff", 1);
    dcp_state_dtype(dict, "dtype", DCP_F8_E5M2);
    dcp_state_device(dict, "device", "cuda:1");
    dcp_state_size(dict, "size", sizes, 3);
    dcp_state_size(dict, "no size", NULL, 0);
}

static void add_tensors(dcp_state *dict)
{
    dcp_tensor whole = {.dtype = DCP_F32,
                        .ndim = 2,
                        .requires_grad = true,
                        .strided = true,
                        .data = (void *)(uintptr_t)elements,
                        .global_shape = {3, 4},
                        .strides = {1, 3}};
    dcp_tensor part = {.dtype = DCP_F32,
                       .ndim = 1,
                       .sharded = true,
                       .global_shape = {100},
                       .sizes = {2},
                       .data = (void *)(uintptr_t)elements};
    dcp_tensor scalar = {.dtype = DCP_BOOL};
    dcp_state_tensor(dict, "whole", &whole);
    dcp_state_tensor(dict, "scalar", &scalar);
    dcp_state *node = dcp_state_tensor(dict, "parts", &part);
    part.offsets[0] = 50;
    dcp_state_add_chunk(node, &part);
}

static dcp_state *build(void)
{
    dcp_state *root = dcp_state_new(), *list = dcp_state_list(root, "list");
    dcp_state *ordered = dcp_state_ordered_dict(list, NULL);
    add_scalars(root);
    add_tensors(ordered);
    dcp_state_dict(list, NULL);
    dcp_state_int(dcp_state_tuple(dcp_state_tuple(list, NULL), NULL), NULL, 7);
    dcp_state_list(ordered, "empty");
    dcp_state *set = dcp_state_set(list, NULL);
    dcp_state_int(dcp_state_frozenset(set, NULL), NULL, 1);
    dcp_state_string(set, NULL, "a");
    dcp_state *pair = dcp_state_pair(ordered);
    dcp_state_float(dcp_state_tuple(pair, NULL), NULL, 0.5);
    dcp_state_int(dcp_state_dict(pair, NULL), "deep", 3);
    dcp_state_none(dcp_state_int_key(ordered, -4), NULL);
    return root;
}

static void pack(const dcp_state *node, struct buffer *packed)
{
    buffer_init(packed, 0);
    assert_int_equal(dcp_state_pack(node, 0, keep, packed), DCP_OK);
}

static void a_tree_comes_back(void **state)
{
    (void)state;
    dcp_state *root = build(), *copy = dcp_state_new(), *nested = dcp_state_new();
    struct buffer packed, again;
    dcp_tensor chunk;
    assert_int_equal(dcp_state_status(root), DCP_OK);
    pack(root, &packed);
    assert_int_equal(dcp_state_unpack(copy, NULL, packed.data, packed.size), DCP_OK);
    pack(copy, &again);
    assert_int_equal(again.size, packed.size);
    assert_memory_equal(again.data, packed.data, packed.size);

    const dcp_state *list = dcp_state_find(copy, "list"), *ordered = dcp_state_at(list, 0);
    assert_int_equal(dcp_state_kind(ordered), DCP_KIND_ORDERED_DICT);
    assert_int_equal(dcp_state_kind(dcp_state_at(list, 2)), DCP_KIND_TUPLE);
    assert_int_equal(dcp_state_chunk(dcp_state_find(ordered, "whole"), 0, &chunk), DCP_OK);
    assert_ptr_equal(chunk.data, elements);
    assert_true(chunk.requires_grad && chunk.strided && chunk.strides[1] == 3);
    assert_int_equal(dcp_state_chunk_count(dcp_state_find(ordered, "parts")), 2);
    assert_int_equal(dcp_state_chunk(dcp_state_find(ordered, "parts"), 1, &chunk), DCP_OK);
    assert_int_equal(chunk.offsets[0], 50);

    /* Under a key, and by itself. */
    assert_int_equal(dcp_state_unpack(nested, "a", packed.data, packed.size), DCP_OK);
    buffer_clear(&again);
    assert_int_equal(dcp_state_pack(dcp_state_find(nested, "a"), 0, keep, &again), DCP_OK);
    assert_memory_equal(again.data, packed.data, packed.size);
    buffer_free(&packed);
    buffer_free(&again);
    dcp_state_free(root);
    dcp_state_free(copy);
    dcp_state_free(nested);
}

static void cut_descriptions_are_refused(void **state)
{
    (void)state;
    dcp_state *root = build();
    struct buffer packed;
    pack(root, &packed);
    for (size_t size = 0; size < packed.size; size++) {
        dcp_state *copy = dcp_state_new();
        /* Exactly so many bytes, for whoever reads beyond them. */
        unsigned char *bytes = malloc(size + 1);
        assert_non_null(bytes);
        memcpy(bytes + 1, packed.data, size);
        assert_int_equal(dcp_state_unpack(copy, NULL, bytes + 1, size), DCP_ERR_FORMAT);
        assert_int_equal(dcp_state_status(copy), DCP_ERR_FORMAT);
        free(bytes);
        dcp_state_free(copy);
    }
    buffer_free(&packed);
    dcp_state_free(root);
}

static void wrong_descriptions_are_refused(void **state)
{
    static const struct {
        const char *key, *words;
        size_t size;
        dcp_status status;
        char bytes[40];
    } cases[] = {
        {NULL, "byte 0 of 1: a dict is needed", 1, DCP_ERR_FORMAT, "N"},
        {"a", "no value begins with this byte", 1, DCP_ERR_FORMAT, "?"},
        {"a", "byte 1 of 2: something follows", 2, DCP_ERR_FORMAT, "NN"},
        {"a", "byte 1 of 9: the count is larger", 9, DCP_ERR_FORMAT, "[\1\0\0\0\0\0\0"},
        {"a", "the count is larger", 9, DCP_ERR_FORMAT, "s\377\377\377\377\377\377\377\377"},
        {"a", "", 19, DCP_ERR_ARGUMENT, "{\1\0\0\0\0\0\0\0[\0\0\0\0\0\0\0\0N"},
        {"a", "", 12, DCP_ERR_DUPLICATE, "{\2\0\0\0\0\0\0\0NNN"},
        {"a", "more than 64 dimensions", 13, DCP_ERR_FORMAT, "t\2\101\0\0\1\0\0\0\0\0\0\0"},
        {"a", "a tensor needs a chunk", 13, DCP_ERR_FORMAT, "t\2\0\0\0\0\0\0\0\0\0\0\0"},
        {"a", "several only if it is sharded", 13, DCP_ERR_FORMAT, "t\2\0\0\0\2\0\0\0\0\0\0\0"},
        {"a", "not a dtype", 2, DCP_ERR_ARGUMENT, "D\0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_state *root = dcp_state_new();
        dcp_status status = dcp_state_unpack(root, cases[i].key, cases[i].bytes, cases[i].size);
        if (status != cases[i].status || !strstr(dcp_error_message(), cases[i].words))
            fail_msg("case %zu: %s: %s", i, dcp_status_string(status), dcp_error_message());
        assert_int_equal(dcp_state_status(root), status);
        dcp_state_free(root);
    }
}

static void put_numbers(struct buffer *out, size_t count, const int64_t *numbers)
{
    for (size_t i = 0; i < count; i++)
        buffer_append_u64(out, (uint64_t)numbers[i]);
}

/* {"w": rank 1 of a mesh of 2 by 1 ranks, rows 3 to 4 of 5 by 4, "o": a stream} */
static void describe_mesh(struct buffer *packed, int64_t rows, int64_t kind, uint8_t mesh_ndim)
{
    buffer_init(packed, 0);
    buffer_append(packed, "{\2\0\0\0\0\0\0\0s\1\0\0\0\0\0\0\0wm\2\2\1", 23);
    buffer_append_u8(packed, mesh_ndim);
    put_numbers(packed, 9, (int64_t[]){1, 2, 1, kind, 0, 0, DCP_REPLICATE, 0, 0});
    put_numbers(packed, 5, (int64_t[]){5, 4, 0, 0, 0});
    put_numbers(packed, 5, (int64_t[]){(int64_t)(uintptr_t)elements, rows, 4, 4, 1});
    buffer_append(packed, "s\1\0\0\0\0\0\0\0oo\3\0\0\0\0\0\0\0abc", 22);
}

static void tensors_on_a_mesh_and_streams_are_built(void **state)
{
    (void)state;
    struct buffer packed, again;
    dcp_tensor chunk;
    dcp_state *root = dcp_state_new();
    const void *bytes;
    size_t length;
    describe_mesh(&packed, 2, DCP_SHARD, 2);
    assert_int_equal(dcp_state_unpack(root, NULL, packed.data, packed.size), DCP_OK);
    assert_int_equal(dcp_state_chunk(dcp_state_find(root, "w"), 0, &chunk), DCP_OK);
    assert_true(chunk.sharded && chunk.offsets[0] == 3 && chunk.sizes[0] == 2);
    assert_ptr_equal(chunk.data, elements);
    assert_int_equal(dcp_state_find(root, "w")->as.tensor->layout->mesh.shape[0], 2);
    assert_int_equal(dcp_state_kind(dcp_state_find(root, "o")), DCP_KIND_STREAM);
    assert_int_equal(dcp_state_as_bytes(dcp_state_find(root, "o"), &bytes, &length), DCP_OK);
    assert_memory_equal(bytes, "abc", 3);
    pack(root, &again);
    assert_memory_equal(again.data + again.size - 12, "o\3\0\0\0\0\0\0\0abc", 12);
    dcp_state_free(root);
    buffer_free(&again);
    for (size_t size = 0; size < packed.size; size++) {
        root = dcp_state_new();
        assert_int_equal(dcp_state_unpack(root, NULL, packed.data, size), DCP_ERR_FORMAT);
        dcp_state_free(root);
    }
    buffer_free(&packed);
}

static void wrong_meshes_are_refused(void **state)
{
    static const struct {
        int64_t rows, kind;
        uint8_t mesh_ndim;
        dcp_status status;
        const char *words;
    } cases[] = {
        {3, DCP_SHARD, 2, DCP_ERR_SHAPE, "has 3 elements, its placements leave it 2"},
        {2, 3, 2, DCP_ERR_FORMAT, "an invalid placement"},
        {2, DCP_SHARD, 17, DCP_ERR_FORMAT, "more than 16 dimensions"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer packed;
        dcp_state *root = dcp_state_new();
        describe_mesh(&packed, cases[i].rows, cases[i].kind, cases[i].mesh_ndim);
        dcp_status status = dcp_state_unpack(root, NULL, packed.data, packed.size);
        if (status != cases[i].status || !strstr(dcp_error_message(), cases[i].words))
            fail_msg("case %zu: %s: %s", i, dcp_status_string(status), dcp_error_message());
        buffer_free(&packed);
        dcp_state_free(root);
    }
}

static dcp_status refuse(void *context, const void *bytes, size_t size)
{
    (void)context;
    (void)bytes;
    (void)size;
    return (dcp_status)12345;
}

static void what_cannot_be_packed_is_refused(void **state)
{
    (void)state;
    static const dcp_stateful stateful = {NULL, NULL, NULL};
    dcp_state *root = build();
    struct buffer packed;
    buffer_init(&packed, 0);
    assert_int_equal(dcp_state_pack(root, 100, keep, &packed), DCP_ERR_UNSUPPORTED);
    assert_non_null(strstr(dcp_error_message(), "more than 100 bytes"));
    assert_int_equal(dcp_state_pack(root, 0, refuse, NULL), DCP_ERR_CALLBACK);
    assert_int_equal(dcp_state_pack(NULL, 0, keep, &packed), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_pack(root, 0, NULL, NULL), DCP_ERR_ARGUMENT);

    dcp_state *list = dcp_state_list(root, "loop");
    assert_int_equal(node_append(list->pool, list, NULL, list), DCP_OK);
    assert_int_equal(dcp_state_pack(root, 0, keep, &packed), DCP_ERR_UNSUPPORTED);
    assert_non_null(strstr(dcp_error_message(), "list contains itself"));
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_state *node = node_new(root->pool, DCP_KIND_STATEFUL);
    node->as.stateful = stateful;
    assert_int_equal(
        node_append(root->pool, root, node_text(root->pool, DCP_KIND_STRING, "s", 1), node),
        DCP_OK);
    assert_int_equal(dcp_state_pack(root, 0, keep, &packed), DCP_ERR_UNSUPPORTED);
    assert_int_equal(packed.size, 0);
    dcp_state_free(root);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    dcp_state *root = build();
    struct buffer packed;
    bool reached = true;
    long n;
    pack(root, &packed);
    for (n = 1; reached; n++) {
        struct buffer again;
        buffer_init(&again, 0);
        failing_allocator_install(n, false);
        dcp_state *copy = dcp_state_new();
        dcp_status status =
            copy ? dcp_state_unpack(copy, NULL, packed.data, packed.size) : DCP_ERR_NO_MEMORY;
        if (status == DCP_OK)
            status = dcp_state_pack(copy, 0, keep, &again);
        reached = failing_allocator_reached();
        dcp_state_free(copy);
        buffer_free(&again);
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
    }
    assert_true(n > 10);
    buffer_free(&packed);
    dcp_state_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_comes_back),
        cmocka_unit_test(cut_descriptions_are_refused),
        cmocka_unit_test(wrong_descriptions_are_refused),
        cmocka_unit_test(tensors_on_a_mesh_and_streams_are_built),
        cmocka_unit_test(wrong_meshes_are_refused),
        cmocka_unit_test(what_cannot_be_packed_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
