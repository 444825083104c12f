/* SPDX-License-Identifier: BSD-3-Clause */
/* libdcp_nccl over stand-ins for NCCL and CUDA: messages of all sizes, saves and loads, ranks that
 * fail and that never come. */
#include <pthread.h>
#include <sched.h>
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
#include "device/stand_in.h"
#include "group/collective.h"
#include "nccl/players.h"

static void messages_of_all_sizes_arrive(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    for (int size = 1; size <= STAND_IN_RANKS_MAX; size++) {
        job_begin(players, size, *state);
        if (size == 3)
            for (int r = 0; r < size; r++)
                stand_in_nccl_linger(players[r].communicator, r);
        job_play(players, size, exchange);
        job_end(players);
        assert_int_equal(stand_in_figures().blocks, 0);
        assert_int_equal(stand_in_cuda_host_blocks(), 0);
    }
}

static void everyone_sends_to_everyone(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    for (int size = 1; size <= STAND_IN_RANKS_MAX; size++) {
        job_begin(players, size, *state);
        for (int r = 0; r < size && size == 3; r++)
            stand_in_nccl_linger(players[r].communicator, r);
        job_play(players, size, exchange_all);
        job_end(players);
        assert_int_equal(stand_in_figures().blocks, 0);
    }
}

static void gpu_only_jobs_save_and_load(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    for (int size = 1; size <= STAND_IN_RANKS_MAX; size++) {
        char name[16];
        snprintf(name, sizeof name, "%d", size);
        job_begin(players, size, path_in(state, name));
        job_play(players, size, save_and_load);
        job_play(players, size, load_for_each_other);
        job_end(players);
    }
}

static void exchange_soon(struct player *player)
{
    dcp_collective call = {"exchanging what was read", 0.3};
    unsigned char own[16] = {1}, all[16 * STAND_IN_RANKS_MAX];
    size_t counts[STAND_IN_RANKS_MAX] = {0}, places[STAND_IN_RANKS_MAX] = {0};
    for (int r = 0; r < player->size; r++) {
        counts[r] = r == player->rank ? 0 : sizeof own;
        places[r] = (size_t)r * sizeof own;
    }
    size_t same[STAND_IN_RANKS_MAX] = {0};
    player->status =
        collective_all_to_all(player->group, &call, own, counts, same, all, counts, places);
}

static void an_exchange_can_fail(void **state)
{
    static const char *const calls[] = {"ncclSend", "ncclRecv", "ncclGroupEnd"};
    struct player players[STAND_IN_RANKS_MAX];
    job_begin(players, 3, *state);
    job_play(players, 2, exchange_soon);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(players[r].status, DCP_ERR_TIMEOUT);
        assert_non_null(
            strstr(players[r].message,
                   "exchanging what was read: not all of 3 ranks made this call within 0.3"));
    }
    job_end(players);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        job_begin(players, 2, *state);
        stand_in_nccl_fail(players[0].communicator, calls[i], 1, ncclSystemError);
        job_play(players, 2, exchange_soon);
        assert_int_equal(players[0].status, DCP_ERR_GROUP);
        assert_non_null(strstr(players[0].message, "sending and receiving failed: unhandled"));
        assert_int_equal(players[1].status, DCP_ERR_TIMEOUT);
        job_end(players);
    }
}

/* The others give up in time, the group is broken, and nothing waits for what is stuck. */
static void a_rank_never_comes(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    struct timespec before, after;
    job_begin(players, 3, *state);
    clock_gettime(CLOCK_MONOTONIC, &before);
    job_play(players, 2, gather_soon);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec < 10);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(players[r].status, DCP_ERR_TIMEOUT);
        assert_non_null(
            strstr(players[r].message, "gathering: not all of 3 ranks made this call within 0.3"));
    }
    job_play(players, 2, gather_soon);
    assert_int_equal(players[0].status, DCP_ERR_STATE);
    long calls = stand_in_cuda_calls("cudaFree");
    dcp_group_free(players[0].group);
    players[0].group = NULL;
    assert_int_equal(stand_in_cuda_calls("cudaFree"), calls);
    job_end(players);
    /* What two ranks left; the third one's was its own to free. */
    assert_int_equal(stand_in_figures().blocks, 2);
    assert_int_equal(stand_in_cuda_host_blocks(), 6);
}

/* Once the caller has aborted its communicator, nothing is in the way of the memory any more. */
static void memory_is_freed_after_the_callers_abort(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    long blocks = stand_in_figures().blocks, host_blocks = stand_in_cuda_host_blocks();
    job_begin(players, 2, *state);
    job_play(players, 1, gather_soon);
    assert_int_equal(players[0].status, DCP_ERR_TIMEOUT);
    stand_in_nccl_abort(players[0].communicator);
    stand_in_set_current(0);
    while (cudaStreamQuery(players[0].stream) == cudaErrorNotReady)
        sched_yield();
    stand_in_set_current(-1);
    job_end(players);
    assert_int_equal(stand_in_figures().blocks, blocks);
    assert_int_equal(stand_in_cuda_host_blocks(), host_blocks);
}

static void asynchronous_errors_end_the_wait(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    job_begin(players, 2, *state);
    stand_in_nccl_set_state(players[0].communicator, ncclRemoteError);
    job_play(players, 1, gather_soon);
    assert_int_equal(players[0].status, DCP_ERR_GROUP);
    assert_string_equal(players[0].message,
                        "gathering: a collective of NCCL failed: remote process exited or there "
                        "was a network error: the stand-in's own words");
    job_end(players);
}

static void every_call_can_fail(void **state)
{
    static const char *const cuda[] = {"cudaSetDevice", "cudaMemcpyAsync", "cudaEventRecord",
                                       "cudaEventQuery", "cudaGetDriverEntryPointByVersion"};
    static const char *const nccl[] = {"ncclAllGather", "ncclCommGetAsyncError"};
    struct player players[STAND_IN_RANKS_MAX];
    for (size_t i = 0; i < sizeof cuda / sizeof *cuda; i++) {
        job_begin(players, 1, *state);
        stand_in_cuda_fail(cuda[i], 1, cudaErrorIllegalAddress);
        job_play(players, 1, gather_soon);
        stand_in_cuda_fail("", 0, cudaSuccess);
        assert_int_equal(players[0].status, DCP_ERR_DEVICE);
        assert_non_null(strstr(players[0].message, "illegal memory access"));
        job_end(players);
    }
    for (size_t i = 0; i < sizeof nccl / sizeof *nccl; i++) {
        job_begin(players, 1, *state);
        stand_in_nccl_fail(players[0].communicator, nccl[i], 1, ncclSystemError);
        job_play(players, 1, gather_soon);
        assert_int_equal(players[0].status, DCP_ERR_GROUP);
        assert_non_null(strstr(players[0].message, "unhandled system error"));
        job_end(players);
    }
}

static void making_a_group_can_fail(void **state)
{
    static const char *const cuda[] = {"cudaSetDevice", "cudaMalloc", "cudaHostAlloc",
                                       "cudaEventCreateWithFlags"};
    static const char *const nccl[] = {"ncclCommGetAsyncError", "ncclCommCount", "ncclCommUserRank",
                                       "ncclCommCuDevice"};
    ncclComm_t communicator;
    dcp_group *group;
    (void)state;
    long device_blocks = stand_in_figures().blocks, host_blocks = stand_in_cuda_host_blocks();
    cudaStream_t stream = stand_in_stream_new(0);
    stand_in_nccl_new(1, &communicator);
    must_fail(dcp_group_new_nccl(NULL, stream, &group), DCP_ERR_ARGUMENT, "is NULL");
    must_fail(dcp_group_new_nccl(communicator, stream, NULL), DCP_ERR_ARGUMENT, "group is NULL");
    for (size_t i = 0; i < sizeof cuda / sizeof *cuda; i++) {
        stand_in_cuda_fail(cuda[i], 1, cudaErrorMemoryAllocation);
        must_fail(dcp_group_new_nccl(communicator, stream, &group), DCP_ERR_NO_MEMORY, "memory");
        assert_null(group);
        stand_in_cuda_fail("", 0, cudaSuccess);
    }
    for (size_t i = 0; i < sizeof nccl / sizeof *nccl; i++) {
        stand_in_nccl_fail(communicator, nccl[i], 1, ncclSystemError);
        must_fail(dcp_group_new_nccl(communicator, stream, &group), DCP_ERR_GROUP, "unhandled");
    }
    stand_in_nccl_set_state(communicator, ncclInProgress);
    must_fail(dcp_group_new_nccl(communicator, stream, &group), DCP_ERR_STATE, "not ready");
    assert_int_equal(stand_in_figures().blocks, device_blocks);
    assert_int_equal(stand_in_cuda_host_blocks(), host_blocks);
    stand_in_nccl_free(communicator);
    stand_in_stream_free(stream);
}

static void nothing_is_left_of_a_device_that_is_lost(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    long blocks = stand_in_figures().blocks, host_blocks = stand_in_cuda_host_blocks();
    job_begin(players, 1, *state);
    stand_in_cuda_fail("cudaSetDevice", 1, cudaErrorIllegalAddress);
    job_end(players);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_int_equal(stand_in_figures().blocks, blocks);
    assert_int_equal(stand_in_cuda_host_blocks(), host_blocks);
}

static void do_nothing(void *nothing)
{
    (void)nothing;
}

/* What the stand-in is for: a collective of what another stream may still write ends the program.
 */
static void a_missing_order_is_seen(void **state)
{
    (void)state;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ncclComm_t communicator;
        cudaStream_t writing = stand_in_stream_new(0), stream = stand_in_stream_new(0);
        void *memory = stand_in_new(0, NULL, sizeof(int64_t));
        signal(SIGABRT, SIG_DFL);
        close(2);
        stand_in_nccl_new(1, &communicator);
        stand_in_set_current(0);
        stand_in_stream_write(writing, memory, do_nothing, NULL);
        ncclAllReduce(memory, memory, 1, ncclInt64, ncclSum, communicator, stream);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, players_setup, players_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_of_all_sizes_arrive),
        TEST(everyone_sends_to_everyone),
        TEST(gpu_only_jobs_save_and_load),
        TEST(a_rank_never_comes),
        TEST(asynchronous_errors_end_the_wait),
        TEST(every_call_can_fail),
        TEST(making_a_group_can_fail),
        TEST(an_exchange_can_fail),
        TEST(memory_is_freed_after_the_callers_abort),
        TEST(nothing_is_left_of_a_device_that_is_lost),
        TEST(a_missing_order_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
