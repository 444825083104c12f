/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong arguments of calls that build and look at states, meshes and groups: each is an error that
 * says what is wrong, never a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "dcp.h"

/* ---- building ---- */

static void places_and_keys(void **state)
{
    dcp_state *root = dcp_state_new();
    (void)state;

    NOT_BUILT(dcp_state_dict(root, NULL), root, DCP_ERR_ARGUMENT, "needs a key");
    NOT_BUILT(dcp_state_list(root, "a\xff"), root, DCP_ERR_ARGUMENT, "UTF-8");
    NOT_BUILT(dcp_state_list(root, "\xed\xa0\x80"), root, DCP_ERR_ARGUMENT, "UTF-8");
    NOT_BUILT(dcp_state_dict(dcp_state_list(root, "list"), "key"), root, DCP_ERR_ARGUMENT, "key");
    NOT_BUILT(dcp_state_dict(dcp_state_tuple(root, "t"), ""), root, DCP_ERR_ARGUMENT,
              "have no key");
    dcp_state_int(root, "twice", 1);
    NOT_BUILT(dcp_state_dict(root, "twice"), root, DCP_ERR_DUPLICATE, "\"twice\"");
    dcp_state_int(root, "leaf", 1);
    NOT_BUILT(dcp_state_dict(dcp_state_find(root, "leaf"), "x"), root, DCP_ERR_ARGUMENT, "int");

    assert_null(dcp_state_dict(NULL, "orphan"));
    REFUSED(dcp_state_none(NULL, "orphan"), DCP_ERR_ARGUMENT, "orphan");
    REFUSED(dcp_state_bool(NULL, NULL, true), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_int(NULL, "a", 1), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_uint(NULL, "a", 1), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_float(NULL, "a", 1), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_string(NULL, "a", "b"), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_bytes(NULL, "a", "b", 1), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_status(NULL), DCP_ERR_ARGUMENT, "NULL");
    assert_int_equal(dcp_state_status(root), DCP_OK);
    dcp_state_free(NULL);
    dcp_state_free(root);
}

static void texts(void **state)
{
    dcp_state *root = dcp_state_new();
    (void)state;

    REFUSED(dcp_state_string(root, "a", NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_text(root, "a", NULL, 3), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_text(root, "a", "\xc0\x80", 2), DCP_ERR_ARGUMENT, "UTF-8");
    REFUSED(dcp_state_bytes(root, "a", NULL, SIZE_MAX), DCP_ERR_ARGUMENT, "NULL");
    assert_int_equal(dcp_state_text(root, "empty", NULL, 0), DCP_OK);
    assert_int_equal(dcp_state_bytes(root, "none", NULL, 0), DCP_OK);

    NOT_BUILT(dcp_state_intern(root, "a\0b", 3), root, DCP_ERR_ARGUMENT, "NUL");
    NOT_BUILT(dcp_state_intern(root, "\xf5\x80\x80\x80", 4), root, DCP_ERR_ARGUMENT, "UTF-8");
    NOT_BUILT(dcp_state_intern(root, NULL, 1), root, DCP_ERR_ARGUMENT, "key");
    assert_string_equal(dcp_state_intern(root, NULL, 0), "");
    assert_string_equal(dcp_state_intern(root, "key and more", 3), "key");
    assert_null(dcp_state_intern(NULL, "key", 3));
    dcp_state_free(root);
}

static void tensors(void **state)
{
    const struct {
        dcp_tensor tensor;
        const char *part;
    } wrong[] = {
        {{.ndim = 1, .global_shape = {1}}, "dtype"},
        {{.dtype = (dcp_dtype)99, .ndim = 1, .global_shape = {1}}, "99"},
        {{.dtype = (dcp_dtype)-1, .ndim = 1, .global_shape = {1}}, "-1"},
        {{.dtype = DCP_F32, .ndim = -1}, "-1"},
        {{.dtype = DCP_F32, .ndim = INT32_MIN}, "dimensions"},
        {{.dtype = DCP_F32, .ndim = DCP_MAX_DIMS + 1}, "65"},
        {{.dtype = DCP_F32, .ndim = INT32_MAX}, "dimensions"},
        {{.dtype = DCP_F32, .ndim = 1, .global_shape = {-1}}, "negative"},
        {{.dtype = DCP_F32, .ndim = 1, .global_shape = {INT64_MIN}}, "negative"},
        {{.dtype = DCP_F32, .ndim = 1, .global_shape = {INT64_MAX}}, "more bytes"},
        {{.dtype = DCP_F32, .ndim = 2, .global_shape = {INT64_C(1) << 40, INT64_C(1) << 40}},
         "more bytes"},
        {{.dtype = DCP_F32, .ndim = 1, .sharded = true, .global_shape = {4}, .sizes = {5}}, "5"},
        {{.dtype = DCP_F32, .ndim = 1, .sharded = true, .global_shape = {4}, .sizes = {-1}}, "-1"},
        {{.dtype = DCP_F32,
          .ndim = 1,
          .sharded = true,
          .global_shape = {4},
          .offsets = {-1},
          .sizes = {2}},
         "-1"},
        {{.dtype = DCP_F32,
          .ndim = 1,
          .sharded = true,
          .global_shape = {4},
          .offsets = {INT64_MAX},
          .sizes = {INT64_MAX}},
         "["},
        {{.dtype = DCP_F32,
          .ndim = 2,
          .strided = true,
          .global_shape = {4, 4},
          .strides = {INT64_MAX, INT64_MAX}},
         "stride"},
    };
    dcp_state *root = dcp_state_new();
    (void)state;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dcp_tensor tensor = wrong[i].tensor;
        tensor.data = matrix_memory;
        if (dcp_state_tensor(root, "weight", &tensor))
            fail_msg("tensor %zu was taken", i);
        REFUSED(dcp_state_status(root), DCP_ERR_ARGUMENT, wrong[i].part);
        REFUSED(dcp_state_status(root), DCP_ERR_ARGUMENT, "weight");
        dcp_state_free(root);
        root = dcp_state_new();
    }
    dcp_tensor elsewhere = matrix(2, 2);
    dcp_device_operations incomplete = {.size_of = sizeof incomplete, .name = "odd"};
    elsewhere.device.operations = &incomplete;
    NOT_BUILT(dcp_state_tensor(root, "w", &elsewhere), root, DCP_ERR_ARGUMENT,
              "lacks a required operation");
    NOT_BUILT(dcp_state_tensor(root, "weight", NULL), root, DCP_ERR_ARGUMENT, "NULL");
    dcp_tensor tensor = matrix(2, 2);
    NOT_BUILT(dcp_state_tensor(root, NULL, &tensor), root, DCP_ERR_ARGUMENT, "key");
    assert_null(dcp_state_tensor(NULL, "weight", &tensor));
    dcp_state_free(root);
}

static void chunks(void **state)
{
    dcp_state *root = dcp_state_new();
    dcp_tensor first = piece(0, 3), overlapping = piece(2, 2), next = piece(3, 2);
    (void)state;

    dcp_state *node = dcp_state_tensor(root, "w", &first);
    REFUSED(dcp_state_add_chunk(node, &overlapping), DCP_ERR_OVERLAP, "overlap");
    REFUSED(dcp_state_add_chunk(node, &first), DCP_ERR_OVERLAP, "overlap");
    REFUSED(dcp_state_add_chunk(node, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_add_chunk(NULL, &next), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_add_chunk(root, &next), DCP_ERR_ARGUMENT, "dict");
    next.dtype = DCP_F16;
    REFUSED(dcp_state_add_chunk(node, &next), DCP_ERR_ARGUMENT, "float16");
    next = piece(3, 2);
    next.global_shape[0] = 9;
    REFUSED(dcp_state_add_chunk(node, &next), DCP_ERR_ARGUMENT, "9");
    next = piece(7, 2);
    REFUSED(dcp_state_add_chunk(node, &next), DCP_ERR_ARGUMENT, "[");
    REFUSED(dcp_state_status(root), DCP_ERR_OVERLAP, "overlap");
    assert_int_equal(dcp_state_chunk_count(node), 1);
    dcp_state_free(root);
}

static void flat_ranges(void **state)
{
    const int64_t ranges[][2] = {{-1, 2}, {0, -1},        {0, 17},        {17, 0},
                                 {16, 1}, {INT64_MAX, 2}, {2, INT64_MAX}, {INT64_MIN, INT64_MIN}};
    dcp_state *root = dcp_state_new();
    dcp_tensor whole = matrix(8, 2);
    (void)state;

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        NOT_BUILT(
            dcp_state_flat_range(root, "w", &whole, ranges[i][0], ranges[i][1], matrix_memory),
            root, DCP_ERR_ARGUMENT, "w");
    NOT_BUILT(dcp_state_flat_range(root, "w", NULL, 0, 1, matrix_memory), root, DCP_ERR_ARGUMENT,
              "NULL");
    assert_null(dcp_state_flat_range(NULL, "w", &whole, 0, 1, matrix_memory));
    dcp_state_free(root);
}

static dcp_status give_nothing(void *context, dcp_state *into)
{
    (void)context, (void)into;
    return DCP_OK;
}

static void stateful_entries(void **state)
{
    const dcp_stateful empty = {0}, stateful = {.state_dict = give_nothing};
    dcp_state *root = dcp_state_new();
    (void)state;

    REFUSED(dcp_state_stateful(root, "s", NULL), DCP_ERR_ARGUMENT, "\"s\"");
    REFUSED(dcp_state_stateful(root, "s", &empty), DCP_ERR_ARGUMENT, "state_dict");
    REFUSED(dcp_state_stateful(dcp_state_list(root, "l"), NULL, &stateful), DCP_ERR_ARGUMENT,
            "list");
    REFUSED(dcp_state_stateful(NULL, "s", &stateful), DCP_ERR_ARGUMENT, "NULL");
    dcp_state_free(root);
}

/* ---- looking ---- */

static void reading_leaves(void **state)
{
    dcp_state *root = dcp_state_new();
    const void *bytes;
    const char *text;
    double number;
    int64_t integer;
    uint64_t natural;
    dcp_dtype dtype;
    dcp_tensor chunk;
    size_t length;
    bool truth;
    (void)state;

    dcp_state_int(root, "minus", -1);
    dcp_state_uint(root, "most", UINT64_MAX);
    const dcp_state *minus = dcp_state_find(root, "minus"), *most = dcp_state_find(root, "most");
    REFUSED(dcp_state_as_uint(minus, &natural), DCP_ERR_KIND, "-1");
    REFUSED(dcp_state_as_int(most, &integer), DCP_ERR_KIND, "18446744073709551615");
    REFUSED(dcp_state_as_float(most, &number), DCP_ERR_KIND, "double");
    REFUSED(dcp_state_as_bool(minus, &truth), DCP_ERR_KIND, "bool");
    REFUSED(dcp_state_as_complex(minus, &number, &number), DCP_ERR_KIND, "complex");
    REFUSED(dcp_state_as_text(minus, &text, &length), DCP_ERR_KIND, "string");
    REFUSED(dcp_state_as_bytes(minus, &bytes, &length), DCP_ERR_KIND, "bytes");
    REFUSED(dcp_state_as_dtype(minus, &dtype), DCP_ERR_KIND, "dtype");
    REFUSED(dcp_state_chunk(minus, 0, &chunk), DCP_ERR_KIND, "tensor");

    REFUSED(dcp_state_as_int(minus, NULL), DCP_ERR_ARGUMENT, "result");
    REFUSED(dcp_state_as_int(NULL, &integer), DCP_ERR_ARGUMENT, "node");
    REFUSED(dcp_state_as_uint(NULL, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_as_float(NULL, &number), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_as_complex(NULL, NULL, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_as_text(NULL, &text, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_as_bytes(NULL, &bytes, &length), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_as_dtype(NULL, &dtype), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_chunk(NULL, 0, &chunk), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_state_to_json(NULL, 0, (char **)&text), DCP_ERR_ARGUMENT, "node");
    REFUSED(dcp_state_to_json(root, 0, NULL), DCP_ERR_ARGUMENT, "result");
    REFUSED(dcp_state_to_json(root, 1, (char **)&text), DCP_ERR_UNSUPPORTED, "1");

    assert_int_equal(dcp_state_kind(NULL), DCP_KIND_NONE);
    assert_int_equal(dcp_state_count(NULL), 0);
    assert_int_equal(dcp_state_count(minus), 0);
    assert_null(dcp_state_at(NULL, 0));
    assert_null(dcp_state_at(root, SIZE_MAX));
    assert_null(dcp_state_key_at(root, 2));
    assert_null(dcp_state_key_at(NULL, 0));
    assert_null(dcp_state_find(root, NULL));
    assert_null(dcp_state_find(NULL, "a"));
    assert_null(dcp_state_find(minus, "a"));
    assert_null(dcp_state_int_digits(NULL));
    assert_null(dcp_state_int_digits(root));
    assert_null(dcp_state_opaque_name(root));
    assert_null(dcp_state_opaque_name(NULL));
    assert_int_equal(dcp_state_chunk_count(NULL), 0);
    dcp_state_free(root);
}

static void names_of_values(void **state)
{
    (void)state;
    assert_int_equal(dcp_dtype_size((dcp_dtype)99), 0);
    assert_int_equal(dcp_dtype_size((dcp_dtype)-1), 0);
    assert_null(dcp_dtype_name((dcp_dtype)INT32_MAX));
    assert_int_equal(dcp_dtype_from_name(NULL), DCP_DTYPE_NONE);
    assert_int_equal(dcp_dtype_from_name("torch.float32"), DCP_DTYPE_NONE);
    assert_non_null(dcp_status_string((dcp_status)12345));
    dcp_text_free(NULL);
    dcp_checkpoint_close(NULL);
    dcp_group_free(NULL);
    dcp_load_report_free(NULL);
    assert_int_equal(dcp_load_report_count(NULL), 0);
    dcp_report_line line;
    assert_int_equal(dcp_load_report_line(NULL, 3, &line), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_checkpoint_count(NULL), 0);
    assert_int_equal(dcp_group_rank(NULL), 0);
    assert_int_equal(dcp_group_size(NULL), 1);
}

/* ---- meshes and groups ---- */

static void meshes(void **state)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {2}};
    dcp_tensor tensor = matrix(8, 2);
    const dcp_placement rows = dcp_shard(0), far = dcp_shard(2), behind = dcp_shard(-3),
                        unknown = {.kind = (dcp_placement_kind)9},
                        factor = dcp_strided_shard(0, -1);
    (void)state;

    REFUSED(dcp_mesh_shard(NULL, &tensor, &rows), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_mesh_shard_sized(&mesh, NULL, sizeof tensor, &rows), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_mesh_shard(&mesh, &tensor, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_mesh_shard(&mesh, &tensor, &far), DCP_ERR_ARGUMENT, "2");
    REFUSED(dcp_mesh_shard(&mesh, &tensor, &behind), DCP_ERR_ARGUMENT, "-3");
    REFUSED(dcp_mesh_shard(&mesh, &tensor, &unknown), DCP_ERR_ARGUMENT, "9");
    REFUSED(dcp_mesh_shard(&mesh, &tensor, &factor), DCP_ERR_ARGUMENT, "-1");
    for (int64_t rank = -2; rank <= 2; rank += 4) {
        mesh.rank = rank;
        REFUSED(dcp_mesh_shard(&mesh, &tensor, &rows), DCP_ERR_ARGUMENT, "rank");
    }
    mesh = (dcp_mesh){.ndim = 2, .shape = {INT64_MAX, 2}};
    REFUSED(dcp_mesh_shard(&mesh, &tensor, (dcp_placement[]){rows, rows}), DCP_ERR_ARGUMENT,
            "mesh");
    mesh = (dcp_mesh){.ndim = DCP_MAX_MESH_DIMS + 1};
    REFUSED(dcp_mesh_shard(&mesh, &tensor, &rows), DCP_ERR_ARGUMENT, "17");
    mesh = (dcp_mesh){.ndim = 1, .shape = {0}};
    REFUSED(dcp_mesh_shard(&mesh, &tensor, &rows), DCP_ERR_ARGUMENT, "0");
    mesh = (dcp_mesh){.ndim = 1, .shape = {2}};
    tensor.ndim = 65;
    REFUSED(dcp_mesh_shard(&mesh, &tensor, &rows), DCP_ERR_ARGUMENT, "65");
    tensor = matrix(-8, 2);
    REFUSED(dcp_mesh_shard(&mesh, &tensor, &rows), DCP_ERR_ARGUMENT, "-8");
}

static dcp_status gather_nothing(void *context, const dcp_collective *call, const void *send,
                                 size_t bytes, void *receive)
{
    (void)context, (void)call;
    memcpy(receive, send, bytes);
    return DCP_OK;
}

static dcp_status broadcast_nothing(void *context, const dcp_collective *call, int root, void *data,
                                    size_t bytes)
{
    (void)context, (void)call, (void)root, (void)data, (void)bytes;
    return DCP_OK;
}

static void groups(void **state)
{
    dcp_group_operations operations = {
        .size_of = sizeof operations, .all_gather = gather_nothing, .broadcast = broadcast_nothing};
    dcp_group *group = NULL;
    (void)state;

    REFUSED(dcp_group_new(&operations, NULL, 0, 1, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_group_new(NULL, NULL, 0, 1, &group), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_group_new(&operations, NULL, -1, 1, &group), DCP_ERR_ARGUMENT, "-1");
    REFUSED(dcp_group_new(&operations, NULL, 1, 1, &group), DCP_ERR_ARGUMENT, "1");
    REFUSED(dcp_group_new(&operations, NULL, 0, 0, &group), DCP_ERR_ARGUMENT, "0");
    REFUSED(dcp_group_new(&operations, NULL, 0, -5, &group), DCP_ERR_ARGUMENT, "-5");
    operations.size_of = 0;
    REFUSED(dcp_group_new(&operations, NULL, 0, 1, &group), DCP_ERR_ARGUMENT, "");
    operations.size_of = sizeof operations;
    operations.broadcast = NULL;
    REFUSED(dcp_group_new(&operations, NULL, 0, 1, &group), DCP_ERR_ARGUMENT, "broadcast");
    assert_null(group);
    REFUSED(dcp_group_new_threads(0, &group), DCP_ERR_ARGUMENT, "size");
    REFUSED(dcp_group_new_threads(-1, &group), DCP_ERR_ARGUMENT, "size");
    REFUSED(dcp_group_new_threads(2, NULL), DCP_ERR_ARGUMENT, "NULL");
}

static void allocators(void **state)
{
    const dcp_allocator empty = {0};
    (void)state;
    REFUSED(dcp_set_allocator(&empty), DCP_ERR_ARGUMENT, "alloc");
    dcp_set_log(NULL, NULL, (dcp_log_level)77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_and_keys), cmocka_unit_test(texts),
        cmocka_unit_test(tensors),         cmocka_unit_test(chunks),
        cmocka_unit_test(flat_ranges),     cmocka_unit_test(stateful_entries),
        cmocka_unit_test(reading_leaves),  cmocka_unit_test(names_of_values),
        cmocka_unit_test(meshes),          cmocka_unit_test(groups),
        cmocka_unit_test(allocators),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
