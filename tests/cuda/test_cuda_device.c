/* SPDX-License-Identifier: BSD-3-Clause */
/* libdcp_cuda over the stand-in runtime: order, waiting, the caller's current device, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "cuda/stand_in_cuda.h"
#include "dcp/cuda.h"
#include "device/stand_in.h"

enum { ROWS = 40, COLUMNS = 50, COUNT = ROWS * COLUMNS };

static int setup(void **state)
{
    stand_in_cuda_begin();
    return directory_setup(state);
}

static int teardown(void **state)
{
    stand_in_cuda_end();
    return directory_teardown(state);
}

static dcp_tensor matrix(dcp_device device, void *data)
{
    return (dcp_tensor){.dtype = DCP_I32,
                        .ndim = 2,
                        .global_shape = {ROWS, COLUMNS},
                        .device = device,
                        .data = data};
}

static dcp_status save_one(void **state, const dcp_tensor *tensor)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", tensor);
    dcp_status status = dcp_save(root, path_in(state, "c"), &options);
    dcp_state_free(root);
    return status;
}

static dcp_status load_one(void **state, const dcp_tensor *tensor)
{
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", tensor);
    dcp_status status = dcp_load(root, path_in(state, "c"), NULL, NULL);
    dcp_state_free(root);
    return status;
}

static void count_up(int32_t *values)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = i + 1;
}

static void tensors_round_trip(void **state)
{
    int32_t values[COUNT];
    count_up(values);
    cudaStream_t stream = stand_in_stream_new(1);
    dcp_tensor tensor = matrix(dcp_cuda_stream(1, stream), stand_in_new(1, values, sizeof values));
    must(save_one(state, &tensor));
    memset(stand_in_bytes(tensor.data), 0, sizeof values);
    must(load_one(state, &tensor));
    assert_memory_equal(stand_in_bytes(tensor.data), values, sizeof values);

    /* Some columns of it, in which rows are apart; and on a device that takes no such distance. */
    dcp_tensor part = matrix(tensor.device, (int32_t *)tensor.data + 5);
    part.global_shape[1] = 7;
    part.strided = true;
    part.strides[0] = COLUMNS;
    part.strides[1] = 1;
    for (int pass = 0; pass < 2; pass++) {
        int32_t host[ROWS * 7];
        dcp_tensor there = matrix((dcp_device){0}, host);
        there.global_shape[1] = 7;
        must(save_one(state, &part));
        must(load_one(state, &there));
        for (int i = 0; i < ROWS * 7; i++)
            assert_int_equal(host[i], values[i / 7 * COLUMNS + 5 + i % 7]);
        memset(stand_in_bytes(tensor.data), 0, sizeof values);
        must(load_one(state, &part));
        const int32_t *found = (const int32_t *)(void *)stand_in_bytes(tensor.data);
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(found[i], i % COLUMNS >= 5 && i % COLUMNS < 12 ? values[i] : 0);
        memcpy(stand_in_bytes(tensor.data), values, sizeof values);
        assert_int_equal(stand_in_cuda_calls("cudaMemcpy2DAsync"), 2);
        stand_in_cuda_max_pitch(16);
    }
    stand_in_free(tensor.data);
    stand_in_stream_free(stream);
}

static void fill_late(void *bytes)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    count_up(bytes);
}

/* What the caller had put into the stream before is what is saved. */
static void copies_wait_for_the_stream(void **state)
{
    int32_t values[COUNT], host[COUNT] = {0};
    count_up(values);
    cudaStream_t stream = stand_in_stream_new(0);
    dcp_tensor tensor = matrix(dcp_cuda_stream(0, stream), stand_in_new(0, NULL, sizeof values));
    stand_in_stream_run(stream, fill_late, stand_in_bytes(tensor.data));
    must(save_one(state, &tensor));
    dcp_tensor there = matrix((dcp_device){0}, host);
    must(load_one(state, &there));
    assert_memory_equal(host, values, sizeof values);

    /* And what it had put there before a load does not undo the load. */
    memset(host, 0x11, sizeof host);
    must(save_one(state, &there));
    stand_in_stream_run(stream, fill_late, stand_in_bytes(tensor.data));
    must(load_one(state, &tensor));
    assert_memory_equal(stand_in_bytes(tensor.data), host, sizeof host);
    stand_in_free(tensor.data);
    stand_in_stream_free(stream);
}

/* No context is made where the caller has none, and what was current stays so. */
static void the_current_device_stays(void **state)
{
    int32_t values[COUNT];
    count_up(values);
    dcp_tensor tensor = matrix(dcp_cuda(2), stand_in_new(2, values, sizeof values));
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &tensor);
    for (int i = 0; i < STAND_IN_DEVICES; i++)
        assert_false(stand_in_has_context(i));
    must(save_one(state, &tensor));
    assert_int_equal(stand_in_current(), -1);
    stand_in_set_current(3);
    must(load_one(state, &tensor));
    assert_int_equal(stand_in_current(), 3);
    for (int i = 0; i < STAND_IN_DEVICES; i++)
        assert_int_equal(stand_in_has_context(i), i == 2);
    dcp_state_free(root);
    stand_in_free(tensor.data);
}

static void memory_comes_from_cuda(void **state)
{
    int32_t values[COUNT];
    count_up(values);
    dcp_tensor host = matrix((dcp_device){0}, values), found;
    must(save_one(state, &host));
    dcp_tensor tensor = matrix(dcp_cuda(1), NULL);
    dcp_state *root = dcp_state_new();
    dcp_state *node = dcp_state_tensor(root, "w", &tensor);
    must(dcp_load(root, path_in(state, "c"), NULL, NULL));
    must(dcp_state_chunk(node, 0, &found));
    assert_memory_equal(stand_in_bytes(found.data), values, sizeof values);
    dcp_state_free(root);
    assert_int_equal(stand_in_cuda_calls("cudaMalloc"), 1);
    assert_int_equal(stand_in_cuda_calls("cudaFree"), 1);
    assert_int_equal(stand_in_figures().blocks, 0);

    stand_in_cuda_fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
    must_fail(load_one(state, &tensor), DCP_ERR_NO_MEMORY, "cuda:1: cudaMalloc failed: out of");
}

static void failures_are_told_in_words(void **state)
{
    static const char *const functions[] = {"cudaGetDriverEntryPointByVersion", "cudaSetDevice",
                                            "cudaMemcpyAsync", "cudaStreamSynchronize"};
    int32_t values[COUNT];
    count_up(values);
    dcp_tensor tensor = matrix(dcp_cuda(1), stand_in_new(1, values, sizeof values));
    must(save_one(state, &tensor));
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        stand_in_set_current(3);
        stand_in_cuda_fail(functions[i], 1, cudaErrorIllegalAddress);
        must_fail(save_one(state, &tensor), DCP_ERR_DEVICE, "w: cuda:1: ");
        assert_non_null(strstr(dcp_error_message(), "illegal memory access"));
        stand_in_cuda_fail(functions[i], 1, cudaErrorIllegalAddress);
        must_fail(load_one(state, &tensor), DCP_ERR_DEVICE, "cuda:1: ");
        stand_in_cuda_fail("", 0, cudaSuccess);
        assert_int_equal(stand_in_current(), 3);
        assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    }
    tensor.device = dcp_cuda(77);
    must_fail(save_one(state, &tensor), DCP_ERR_DEVICE, "cuda:77: cudaSetDevice failed: invalid");
    stand_in_free(tensor.data);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensors_round_trip),         TEST(copies_wait_for_the_stream),
        TEST(the_current_device_stays),   TEST(memory_comes_from_cuda),
        TEST(failures_are_told_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
