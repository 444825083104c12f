/* SPDX-License-Identifier: BSD-3-Clause */
/* libdcp_cuda over the stand-in runtime: order, waiting, the caller's current device, failures. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

static void failures_are_described(void **state)
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

/* A queue of our own, in order with the caller's through events alone. */
static void queues_overlap_and_keep_order(void **state)
{
    int32_t values[COUNT], host[COUNT] = {0};
    (void)state;
    count_up(values);
    cudaStream_t stream = stand_in_stream_new(1);
    dcp_device theirs = dcp_cuda_stream(1, stream), ours = theirs;
    const dcp_device_operations *cuda = theirs.operations;
    void *memory = stand_in_new(1, NULL, sizeof values);
    void *produced, *copied;
    bool reached = true;
    must(cuda->page_lock(&theirs, host, sizeof host));
    assert_int_equal(stand_in_cuda_locked(), sizeof host);
    must(cuda->queue_open(&theirs, &ours.queue));
    assert_int_equal(stand_in_hasty_streams(), 0);
    must(cuda->event_open(&theirs, &produced));
    must(cuda->event_open(&theirs, &copied));
    must(cuda->event_wait(&theirs, produced));

    stand_in_stream_write(stream, memory, fill_late, stand_in_bytes(memory));
    must(cuda->event_record(&theirs, produced));
    must(cuda->event_follow(&ours, produced));
    must(cuda->start_copy_to_host(&ours, host, memory, sizeof host, sizeof host, 1));
    must(cuda->event_record(&ours, copied));
    must(cuda->event_reached(&ours, copied, &reached));
    assert_false(reached);
    /* The caller's next step overwrites what is being copied, when that is over. */
    must(cuda->event_follow(&theirs, copied));
    must(cuda->start_copy_from_host(&theirs, memory, sizeof host, values, sizeof host, 1));
    must(cuda->event_wait(&ours, copied));
    must(cuda->event_reached(&ours, copied, &reached));
    assert_true(reached);
    assert_memory_equal(host, values, sizeof values);
    assert_int_equal(stand_in_current(), -1);

    stand_in_set_current(1);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    cuda->event_close(&theirs, produced);
    cuda->event_close(&theirs, copied);
    cuda->queue_close(&theirs, ours.queue);
    cuda->page_unlock(&theirs, host);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
    stand_in_free(memory);
    stand_in_stream_free(stream);
}

/* What the stand-in is for: without the event the same program ends. */
static void a_missing_order_is_seen(void **state)
{
    (void)state;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int32_t host[COUNT];
        cudaStream_t stream = stand_in_stream_new(1);
        dcp_device theirs = dcp_cuda_stream(1, stream), ours = theirs;
        void *memory = stand_in_new(1, NULL, sizeof host);
        signal(SIGABRT, SIG_DFL);
        close(2);
        must(theirs.operations->queue_open(&theirs, &ours.queue));
        stand_in_stream_write(stream, memory, fill_late, stand_in_bytes(memory));
        ours.operations->start_copy_to_host(&ours, host, memory, sizeof host, sizeof host, 1);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static int32_t locked[COUNT];

static dcp_status lock_memory(const dcp_device *device, void *memory, void *event)
{
    (void)memory, (void)event;
    return device->operations->page_lock(device, locked, sizeof locked);
}

static dcp_status open_queue(const dcp_device *device, void *memory, void *event)
{
    void *queue;
    (void)memory, (void)event;
    return device->operations->queue_open(device, &queue);
}

static dcp_status open_event(const dcp_device *device, void *memory, void *event)
{
    void *made;
    (void)memory, (void)event;
    return device->operations->event_open(device, &made);
}

static dcp_status record(const dcp_device *device, void *memory, void *event)
{
    (void)memory;
    return device->operations->event_record(device, event);
}

static dcp_status follow(const dcp_device *device, void *memory, void *event)
{
    (void)memory;
    return device->operations->event_follow(device, event);
}

static dcp_status await(const dcp_device *device, void *memory, void *event)
{
    (void)memory;
    return device->operations->event_wait(device, event);
}

static dcp_status ask(const dcp_device *device, void *memory, void *event)
{
    bool reached;
    (void)memory;
    return device->operations->event_reached(device, event, &reached);
}

static dcp_status start_copy(const dcp_device *device, void *memory, void *event)
{
    (void)event;
    return device->operations->start_copy_to_host(device, locked, memory, sizeof locked,
                                                  sizeof locked, 1);
}

static dcp_status locate(const dcp_device *device, void *memory, void *event)
{
    bool held;
    (void)event;
    return device->operations->holds(device, memory, &held);
}

static void overlap_fails_in_words(void **state)
{
    static const struct {
        const char *function, *message;
        dcp_status (*call)(const dcp_device *device, void *memory, void *event);
    } calls[] = {
        {"cudaHostRegister", "cudaHostRegister failed", lock_memory},
        {"cudaStreamCreateWithPriority", "making a CUDA stream failed", open_queue},
        {"cudaDeviceGetStreamPriorityRange", "making a CUDA stream failed", open_queue},
        {"cudaEventCreateWithFlags", "cudaEventCreateWithFlags failed", open_event},
        {"cudaEventRecord", "cudaEventRecord failed", record},
        {"cudaStreamWaitEvent", "cudaStreamWaitEvent failed", follow},
        {"cudaEventSynchronize", "cudaEventSynchronize failed", await},
        {"cudaEventQuery", "cudaEventQuery failed", ask},
        {"cudaMemcpyAsync", "a CUDA copy failed", start_copy},
        {"cudaPointerGetAttributes", "cudaPointerGetAttributes failed", locate},
    };
    dcp_device device = dcp_cuda(1);
    void *memory = stand_in_new(1, NULL, sizeof locked), *event;
    (void)state;
    must(device.operations->event_open(&device, &event));
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        stand_in_cuda_fail(calls[i].function, 1, cudaErrorIllegalAddress);
        must_fail(calls[i].call(&device, memory, event), DCP_ERR_DEVICE, calls[i].message);
        assert_int_equal(stand_in_current(), -1);
    }
    device.operations->event_close(&device, event);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
    stand_in_free(memory);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensors_round_trip),       TEST(copies_wait_for_the_stream),
        TEST(the_current_device_stays), TEST(memory_comes_from_cuda),
        TEST(failures_are_described),   TEST(queues_overlap_and_keep_order),
        TEST(a_missing_order_is_seen),  TEST(overlap_fails_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
