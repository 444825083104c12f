/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/state.h"
#include "fault/failing_allocator.h"

static int root_new(void **state)
{
    *state = dcp_state_new();
    return *state ? 0 : -1;
}

static int root_free(void **state)
{
    dcp_state_free(*state);
    return 0;
}

static void expect_message(const char *message)
{
    if (!strstr(dcp_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", dcp_error_message(), message);
}

static float memory[64];

static dcp_tensor matrix(int64_t rows, int64_t columns)
{
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .data = memory};
    tensor.global_shape[0] = rows;
    tensor.global_shape[1] = columns;
    return tensor;
}

static dcp_tensor chunk_of(int64_t rows, int64_t columns, int64_t row, int64_t column,
                           int64_t height, int64_t width)
{
    dcp_tensor tensor = matrix(rows, columns);
    tensor.sharded = true;
    tensor.offsets[0] = row;
    tensor.offsets[1] = column;
    tensor.sizes[0] = height;
    tensor.sizes[1] = width;
    return tensor;
}

static void values_are_kept(void **state)
{
    dcp_state *root = *state;
    dcp_state *train = dcp_state_dict(root, "train");
    dcp_state *list = dcp_state_list(train, "");
    assert_int_equal(dcp_state_none(list, NULL), DCP_OK);
    assert_int_equal(dcp_state_bool(list, NULL, true), DCP_OK);
    assert_int_equal(dcp_state_int(list, NULL, -5), DCP_OK);
    assert_int_equal(dcp_state_uint(list, NULL, UINT64_MAX), DCP_OK);
    assert_int_equal(dcp_state_float(list, NULL, 0.5), DCP_OK);
    assert_int_equal(dcp_state_string(list, NULL, "a.b \xc3\xa9"), DCP_OK);
    assert_int_equal(dcp_state_text(list, NULL, "x\0y", 3), DCP_OK);
    assert_int_equal(dcp_state_bytes(list, NULL, "\xff\0", 2), DCP_OK);
    assert_int_equal(dcp_state_bytes(list, NULL, NULL, 0), DCP_OK);
    assert_non_null(dcp_state_tuple(list, NULL));
    assert_int_equal(dcp_state_status(root), DCP_OK);

    bool truth;
    int64_t integer;
    uint64_t natural;
    double number;
    const char *text;
    const void *bytes;
    size_t length;
    assert_ptr_equal(dcp_state_find(train, ""), list);
    assert_int_equal(dcp_state_kind(dcp_state_at(list, 0)), DCP_KIND_NONE);
    assert_int_equal(dcp_state_as_bool(dcp_state_at(list, 1), &truth), DCP_OK);
    assert_true(truth);
    assert_int_equal(dcp_state_as_int(dcp_state_at(list, 2), &integer), DCP_OK);
    assert_int_equal(integer, -5);
    assert_int_equal(dcp_state_as_uint(dcp_state_at(list, 3), &natural), DCP_OK);
    assert_int_equal(natural, UINT64_MAX);
    assert_int_equal(dcp_state_as_float(dcp_state_at(list, 4), &number), DCP_OK);
    assert_true(number == 0.5);
    assert_int_equal(dcp_state_as_text(dcp_state_at(list, 5), &text, NULL), DCP_OK);
    assert_string_equal(text, "a.b \xc3\xa9");
    assert_int_equal(dcp_state_as_text(dcp_state_at(list, 6), &text, &length), DCP_OK);
    assert_int_equal(length, 3);
    assert_memory_equal(text, "x\0y", 4);
    assert_int_equal(dcp_state_as_bytes(dcp_state_at(list, 7), &bytes, &length), DCP_OK);
    assert_int_equal(length, 2);
    assert_memory_equal(bytes, "\xff\0", 2);
    assert_int_equal(dcp_state_kind(dcp_state_at(list, 9)), DCP_KIND_TUPLE);
    assert_int_equal(dcp_state_count(list), 10);
}

static void keys_are_checked(void **state)
{
    dcp_state *root = *state;
    dcp_state *list = dcp_state_list(root, "list");
    assert_int_equal(dcp_state_int(root, "a", 1), DCP_OK);
    assert_int_equal(dcp_state_int(root, "a", 2), DCP_ERR_DUPLICATE);
    expect_message("\"a\" is in the dict already");
    assert_int_equal(dcp_state_int(root, NULL, 2), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_int(root, "\xff", 2), DCP_ERR_ARGUMENT);
    expect_message("UTF-8");
    assert_int_equal(dcp_state_int(root, "\xed\xa0\x80", 2), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_int(list, "a", 2), DCP_ERR_ARGUMENT);
    expect_message("elements of a list have no key");
    assert_int_equal(dcp_state_int(NULL, "a", 2), DCP_ERR_ARGUMENT);
    expect_message("the parent is NULL");
    assert_int_equal(dcp_state_int(dcp_state_find(root, "a"), "b", 2), DCP_ERR_ARGUMENT);
    expect_message("the parent is of kind int");
    assert_null(dcp_state_dict(list, "a"));
    assert_int_equal(dcp_state_count(list), 0);
    assert_int_equal(dcp_state_count(root), 2);
}

static void values_are_checked(void **state)
{
    dcp_state *root = *state;
    const dcp_stateful nothing = {0};
    assert_int_equal(dcp_state_string(root, "a", NULL), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_string(root, "a", "\xc3"), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_bytes(root, "a", NULL, 1), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_stateful(root, "a", NULL), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_stateful(root, "a", &nothing), DCP_ERR_ARGUMENT);
    assert_null(dcp_state_tensor(root, "a", NULL));
    expect_message("tensor \"a\": the tensor is NULL");
    assert_int_equal(dcp_state_count(root), 0);
    assert_int_equal(dcp_state_status(NULL), DCP_ERR_ARGUMENT);
}

static dcp_status no_state(void *context, dcp_state *into)
{
    (void)context;
    (void)into;
    return DCP_OK;
}

static void stateful_entries_are_in_dicts(void **state)
{
    const dcp_stateful stateful = {.state_dict = no_state};
    assert_int_equal(dcp_state_stateful(*state, "a", &stateful), DCP_OK);
    assert_int_equal(dcp_state_stateful(dcp_state_list(*state, "list"), NULL, &stateful),
                     DCP_ERR_ARGUMENT);
    expect_message("not in a list");
}

static void the_first_failure_sticks(void **state)
{
    dcp_state *root = *state;
    assert_int_equal(dcp_state_status(root), DCP_OK);
    dcp_state *lost = dcp_state_dict(dcp_state_find(root, "nowhere"), "inner");
    assert_null(lost);
    assert_int_equal(dcp_state_status(root), DCP_OK); /* a NULL parent belongs to no tree */
    assert_null(dcp_state_dict(root, "\xff"));
    assert_int_equal(dcp_state_int(root, "fine", 1), DCP_OK);
    assert_int_equal(dcp_state_int(root, "fine", 1), DCP_ERR_DUPLICATE);
    dcp_error_set(DCP_ERR_IO, "something else");
    assert_int_equal(dcp_state_status(dcp_state_find(root, "fine")), DCP_ERR_ARGUMENT);
    expect_message("not valid UTF-8");
}

static void interned_keys_are_copies(void **state)
{
    char text[] = "layers.0.weight and more";
    const char *key = dcp_state_intern(*state, text, 15);
    text[0] = 'x';
    assert_string_equal(key, "layers.0.weight");
    assert_string_equal(dcp_state_intern(*state, NULL, 0), "");
    assert_null(dcp_state_intern(*state, "a\0b", 3));
    expect_message("NUL");
    assert_null(dcp_state_intern(*state, "\xff", 1));
    assert_null(dcp_state_intern(*state, NULL, 3));
    assert_null(dcp_state_intern(NULL, "a", 1));
    assert_int_equal(dcp_state_status(*state), DCP_ERR_ARGUMENT);
}

static void tensors_are_described_back(void **state)
{
    dcp_tensor tensor = chunk_of(8, 6, 2, 0, 4, 6);
    dcp_tensor found;
    tensor.strided = true;
    tensor.strides[0] = 1;
    tensor.strides[1] = 4;
    tensor.requires_grad = true;
    dcp_state *node = dcp_state_tensor(*state, "w", &tensor);
    assert_non_null(node);
    assert_int_equal(dcp_state_chunk_count(node), 1);
    assert_int_equal(dcp_state_chunk(node, 0, &found), DCP_OK);
    assert_memory_equal(&found, &tensor, sizeof tensor);

    tensor = matrix(3, 5);
    node = dcp_state_tensor(*state, "whole", &tensor);
    assert_int_equal(dcp_state_chunk(node, 0, &found), DCP_OK);
    assert_false(found.sharded || found.strided || found.requires_grad);
    assert_int_equal(found.sizes[1], 5);
    assert_int_equal(found.strides[0], 5);
    assert_int_equal(dcp_state_chunk(node, 1, &found), DCP_ERR_ARGUMENT);
}

static void chunks_are_added(void **state)
{
    dcp_tensor chunk = chunk_of(8, 6, 0, 0, 4, 6);
    dcp_state *node = dcp_state_tensor(*state, "w", &chunk);
    for (int64_t row = 4; row < 8; row++) {
        chunk = chunk_of(8, 6, row, 0, 1, 6);
        assert_int_equal(dcp_state_add_chunk(node, &chunk), DCP_OK);
    }
    chunk = chunk_of(8, 6, 8, 0, 0, 6); /* nothing */
    assert_int_equal(dcp_state_add_chunk(node, &chunk), DCP_OK);
    assert_int_equal(dcp_state_chunk_count(node), 6);

    chunk = chunk_of(8, 6, 3, 5, 1, 1);
    assert_int_equal(dcp_state_add_chunk(node, &chunk), DCP_ERR_OVERLAP);
    expect_message("[3:4, 5:6] overlaps the chunk [0:4, 0:6]");
    chunk = chunk_of(8, 7, 3, 5, 1, 1);
    assert_int_equal(dcp_state_add_chunk(node, &chunk), DCP_ERR_ARGUMENT);
    expect_message("global shape is [8, 7], its tensor's is [8, 6]");
    chunk = chunk_of(8, 6, 3, 5, 1, 1);
    chunk.dtype = DCP_F16;
    assert_int_equal(dcp_state_add_chunk(node, &chunk), DCP_ERR_ARGUMENT);
    expect_message("float16");
    assert_int_equal(dcp_state_add_chunk(node, NULL), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_add_chunk(NULL, &chunk), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_add_chunk(*state, &chunk), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_state_chunk_count(node), 6);
    assert_int_equal(dcp_state_status(*state), DCP_ERR_OVERLAP);
}

static void refuse(dcp_state *root, const dcp_tensor *tensor, dcp_status status,
                   const char *message)
{
    dcp_state *scratch = dcp_state_new();
    (void)root;
    assert_null(dcp_state_tensor(scratch, "w", tensor));
    expect_message("tensor \"w\": ");
    expect_message(message);
    assert_int_equal(dcp_state_status(scratch), status);
    dcp_state_free(scratch);
}

static dcp_status allocate_nothing(const dcp_device *device, size_t bytes, void **place)
{
    (void)device, (void)bytes, (void)place;
    return DCP_ERR_NO_MEMORY;
}

static void release_nothing(const dcp_device *device, void *place)
{
    (void)device, (void)place;
}

static dcp_status copy_nothing_out(const dcp_device *device, void *host, const void *place,
                                   size_t pitch, size_t width, size_t height)
{
    (void)device, (void)host, (void)place, (void)pitch, (void)width, (void)height;
    return DCP_ERR_DEVICE;
}

static dcp_status copy_nothing_in(const dcp_device *device, void *place, size_t pitch,
                                  const void *host, size_t width, size_t height)
{
    (void)device, (void)host, (void)place, (void)pitch, (void)width, (void)height;
    return DCP_ERR_DEVICE;
}

static dcp_status lock_nothing(const dcp_device *device, void *host, size_t bytes)
{
    (void)device, (void)host, (void)bytes;
    return DCP_ERR_DEVICE;
}

static void tensors_are_checked(void **state)
{
    dcp_tensor tensor = matrix(8, 6);
    tensor.dtype = (dcp_dtype)99;
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "99 is not a dtype");
    tensor = matrix(8, 6);
    tensor.ndim = -1;
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "-1 dimensions");
    tensor.ndim = DCP_MAX_DIMS + 1;
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "65 dimensions");
    tensor = matrix(8, 6);
    tensor.device.operations = &(dcp_device_operations){.size_of = 8};
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "operations have 8 bytes");
    tensor.device.operations =
        &(dcp_device_operations){.size_of = sizeof(dcp_device_operations), .name = "none"};
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "lacks a required operation");
    dcp_device_operations half = {.size_of = sizeof half,
                                  .name = "half",
                                  .allocate = allocate_nothing,
                                  .release = release_nothing,
                                  .copy_to_host = copy_nothing_out,
                                  .copy_from_host = copy_nothing_in,
                                  .page_lock = lock_nothing};
    tensor.device.operations = &half;
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "has some of the operations for overlapping");
    tensor = matrix(-8, 6);
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "[-8, 6] has a negative size in dimension 0");
    tensor = matrix(INT64_MAX, 2);
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "64 bits");
    tensor = chunk_of(8, 6, 5, 0, 4, 6);
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "chunk at [5, 0] of sizes [4, 6]");
    tensor = chunk_of(8, 6, -1, 0, 4, 6);
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "not inside the global shape [8, 6]");
    tensor = chunk_of(8, 6, INT64_MAX, 0, INT64_MAX, 6);
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "not inside");
}

static void strides_are_checked(void **state)
{
    dcp_tensor tensor = matrix(8, 6);
    tensor.strided = true;
    tensor.strides[0] = INT64_MIN;
    tensor.strides[1] = 1;
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "leaves the address space");
    tensor.strides[0] = INT64_MAX / 7;
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "dimension 0 of size 8");
    tensor.strides[0] = INT64_MAX / 16; /* one row is within reach */
    refuse(*state, &tensor, DCP_ERR_ARGUMENT, "dimension 0 of size 8");
    tensor.strides[0] = -6;
    tensor.strides[1] = 0;
    assert_non_null(dcp_state_tensor(*state, "backwards", &tensor));
    tensor = matrix(8, 0);
    tensor.strided = true;
    tensor.strides[0] = INT64_MAX;
    assert_non_null(dcp_state_tensor(*state, "empty", &tensor));
}

static void tensors_without_dimensions_or_elements(void **state)
{
    dcp_tensor scalar = {.dtype = DCP_I64, .data = memory};
    dcp_tensor none = matrix(0, 5);
    dcp_tensor found;
    dcp_state *node = dcp_state_tensor(*state, "scalar", &scalar);
    assert_int_equal(dcp_state_chunk(node, 0, &found), DCP_OK);
    assert_int_equal(found.ndim, 0);
    assert_int_equal(dcp_state_add_chunk(node, &scalar), DCP_ERR_OVERLAP);
    node = dcp_state_tensor(*state, "none", &none);
    assert_int_equal(dcp_state_add_chunk(node, &none), DCP_OK);
}

/* As a caller compiled against a larger or a smaller struct passes it. */
static void structs_travel_with_their_size(void **state)
{
    struct {
        dcp_tensor tensor;
        uint64_t later;
    } larger = {matrix(2, 3), 0};
    dcp_state *node = dcp_state_tensor_sized(*state, "larger", &larger.tensor, sizeof larger);
    assert_non_null(node);
    memset(&larger, 0xee, sizeof larger);
    assert_int_equal(dcp_state_chunk_sized(node, 0, &larger.tensor, sizeof larger), DCP_OK);
    assert_int_equal(larger.later, 0);
    assert_int_equal(larger.tensor.global_shape[1], 3);

    dcp_tensor smaller = matrix(2, 3);
    size_t size = offsetof(dcp_tensor, offsets);
    smaller.strides[0] = 77;
    assert_non_null(dcp_state_tensor_sized(*state, "smaller", &smaller, size));
    smaller.offsets[0] = 99;
    assert_int_equal(dcp_state_chunk_sized(node, 0, &smaller, size), DCP_OK);
    assert_int_equal(smaller.offsets[0], 99);

    larger.later = 1;
    assert_null(dcp_state_tensor_sized(*state, "unknown", &larger.tensor, sizeof larger));
    expect_message("knows only");
    assert_int_equal(dcp_state_status(*state), DCP_ERR_ARGUMENT);
}

static void build_everything(dcp_state *root)
{
    dcp_tensor chunk = chunk_of(8, 6, 0, 0, 4, 6);
    dcp_state *model = dcp_state_dict(root, "model");
    for (int i = 0; i < 40; i++) {
        char key[100];
        snprintf(key, sizeof key, "%080d", i);
        dcp_state *node = dcp_state_tensor(model, key, &chunk);
        dcp_tensor other = chunk_of(8, 6, 4, 0, 4, 6);
        dcp_state_add_chunk(node, &other);
    }
    dcp_tensor whole = matrix(4, 16);
    dcp_state_flat_range(model, "flat", &whole, 3, 40, memory);
    dcp_state *list = dcp_state_list(root, "list");
    for (int i = 0; i < 200; i++) {
        dcp_state_none(list, NULL);
        dcp_state_bool(list, NULL, true);
        dcp_state_int(list, NULL, i);
        dcp_state_uint(list, NULL, UINT64_MAX);
        dcp_state_float(list, NULL, 0.5);
        dcp_state_string(list, NULL, "text");
        dcp_state_bytes(list, NULL, memory, sizeof memory);
        dcp_state_intern(root, "a key of some length", 20);
    }
    const dcp_stateful stateful = {.state_dict = no_state};
    dcp_state_stateful(root, "stateful", &stateful);
}

static void memory_failures_stick(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_state *root = dcp_state_new();
        dcp_status status = DCP_ERR_NO_MEMORY;
        if (root) {
            build_everything(root);
            status = dcp_state_status(root);
        }
        dcp_state_free(root);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, root_new, root_free)

/* A description that could mean two things is neither. */
static void tensors_that_could_mean_two_things_are_refused(void **state)
{
    static float data[16];
    static const struct {
        dcp_tensor tensor;
        const char *message;
    } cases[] = {
        {{.dtype = DCP_F32, .global_shape = {4, 4}, .data = data},
         "tensor \"w\": ndim is 0, but global_shape begins with 4: set ndim to the number of"},
        {{.dtype = DCP_F32, .ndim = 2, .global_shape = {8, 4}, .sizes = {4, 4}, .data = data},
         "tensor \"w\": sizes are [4, 4], but sharded is false, which means the whole tensor: set"},
        {{.dtype = DCP_F32, .ndim = 2, .global_shape = {8, 4}, .offsets = {4, 0}, .data = data},
         "tensor \"w\": offsets are [4, 0], but sharded is false"},
        {{.dtype = DCP_F32, .ndim = 2, .global_shape = {8, 4}, .offsets = {4}, .sizes = {4, 4}},
         "tensor \"w\": offsets are [4, 0], but sharded is false"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_state *root = dcp_state_new();
        assert_null(dcp_state_tensor(root, "w", &cases[i].tensor));
        assert_int_equal(dcp_state_status(root), DCP_ERR_ARGUMENT);
        if (!strstr(dcp_error_message(), cases[i].message))
            fail_msg("case %zu: %s", i, dcp_error_message());
        dcp_state_free(root);
    }
    /* Sizes of the whole say the same twice. */
    dcp_state *root = dcp_state_new();
    dcp_tensor whole = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {4, 4}, .sizes = {4, 4}, .data = data};
    assert_non_null(dcp_state_tensor(root, "w", &whole));
    dcp_state_free(root);
}

static void a_chunk_that_does_not_fit_names_its_tensor(void **state)
{
    static float data[16];
    dcp_tensor chunk = {.dtype = DCP_F32,
                        .ndim = 1,
                        .sharded = true,
                        .global_shape = {8},
                        .sizes = {4},
                        .data = data};
    dcp_state *root = dcp_state_new(), *weight, *element;
    (void)state;
    weight = dcp_state_tensor(dcp_state_dict(root, "model"), "weight", &chunk);
    element = dcp_state_tensor(dcp_state_list(root, "list"), NULL, &chunk);
    assert_int_equal(dcp_state_add_chunk(weight, &chunk), DCP_ERR_OVERLAP);
    assert_memory_equal(dcp_error_message(), "adding a chunk to tensor \"weight\": the chunk ", 45);
    assert_int_equal(dcp_state_add_chunk(element, &chunk), DCP_ERR_OVERLAP);
    assert_memory_equal(dcp_error_message(), "adding a chunk to tensor \"(an element)\": ", 41);
    dcp_state_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(values_are_kept),
        TEST(keys_are_checked),
        TEST(values_are_checked),
        TEST(stateful_entries_are_in_dicts),
        TEST(the_first_failure_sticks),
        TEST(interned_keys_are_copies),
        TEST(tensors_are_described_back),
        TEST(chunks_are_added),
        TEST(tensors_are_checked),
        TEST(strides_are_checked),
        TEST(tensors_without_dimensions_or_elements),
        TEST(structs_travel_with_their_size),
        cmocka_unit_test(memory_failures_stick),
        cmocka_unit_test(tensors_that_could_mean_two_things_are_refused),
        cmocka_unit_test(a_chunk_that_does_not_fit_names_its_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
