/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong arguments of every public call: each is an error that says what is wrong, never a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"
#include "storage/scratch.h"

static int line_of_test; /* of the last check, for the message */

static void check_refused(dcp_status status, dcp_status expected, const char *part)
{
    if (status != expected || !strstr(dcp_error_message(), part))
        fail_msg("line %d: %d (%s) \"%s\", expected %d with \"%s\"", line_of_test, (int)status,
                 dcp_status_string(status), dcp_error_message(), (int)expected, part);
}

#define REFUSED(call, expected, part)                                                              \
    (line_of_test = __LINE__, check_refused((call), (expected), (part)))

/* A call that returns a pointer: NULL, and the root keeps the failure. */
#define NOT_BUILT(call, root, expected, part)                                                      \
    do {                                                                                           \
        assert_null(call);                                                                         \
        REFUSED(dcp_state_status(root), (expected), (part));                                       \
        dcp_state_free(root);                                                                      \
        (root) = dcp_state_new();                                                                  \
    } while (0)

static float memory[64];

static dcp_tensor matrix(int64_t rows, int64_t columns)
{
    return (dcp_tensor){
        .dtype = DCP_F32, .ndim = 2, .data = memory, .global_shape = {rows, columns}};
}

static dcp_tensor piece(int64_t first, int64_t rows)
{
    dcp_tensor tensor = matrix(8, 2);
    tensor.sharded = true;
    tensor.offsets[0] = first;
    tensor.sizes[0] = rows;
    tensor.sizes[1] = 2;
    return tensor;
}

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
    NOT_BUILT(dcp_state_dict(dcp_state_get(root, "leaf"), "x"), root, DCP_ERR_ARGUMENT, "int");

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
        tensor.data = memory;
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
        NOT_BUILT(dcp_state_flat_range(root, "w", &whole, ranges[i][0], ranges[i][1], memory), root,
                  DCP_ERR_ARGUMENT, "w");
    NOT_BUILT(dcp_state_flat_range(root, "w", NULL, 0, 1, memory), root, DCP_ERR_ARGUMENT, "NULL");
    assert_null(dcp_state_flat_range(NULL, "w", &whole, 0, 1, memory));
    dcp_state_free(root);
}

static dcp_status nothing_to_tell(void *context, dcp_state *into)
{
    (void)context, (void)into;
    return DCP_OK;
}

static void stateful_entries(void **state)
{
    const dcp_stateful empty = {0}, stateful = {.state_dict = nothing_to_tell};
    dcp_state *root = dcp_state_new();
    (void)state;

    REFUSED(dcp_state_stateful(root, "s", NULL), DCP_ERR_ARGUMENT, "\"s\"");
    REFUSED(dcp_state_stateful(root, "s", &empty), DCP_ERR_ARGUMENT, "state_dict");
    REFUSED(dcp_state_stateful(dcp_state_list(root, "l"), NULL, &stateful), DCP_ERR_ARGUMENT,
            "list");
    REFUSED(dcp_state_stateful(NULL, "s", &stateful), DCP_ERR_ARGUMENT, "NULL");
    dcp_state_free(root);
}

/* ---- structs of other versions ---- */

static void larger_structs(void **state)
{
    struct {
        dcp_tensor tensor;
        int64_t later;
    } larger = {matrix(2, 2), 0};
    struct {
        dcp_save_options options;
        int64_t later;
    } save = {.later = 1};
    struct {
        dcp_load_options options;
        int64_t later;
    } load = {.later = 1};
    dcp_state *root = dcp_state_new();

    assert_non_null(dcp_state_tensor_sized(root, "zero", &larger.tensor, sizeof larger));
    REFUSED(dcp_save_sized(root, *state, &save.options, sizeof save), DCP_ERR_ARGUMENT, "know");
    REFUSED(dcp_load_sized(root, *state, &load.options, sizeof load, NULL), DCP_ERR_ARGUMENT,
            "know");
    larger.later = 1;
    NOT_BUILT(dcp_state_tensor_sized(root, "later", &larger.tensor, sizeof larger), root,
              DCP_ERR_ARGUMENT, "know");
    /* An earlier version knew nothing of the shape. */
    NOT_BUILT(dcp_state_tensor_sized(root, "earlier", &larger.tensor, 0), root, DCP_ERR_ARGUMENT,
              "dtype");
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
    const dcp_state *minus = dcp_state_get(root, "minus"), *most = dcp_state_get(root, "most");
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
    assert_null(dcp_state_get(root, NULL));
    assert_null(dcp_state_get(NULL, "a"));
    assert_null(dcp_state_get(minus, "a"));
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
    dcp_close(NULL);
    dcp_group_free(NULL);
    dcp_load_report_free(NULL);
    assert_int_equal(dcp_load_report_count(NULL), 0);
    assert_string_equal(dcp_load_report_line(NULL, 3).name, "");
    assert_int_equal(dcp_entry_count(NULL), 0);
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

/* ---- saving ---- */

static void save_options(void **state)
{
    const struct {
        dcp_save_options options;
        const char *part;
    } wrong[] = {
        {{.coordinator = -1}, "coordinator"},
        {{.coordinator = 1}, "coordinator"},
        {{.overwrite = (dcp_overwrite)2}, "overwrite"},
        {{.replicas = (dcp_replicas)-1}, "replicas"},
        {{.files = (dcp_file_layout)100}, "files"},
        {{.thread_count = -1}, "thread_count"},
        {{.thread_count = DCP_MAX_THREADS + 1}, "thread_count"},
        {{.compression = (dcp_compression)2}, "compression"},
        {{.io_threads = -1}, "io_threads"},
        {{.io_threads = DCP_MAX_THREADS + 1}, "io_threads"},
        {{.io_priority = (dcp_io_priority)3}, "io_priority"},
        {{.compression_threads = -1}, "compression_threads"},
        {{.compression_threads = DCP_MAX_THREADS + 1}, "compression_threads"},
#if DCP_HAVE_ZSTD
        {{.compression = DCP_COMPRESSION_ZSTD, .compression_level = 23}, "compression_level"},
        {{.compression = DCP_COMPRESSION_ZSTD, .compression_level = INT32_MIN},
         "compression_level"},
#endif
        {{.timeout_seconds = -1}, "timeout"},
        {{.timeout_seconds = (double)NAN}, "timeout"},
        {{.timeout_seconds = (double)INFINITY}, "timeout"},
    };
    char *path = scratch_path(*state, "saved");
    dcp_state *root = dcp_state_new();

    dcp_state_int(root, "step", 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSED(dcp_save(root, path, &wrong[i].options), DCP_ERR_ARGUMENT, wrong[i].part);
    dcp_save_options options = {.info = dcp_state_get(root, "step")};
    REFUSED(dcp_save(root, path, &options), DCP_ERR_ARGUMENT, "info");
    REFUSED(dcp_save(NULL, path, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_save(root, NULL, NULL), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_save(root, "", NULL), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_save(dcp_state_get(root, "step"), path, NULL), DCP_ERR_ARGUMENT, "int");
#if !DCP_HAVE_ZSTD
    options = (dcp_save_options){.compression = DCP_COMPRESSION_ZSTD};
    REFUSED(dcp_save(root, path, &options), DCP_ERR_UNSUPPORTED, "DCP_ZSTD");
#endif
    assert_false(scratch_exists(*state, "saved"));
    free(path);
    dcp_state_free(root);
}

static void states_to_save(void **state)
{
    char *path = scratch_path(*state, "saved");
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = piece(0, 3);

    dcp_state_tensor(root, "w", &tensor);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_COVERAGE, "w");
    tensor = piece(4, 4);
    dcp_state_add_chunk(dcp_state_get(root, "w"), &tensor);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_COVERAGE, "[3");
    dcp_state_free(root);

    root = dcp_state_new();
    tensor = matrix(2, 2);
    tensor.data = NULL;
    dcp_state_tensor(root, "w", &tensor);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_ARGUMENT, "memory");
    dcp_state_free(root);

    root = dcp_state_new();
    dcp_state_int(root, "a.b", 1);
    dcp_state_int(dcp_state_dict(root, "a"), "b", 2);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_DUPLICATE, "a.b");
    dcp_state_free(root);

    /* What went wrong while building comes back. */
    root = dcp_state_new();
    dcp_state_int(root, "a", 1);
    dcp_state_int(root, "a", 2);
    dcp_state_string(root, "b", NULL);
    REFUSED(dcp_save(root, path, NULL), DCP_ERR_DUPLICATE, "\"a\"");
    dcp_state_free(root);
    assert_false(scratch_exists(*state, "saved"));
    free(path);
}

/* ---- loading and reading ---- */

static char *save_small(const char *directory)
{
    char *path = scratch_path(directory, "small");
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = matrix(8, 2);

    dcp_state_tensor(root, "w", &tensor);
    dcp_state_int(root, "step", 7);
    assert_int_equal(dcp_save(root, path, NULL), DCP_OK);
    dcp_state_free(root);
    return path;
}

static void load_options(void **state)
{
    const struct {
        dcp_load_options options;
        const char *part;
    } wrong[] = {
        {{.coordinator = 3}, "coordinator"},
        {{.strictness = (dcp_strictness)3}, "strictness"},
        {{.verification = (dcp_verification)-1}, "verification"},
        {{.io_priority = (dcp_io_priority)-1}, "io_priority"},
        {{.timeout_seconds = -(double)INFINITY}, "timeout"},
    };
    char *path = save_small(*state);
    dcp_state *root = dcp_state_new();
    dcp_load_report *report = (dcp_load_report *)&report;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSED(dcp_load(root, path, &wrong[i].options, &report), DCP_ERR_ARGUMENT, wrong[i].part);
        assert_null(report);
    }
    REFUSED(dcp_load(NULL, path, NULL, NULL), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_load(root, NULL, NULL, NULL), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_load(root, "", NULL, NULL), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_load(root, "/nowhere/at all", NULL, NULL), DCP_ERR_NOT_FOUND, "/nowhere/at all");
    dcp_state_free(root);
    free(path);
}

static void choice_of_names(void **state)
{
    const char *const nothing[] = {NULL}, *const open[] = {"a[b"}, *const odd[] = {"\xff"};
    const dcp_rename wrong[] = {
        {(dcp_rename_kind)99, "a", "b"},      {DCP_RENAME_EXACT, NULL, "b"},
        {DCP_RENAME_EXACT, "a", NULL},        {DCP_RENAME_PREFIX, NULL, NULL},
        {DCP_RENAME_GLOB, "a*", "b*c*"},      {DCP_RENAME_GLOB, "[", "b"},
        {DCP_RENAME_PREFIX, "a", "\xc3\x28"}, {(dcp_rename_kind)-1, "", ""},
    };
    const struct {
        dcp_load_options options;
        const char *part;
    } lists[] = {
        {{.include_count = 1}, "include"},
        {{.exclude_count = SIZE_MAX}, "exclude"},
        {{.include = nothing, .include_count = 1}, "include[0]"},
        {{.exclude = nothing, .exclude_count = 1}, "exclude[0]"},
        {{.include = open, .include_count = 1}, "include[0]"},
        {{.exclude = odd, .exclude_count = 1}, "exclude[0]"},
        {{.rename_count = 1}, "renames"},
    };
    char *path = save_small(*state);
    dcp_state *root = dcp_state_new();

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        REFUSED(dcp_load(root, path, &lists[i].options, NULL), DCP_ERR_ARGUMENT, lists[i].part);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dcp_load_options options = {.renames = &wrong[i], .rename_count = 1};
        REFUSED(dcp_load(root, path, &options, NULL), DCP_ERR_ARGUMENT, "renames[0]");
    }
    dcp_state_free(root);
    free(path);
}

/* Patterns that would take years if every way to match them were tried. */
static void patterns_that_almost_match(void **state)
{
    char *path = save_small(*state), name[5001] = "";
    const char *const include[] = {"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b"};
    const dcp_rename rule = {DCP_RENAME_GLOB, "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", "*"};
    const dcp_load_options options = {
        .include = include, .include_count = 1, .renames = &rule, .rename_count = 1};
    dcp_state *root = dcp_state_new();

    memset(name, 'a', sizeof name - 1);
    dcp_state_int(root, name, 1);
    assert_int_equal(dcp_load(root, path, &options, NULL), DCP_OK);
    dcp_state_free(root);
    free(path);
}

static void destinations(void **state)
{
    char *path = save_small(*state);
    const int64_t strides[][2] = {{0, 1}, {1, 1}, {1, 0}, {2, 2}};
    static float room[64];

    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        dcp_state *root = dcp_state_new();
        dcp_tensor tensor = matrix(8, 2);
        tensor.strided = true;
        tensor.data = room;
        memcpy(tensor.strides, strides[i], sizeof strides[i]);
        dcp_state_tensor(root, "w", &tensor);
        REFUSED(dcp_load(root, path, NULL, NULL), DCP_ERR_ARGUMENT, "w");
        dcp_state_free(root);
    }
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = matrix(4, 4);
    dcp_state_tensor(root, "w", &tensor);
    REFUSED(dcp_load(root, path, NULL, NULL), DCP_ERR_SHAPE, "[4, 4]");
    dcp_state_free(root);
    root = dcp_state_new();
    dcp_state_int(root, "w", 0);
    REFUSED(dcp_load(root, path, NULL, NULL), DCP_ERR_KIND, "w");
    dcp_state_none(root, "w");
    REFUSED(dcp_load(root, path, NULL, NULL), DCP_ERR_DUPLICATE, "\"w\"");
    dcp_state_free(root);
    free(path);
}

static void views(void **state)
{
    char *path = save_small(*state);
    dcp_checkpoint *checkpoint = NULL;
    dcp_entry entry;
    dcp_stored_chunk chunk;
    uint64_t faults;
    size_t index, object;

    REFUSED(dcp_open(NULL, &checkpoint), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_open("", &checkpoint), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_open(path, NULL), DCP_ERR_ARGUMENT, "place");
    REFUSED(dcp_verify(NULL, NULL, NULL, &faults), DCP_ERR_ARGUMENT, "path");
    REFUSED(dcp_verify(path, NULL, NULL, NULL), DCP_ERR_ARGUMENT, "");
    assert_int_equal(dcp_open(path, &checkpoint), DCP_OK);
    REFUSED(dcp_entry_at(checkpoint, 2, &entry), DCP_ERR_ARGUMENT, "2");
    REFUSED(dcp_entry_at(checkpoint, SIZE_MAX, &entry), DCP_ERR_ARGUMENT, "entry");
    REFUSED(dcp_entry_at_sized(checkpoint, 0, NULL, sizeof entry), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_entry_at(NULL, 0, &entry), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_entry_find(checkpoint, "no such", &index), DCP_ERR_NOT_FOUND, "no such");
    REFUSED(dcp_entry_find(checkpoint, NULL, &index), DCP_ERR_ARGUMENT, "name");
    REFUSED(dcp_entry_find(NULL, "w", &index), DCP_ERR_ARGUMENT, "checkpoint");
    REFUSED(dcp_entry_find(checkpoint, "w", NULL), DCP_ERR_ARGUMENT, "place");
    assert_int_equal(dcp_entry_find(checkpoint, "w", &index), DCP_OK);
    assert_int_equal(dcp_entry_find(checkpoint, "step", &object), DCP_OK);
    REFUSED(dcp_entry_chunk(checkpoint, index, 1, &chunk), DCP_ERR_ARGUMENT, "w");
    REFUSED(dcp_entry_chunk(checkpoint, 9, 0, &chunk), DCP_ERR_ARGUMENT, "9");
    REFUSED(dcp_entry_chunk_sized(checkpoint, index, 0, NULL, 0), DCP_ERR_ARGUMENT, "NULL");

    dcp_tensor tensor = matrix(8, 2);
    REFUSED(dcp_read_tensor(NULL, index, &tensor, DCP_VERIFY_READ), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_read_tensor(checkpoint, 5, &tensor, DCP_VERIFY_READ), DCP_ERR_ARGUMENT, "5");
    REFUSED(dcp_read_tensor_sized(checkpoint, index, NULL, 8, DCP_VERIFY_READ), DCP_ERR_ARGUMENT,
            "w");
    REFUSED(dcp_read_tensor(checkpoint, object, &tensor, DCP_VERIFY_READ), DCP_ERR_KIND, "step");
    REFUSED(dcp_read_tensor(checkpoint, index, &tensor, (dcp_verification)9), DCP_ERR_ARGUMENT,
            "verification");
    tensor.data = NULL;
    REFUSED(dcp_read_tensor(checkpoint, index, &tensor, DCP_VERIFY_READ), DCP_ERR_ARGUMENT,
            "memory");
    tensor.sharded = true; /* nothing of it needs no memory */
    assert_int_equal(dcp_read_tensor(checkpoint, index, &tensor, DCP_VERIFY_READ), DCP_OK);
    tensor = matrix(2, 8);
    REFUSED(dcp_read_tensor(checkpoint, index, &tensor, DCP_VERIFY_READ), DCP_ERR_SHAPE, "w");
    tensor = matrix(8, 2);
    tensor.dtype = DCP_I32;
    REFUSED(dcp_read_tensor(checkpoint, index, &tensor, DCP_VERIFY_READ), DCP_ERR_DTYPE, "w");

    dcp_state *root = dcp_state_new();
    REFUSED(dcp_read_object(checkpoint, object, NULL, "a"), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_read_object(NULL, object, root, "a"), DCP_ERR_ARGUMENT, "NULL");
    REFUSED(dcp_read_object(checkpoint, index, root, "a"), DCP_ERR_KIND, "w");
    REFUSED(dcp_read_object(checkpoint, 77, root, "a"), DCP_ERR_ARGUMENT, "77");
    assert_int_equal(dcp_state_status(root), DCP_OK);
    assert_int_equal(dcp_state_count(root), 0);
    REFUSED(dcp_read_object(checkpoint, object, root, NULL), DCP_ERR_ARGUMENT, "key");
    dcp_state_free(root);
    dcp_close(checkpoint);
    free(path);
}

#define TEST(function)  cmocka_unit_test(function)
#define FILES(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(places_and_keys),
        TEST(texts),
        TEST(tensors),
        TEST(chunks),
        TEST(flat_ranges),
        TEST(stateful_entries),
        FILES(larger_structs),
        TEST(reading_leaves),
        TEST(names_of_values),
        TEST(meshes),
        TEST(groups),
        TEST(allocators),
        FILES(save_options),
        FILES(states_to_save),
        FILES(load_options),
        FILES(choice_of_names),
        FILES(patterns_that_almost_match),
        FILES(destinations),
        FILES(views),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
