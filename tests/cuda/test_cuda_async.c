/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous saves from CUDA devices over the stand-in runtime, with overlapped staging: order
 * with the caller's streams both ways, page-locked memory, waves, failures of every function. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "cuda/stand_in_cuda.h"
#include "dcp/cuda.h"
#include "device/stand_in.h"

enum { ROWS = 300, COLUMNS = 500, COUNT = ROWS * COLUMNS, TENSORS = 5 };

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

/* Work on a stream that goes on only when the test lets it. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool open;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, true};

static void set_gate(bool open)
{
    pthread_mutex_lock(&gate.mutex);
    gate.open = open;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static void pass_gate(void *nothing)
{
    (void)nothing;
    pthread_mutex_lock(&gate.mutex);
    while (!gate.open)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

/* Tensors on devices 0, 1 and 1, 1, 0, by two streams of device 1 and the default one of device 0.
 * The third one is transposed, the fourth one is every other column. */
struct model {
    cudaStream_t streams[2];
    dcp_tensor tensors[TENSORS];
    void *blocks[TENSORS];
};

static dcp_device device_of(const struct model *model, int tensor)
{
    if (tensor == 0 || tensor == 4)
        return dcp_cuda(0);
    return dcp_cuda_stream(1, model->streams[tensor == 2]);
}

static void model_make(struct model *model)
{
    for (int i = 0; i < 2; i++)
        model->streams[i] = stand_in_stream_new(1);
    for (int i = 0; i < TENSORS; i++) {
        dcp_tensor *tensor = &model->tensors[i];
        dcp_device device = device_of(model, i);
        model->blocks[i] = stand_in_new(device.index, NULL, BYTES);
        *tensor = (dcp_tensor){.dtype = DCP_I32,
                               .ndim = 2,
                               .global_shape = {ROWS, COLUMNS},
                               .strides = {COLUMNS, 1},
                               .device = device,
                               .data = model->blocks[i]};
    }
    dcp_tensor *transposed = &model->tensors[2], *columns = &model->tensors[3];
    transposed->strided = columns->strided = true;
    transposed->strides[0] = 1;
    transposed->strides[1] = ROWS;
    columns->global_shape[1] = COLUMNS / 2;
    columns->strides[1] = 2;
}

static void model_free(struct model *model)
{
    for (int i = 0; i < 2; i++)
        stand_in_stream_free(model->streams[i]);
    for (int i = 0; i < TENSORS; i++)
        stand_in_free(model->blocks[i]);
}

/* A step of training: writes elements that tell their place, and the step. */
struct step {
    int32_t *bytes;
    int32_t first;
};

static void fill(void *argument)
{
    struct step *step = argument;
    for (int32_t i = 0; i < COUNT; i++)
        step->bytes[i] = step->first + i;
    free(step);
}

static int32_t first_of(int tensor, int step)
{
    return (int32_t)(tensor * 1000000 + step * 100000000);
}

/* Default streams are found by the runtime alone: their tensors are written by the host. */
static void model_step(struct model *model, int number)
{
    for (int i = 0; i < TENSORS; i++) {
        struct step *step = malloc(sizeof *step);
        step->bytes = (int32_t *)(void *)stand_in_bytes(model->blocks[i]);
        step->first = first_of(i, number);
        cudaStream_t stream = (cudaStream_t)model->tensors[i].device.queue;
        if (stream)
            stand_in_stream_write(stream, model->blocks[i], fill, step);
        else
            fill(step);
    }
}

static dcp_state *tree_of(const dcp_tensor *tensors)
{
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < TENSORS; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        dcp_state_tensor(root, name, &tensors[i]);
    }
    return root;
}

static dcp_status begin(const struct model *model, const char *path, dcp_save_chain *chain,
                        dcp_future **future)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .chain = chain};
    dcp_state *root = tree_of(model->tensors);
    dcp_status status = dcp_save_async(root, path, &options, future);
    dcp_state_free(root);
    return status;
}

/* What was saved, read into host memory. */
static void check(const struct model *model, const char *path, int step)
{
    dcp_tensor tensors[TENSORS];
    int32_t *found[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        tensors[i] = model->tensors[i];
        tensors[i].device = (dcp_device){0};
        tensors[i].strided = false;
        tensors[i].data = found[i] = malloc(BYTES);
    }
    dcp_state *root = tree_of(tensors);
    must(dcp_load(root, path, NULL, NULL));
    for (int i = 0; i < TENSORS; i++) {
        const int64_t *shape = tensors[i].global_shape, *strides = model->tensors[i].strides;
        const int32_t *at = found[i];
        for (int64_t row = 0; row < shape[0]; row++)
            for (int64_t column = 0; column < shape[1]; column++)
                if (*at++ != first_of(i, step) + row * strides[0] + column * strides[1])
                    fail_msg("w%d[%d,%d] is %d", i, (int)row, (int)column, at[-1]);
        free(found[i]);
    }
    dcp_state_free(root);
}

static dcp_save_chain *chain_of(dcp_staging_kind kind, uint64_t limit)
{
    dcp_save_chain_options options = {
        .staging = kind, .staging_limit = limit, .log_failures = true};
    dcp_save_chain *chain = NULL;
    must(dcp_save_chain_new(&options, &chain));
    return chain;
}

/* What streams had before the call is saved, what they get after waiting is not, and nothing but
 * that orders them. */
static void steps_and_copies_are_in_order(void **state)
{
    struct model model;
    dcp_future *future;
    const char *path = path_in(state, "c");
    dcp_save_chain *chain = chain_of(DCP_STAGING_OVERLAPPED, 0);
    model_make(&model);
    for (int step = 1; step < 4; step++) {
        set_gate(false);
        stand_in_stream_run(model.streams[0], pass_gate, NULL);
        model_step(&model, step);
        must(begin(&model, path, chain, &future));
        assert_int_equal(dcp_future_poll(future), DCP_FUTURE_STAGING);
        must_fail(dcp_future_wait_staged(future, 0), DCP_ERR_TIMEOUT, "");
        set_gate(true);
        must(dcp_future_wait_staged(future, -1));
        model_step(&model, step + 1);
        must(dcp_future_wait(future, -1));
        dcp_future_free(future);
        check(&model, path, step);
    }
    assert_int_equal(stand_in_hasty_streams(), 0);
    dcp_save_chain_free(chain);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
    model_free(&model);
}

/* No context is made on devices without tensors, and what was current stays so. */
static void the_current_device_stays(void **state)
{
    struct model model;
    dcp_future *future;
    dcp_save_chain *chain = chain_of(DCP_STAGING_OVERLAPPED, 0);
    model_make(&model);
    model_step(&model, 1);
    must(begin(&model, path_in(state, "c"), chain, &future));
    assert_int_equal(stand_in_current(), -1);
    must(dcp_future_wait(future, -1));
    stand_in_set_current(3);
    dcp_future_free(future);
    dcp_save_chain_free(chain);
    assert_int_equal(stand_in_current(), 3);
    for (int i = 0; i < STAND_IN_DEVICES; i++)
        assert_int_equal(stand_in_has_context(i), i < 2);
    model_free(&model);
}

static void locked_memory_stays_from_save_to_save(void **state)
{
    static const dcp_staging_kind kinds[] = {DCP_STAGING_BLOCKING, DCP_STAGING_PINNED,
                                             DCP_STAGING_OVERLAPPED};
    struct model model;
    dcp_future *future;
    model_make(&model);
    long locks = stand_in_cuda_calls("cudaHostRegister");
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        dcp_save_chain *chain = chain_of(kinds[kind], 0);
        bool locked = kinds[kind] != DCP_STAGING_BLOCKING;
        for (int step = 0; step < 3; step++) {
            model_step(&model, step);
            must(begin(&model, path_in(state, "c"), chain, &future));
            if (kinds[kind] != DCP_STAGING_OVERLAPPED)
                model_step(&model, step + 1);
            must(dcp_future_wait(future, -1));
            dcp_future_free(future);
            check(&model, path_in(state, "c"), step);
            assert_int_equal(stand_in_cuda_locked() >= TENSORS * BYTES - BYTES / 2, locked);
        }
        locks += locked;
        assert_int_equal(stand_in_cuda_calls("cudaHostRegister"), locks);
        dcp_save_chain_free(chain);
        assert_int_equal(stand_in_cuda_host_blocks(), 0);
    }
    dcp_save_chain *chain = chain_of(DCP_STAGING_OVERLAPPED, 0);
    must(dcp_save_chain_reserve(chain, 8 * BYTES, &model.tensors[0].device));
    assert_true(stand_in_cuda_locked() >= 8 * BYTES);
    model_step(&model, 7);
    must(begin(&model, path_in(state, "c"), chain, &future));
    must(dcp_future_wait(future, -1));
    dcp_future_free(future);
    assert_int_equal(stand_in_cuda_calls("cudaHostRegister"), locks + 1);
    dcp_save_chain_free(chain);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
    model_free(&model);
}

/* Little memory: what is written makes room for what follows. */
static void waves_pass_through_little_memory(void **state)
{
    static const uint64_t limits[] = {(uint64_t)256 << 10, (uint64_t)1 << 20};
    struct model model;
    dcp_future *future;
    model_make(&model);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        dcp_save_chain *chain = chain_of(DCP_STAGING_OVERLAPPED, limits[i]);
        for (int step = 0; step < 2; step++) {
            model_step(&model, step);
            must(begin(&model, path_in(state, "c"), chain, &future));
            must(dcp_future_wait_staged(future, -1));
            assert_true(stand_in_cuda_locked() > 0 && stand_in_cuda_locked() <= limits[i]);
            model_step(&model, step + 1);
            must(dcp_future_wait(future, -1));
            dcp_future_free(future);
            check(&model, path_in(state, "c"), step);
        }
        dcp_save_chain_free(chain);
        assert_int_equal(stand_in_cuda_host_blocks(), 0);
    }
    model_free(&model);
}

/* Of a save whose function fails at its n-th call; how it ended. */
static dcp_status save_failing(void **state, const char *function, long n, uint64_t limit)
{
    struct model model;
    dcp_future *future = NULL;
    stand_in_cuda_end();
    stand_in_cuda_begin();
    model_make(&model);
    model_step(&model, 1);
    stand_in_set_current(3);
    dcp_save_chain *chain = chain_of(DCP_STAGING_OVERLAPPED, limit);
    stand_in_cuda_fail(function, n, cudaErrorIllegalAddress);
    dcp_status status = begin(&model, path_in(state, "c"), chain, &future);
    if (status == DCP_OK)
        status = dcp_future_wait(future, -1);
    if (status != DCP_OK) {
        must_fail(status, DCP_ERR_DEVICE, "cuda:");
        assert_non_null(strstr(dcp_error_message(), "illegal memory access"));
    }
    dcp_future_free(future);
    dcp_save_chain_free(chain);
    stand_in_cuda_fail("", 0, cudaSuccess);
    assert_int_equal(stand_in_current(), 3);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
    if (status == DCP_OK)
        check(&model, path_in(state, "c"), 1);
    model_free(&model);
    return status;
}

static void every_failure_is_reported_and_leaves_nothing(void **state)
{
    static const char *const functions[] = {
        "cudaHostRegister",
        "cudaStreamCreateWithPriority",
        "cudaDeviceGetStreamPriorityRange",
        "cudaEventCreateWithFlags",
        "cudaEventRecord",
        "cudaStreamWaitEvent",
        "cudaEventSynchronize",
        "cudaMemcpyAsync",
        "cudaMemcpy2DAsync",
        "cudaStreamSynchronize",
        "cudaPointerGetAttributes",
    };
    static const uint64_t limits[] = {0, (uint64_t)256 << 10};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
            long n = 1;
            while (n < 12 && save_failing(state, functions[i], n, limits[l]) != DCP_OK)
                n++;
            assert_true(n > 1);
        }
    }
}

/* Work before that does not end keeps nobody waiting for ever: not a blocking save or load, nor an
 * asynchronous save that copies at once, nor whoever waits for a copy behind it. */
static void a_stream_that_does_not_end_is_reported(void **state)
{
    static const char message[] = "cuda:1: earlier work of the device did not finish within 0.1 s";
    struct model model;
    dcp_future *future;
    const char *path = path_in(state, "c");
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .timeout_seconds = 0.2};
    dcp_load_options loading = {.timeout_seconds = 0.2};
    model_make(&model);
    dcp_state *root = tree_of(model.tensors);
    model_step(&model, 1);
    must(dcp_save(root, path, &options));
    set_gate(false);
    stand_in_stream_run(model.streams[0], pass_gate, NULL);
    must_fail(dcp_save(root, path, &options), DCP_ERR_TIMEOUT, message);
    must_fail(dcp_load(root, path, &loading, NULL), DCP_ERR_TIMEOUT, message);
    for (int kind = DCP_STAGING_BLOCKING; kind <= DCP_STAGING_OVERLAPPED; kind++) {
        dcp_save_chain_options how = {.staging = (dcp_staging_kind)kind, .log_failures = true};
        how.detect_changes = kind == DCP_STAGING_OVERLAPPED; /* which copies at once as well */
        must(dcp_save_chain_new(&how, &options.chain));
        must_fail(dcp_save_async(root, path, &options, &future), DCP_ERR_TIMEOUT, message);
        assert_null(future);
        dcp_save_chain_free(options.chain);
    }
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
    options.chain = chain_of(DCP_STAGING_OVERLAPPED, 0);
    must(dcp_save_async(root, path, &options, &future));
    must_fail(dcp_future_wait_staged(future, 0.1), DCP_ERR_TIMEOUT, "");
    must_fail(dcp_future_wait(future, 0.1), DCP_ERR_TIMEOUT, "");
    set_gate(true);
    must(dcp_future_wait(future, -1));
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    check(&model, path, 1);
    dcp_state_free(root);
    model_free(&model);
}

/* A device that cannot be made current, when something begins or when it is given back. */
static void nothing_is_left_of_a_device_that_is_lost(void **state)
{
    must(save_failing(state, "cudaSetDevice", 0, 0));
    long calls = stand_in_cuda_calls("cudaSetDevice"), failures = 0;
    for (long n = 1; n <= calls; n++)
        failures += save_failing(state, "cudaSetDevice", n, 0) != DCP_OK;
    assert_in_range(failures, 5, calls - 5);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(steps_and_copies_are_in_order),
        TEST(the_current_device_stays),
        TEST(locked_memory_stays_from_save_to_save),
        TEST(waves_pass_through_little_memory),
        TEST(every_failure_is_reported_and_leaves_nothing),
        TEST(a_stream_that_does_not_end_is_reported),
        TEST(nothing_is_left_of_a_device_that_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
