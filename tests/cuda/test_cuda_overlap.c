/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocking saves from CUDA devices and loads into them, over the stand-in runtime: large tensors go
 * through page-locked buffers by a stream of the library's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "cuda/stand_in_cuda.h"
#include "dcp/cuda.h"
#include "device/stand_in.h"

/* More than the two buffers of 4 MiB, and no multiple of them. */
enum { ROWS = 1501, COLUMNS = 1607, COUNT = ROWS * COLUMNS };

static const size_t BYTES = COUNT * sizeof(int32_t);

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

static dcp_tensor transposed(dcp_device device, void *data)
{
    dcp_tensor tensor = matrix(device, data);
    tensor.strided = true;
    tensor.strides[0] = 1;
    tensor.strides[1] = ROWS;
    return tensor;
}

static dcp_status save_one(void **state, const dcp_tensor *tensor, const dcp_save_options *given)
{
    dcp_save_options options = given ? *given : (dcp_save_options){0};
    options.overwrite = DCP_OVERWRITE_REPLACE;
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", tensor);
    dcp_status status = dcp_save(root, path_in(state, "c"), &options);
    dcp_state_free(root);
    return status;
}

static dcp_status load_one(void **state, const dcp_tensor *tensor, const dcp_load_options *options)
{
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", tensor);
    dcp_status status = dcp_load(root, path_in(state, "c"), options, NULL);
    dcp_state_free(root);
    return status;
}

static void count_up(void *argument)
{
    int32_t *values = argument;
    for (int32_t i = 0; i < COUNT; i++)
        values[i] = i + 1;
}

static void clear(void *argument)
{
    memset(argument, 0, BYTES);
}

static void check_saved(void **state, int64_t row_stride, int64_t column_stride)
{
    int32_t *found = calloc(COUNT, sizeof *found), *at = found;
    dcp_tensor host = matrix((dcp_device){0}, found);
    must(load_one(state, &host, NULL));
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t column = 0; column < COLUMNS; column++)
            if (*at++ != row * row_stride + column * column_stride + 1)
                fail_msg("[%d,%d] is %d", (int)row, (int)column, at[-1]);
    free(found);
}

/* What the stream had before a save is saved; nothing was waited for but events. */
static void saves_overlap_and_keep_order(void **state)
{
    const dcp_save_options ways[] = {{0}, {.compression = DCP_COMPRESSION_ZSTD}};
    cudaStream_t stream = stand_in_stream_new(1);
    void *memory = stand_in_new(1, NULL, BYTES);
    dcp_tensor tensor = matrix(dcp_cuda_stream(1, stream), memory);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        stand_in_stream_write(stream, memory, clear, stand_in_bytes(memory));
        stand_in_stream_write(stream, memory, count_up, stand_in_bytes(memory));
        must(save_one(state, &tensor, &ways[i]));
        stand_in_stream_write(stream, memory, clear, stand_in_bytes(memory));
        check_saved(state, COLUMNS, 1);
        assert_int_equal(stand_in_cuda_calls("cudaHostRegister"), i + 1);
        assert_int_equal(stand_in_cuda_host_blocks(), 0);
    }
    assert_int_equal(stand_in_cuda_calls("cudaStreamSynchronize"), 0);
    assert_int_equal(stand_in_hasty_streams(), 0);

    stand_in_stream_write(stream, memory, count_up, stand_in_bytes(memory));
    dcp_tensor turned = transposed(tensor.device, memory);
    must(save_one(state, &turned, NULL));
    check_saved(state, 1, ROWS);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
    stand_in_stream_free(stream);
    stand_in_free(memory);
}

/* What the stream had before a load does not undo it, and what comes after finds it there. */
static void loads_overlap_and_keep_order(void **state)
{
    int32_t *values = malloc(BYTES);
    count_up(values);
    dcp_tensor host = matrix((dcp_device){0}, values);
    must(save_one(state, &host, NULL));
    cudaStream_t stream = stand_in_stream_new(1);
    void *memory = stand_in_new(1, NULL, BYTES);
    dcp_tensor tensor = matrix(dcp_cuda_stream(1, stream), memory);
    stand_in_stream_write(stream, memory, clear, stand_in_bytes(memory));
    must(load_one(state, &tensor, NULL));
    assert_memory_equal(stand_in_bytes(memory), values, BYTES);
    assert_int_equal(stand_in_cuda_calls("cudaStreamSynchronize"), 0);
    assert_int_equal(stand_in_cuda_calls("cudaHostRegister"), 1);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);

    stand_in_stream_write(stream, memory, clear, stand_in_bytes(memory));
    dcp_tensor turned = transposed(tensor.device, memory);
    must(load_one(state, &turned, NULL));
    const int32_t *found = (const int32_t *)(void *)stand_in_bytes(memory);
    for (int64_t i = 0; i < COUNT; i++)
        if (found[i % ROWS * 1 + i / ROWS * ROWS] != i % ROWS * COLUMNS + i / ROWS + 1)
            fail_msg("element %d is %d", (int)i, found[i]);

    /* Converted on the way. */
    void *wide = stand_in_new(1, NULL, 2 * BYTES);
    dcp_tensor other = matrix(tensor.device, wide);
    other.dtype = DCP_F64;
    must(load_one(state, &other, &(dcp_load_options){.convert = true}));
    const double *doubles = (const double *)(void *)stand_in_bytes(wide);
    for (int32_t i = 0; i < COUNT; i++)
        if (doubles[i] != i + 1)
            fail_msg("element %d is %f", i, doubles[i]);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
    stand_in_free(wide);
    stand_in_stream_free(stream);
    stand_in_free(memory);
    free(values);
}

/* Within limits from the smallest on, buffers are used as soon as there is room for them. */
static void expect_limits(void **state, const dcp_tensor *tensor, uint64_t smallest, bool load)
{
    for (uint64_t more = 0; more < (uint64_t)100 << 20; more = more * 2 + 1000000) {
        dcp_figures figures = {.size_of = sizeof figures};
        uint64_t limit = smallest + more;
        dcp_save_options saving = {.memory_limit = limit, .figures = &figures};
        dcp_load_options loading = {.memory_limit = limit, .figures = &figures, .convert = true};
        long before = stand_in_cuda_calls("cudaHostRegister");
        must(load ? load_one(state, tensor, &loading) : save_one(state, tensor, &saving));
        assert_in_range(figures.peak_memory, 1, limit);
        long made = stand_in_cuda_calls("cudaHostRegister") - before;
        assert_true(more == 0 ? made == 0 : more < (uint64_t)40 << 20 || made > 0);
    }
}

static void limits_leave_room_for_buffers_or_not(void **state)
{
    void *memory = stand_in_new(0, NULL, 2 * BYTES);
    count_up(stand_in_bytes(memory));
    dcp_tensor dense = matrix(dcp_cuda(0), memory), wide = dense;
    dcp_tensor turned = transposed(dense.device, memory);
    wide.dtype = DCP_F64;
    const dcp_tensor *tensors[] = {&dense, &turned, &wide};
    for (size_t i = 0; i < 2; i++) {
        dcp_figures figures = {.size_of = sizeof figures};
        dcp_estimate reported = {.size_of = sizeof reported};
        dcp_state *root = dcp_state_new();
        dcp_state_tensor(root, "w", tensors[i]);
        must(dcp_save_estimate(root, path_in(state, "c"), NULL, &reported));
        dcp_state_free(root);
        must(save_one(state, tensors[i], &(dcp_save_options){.figures = &figures}));
        assert_in_range(figures.peak_memory, (uint64_t)8 << 20, reported.memory);
        expect_limits(state, tensors[i], reported.smallest_memory, false);
    }
    for (size_t i = 0; i < 3; i++) {
        const dcp_load_options options = {.memory_limit = 1, .convert = true};
        static const char before[] = "the smallest sufficient limit is ";
        must_fail(load_one(state, tensors[i], &options), DCP_ERR_NO_MEMORY, before);
        uint64_t smallest =
            strtoull(strstr(dcp_error_message(), before) + strlen(before), NULL, 10);
        expect_limits(state, tensors[i], smallest, true);
    }
    stand_in_free(memory);
}

static dcp_status run_failing(void **state, const char *function, long n, bool load)
{
    stand_in_cuda_end();
    stand_in_cuda_begin();
    cudaStream_t stream = stand_in_stream_new(1);
    void *memory = stand_in_new(1, NULL, BYTES);
    dcp_tensor tensor = matrix(dcp_cuda_stream(1, stream), memory);
    stand_in_set_current(3);
    stand_in_stream_write(stream, memory, load ? clear : count_up, stand_in_bytes(memory));
    stand_in_cuda_fail(function, n, cudaErrorIllegalAddress);
    dcp_status status = load ? load_one(state, &tensor, NULL) : save_one(state, &tensor, NULL);
    if (status != DCP_OK) {
        must_fail(status, DCP_ERR_DEVICE, "cuda:1: ");
        assert_non_null(strstr(dcp_error_message(), "w"));
        assert_non_null(strstr(dcp_error_message(), "illegal memory access"));
    }
    stand_in_cuda_fail("", 0, cudaSuccess);
    assert_int_equal(stand_in_current(), 3);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
    stand_in_stream_free(stream);
    stand_in_free(memory);
    return status;
}

static void every_failure_is_reported_and_leaves_nothing(void **state)
{
    static const char *const functions[] = {
        "cudaHostRegister", "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags",
        "cudaEventRecord",  "cudaStreamWaitEvent",          "cudaEventSynchronize",
        "cudaMemcpyAsync",  "cudaPointerGetAttributes",     "cudaSetDevice",
    };
    int32_t *values = malloc(BYTES);
    count_up(values);
    dcp_tensor host = matrix((dcp_device){0}, values);
    must(save_one(state, &host, NULL));
    free(values);
    for (int load = 1; load >= 0; load--) {
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
            long n = 1;
            while (n < 8 && run_failing(state, functions[i], n, load) != DCP_OK)
                n++;
            assert_true(n > 1);
        }
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(saves_overlap_and_keep_order),
        TEST(loads_overlap_and_keep_order),
        TEST(limits_leave_room_for_buffers_or_not),
        TEST(every_failure_is_reported_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
