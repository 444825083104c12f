/* SPDX-License-Identifier: BSD-3-Clause */
/* libdcp_nccl over stand-ins for NCCL and CUDA: messages of all sizes, saves and loads, ranks that
 * fail and that never come. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "cuda/stand_in_cuda.h"
#include "dcp/cuda.h"
#include "dcp/nccl.h"
#include "device/stand_in.h"
#include "group/collective.h"
#include "nccl/stand_in_nccl.h"

/* A rank is a thread with a device, a stream and a communicator. */
struct player {
    int rank, size;
    ncclComm_t communicator;
    cudaStream_t stream;
    dcp_group *group; /* made for it, unless the test makes its own */
    const char *path;
    void (*body)(struct player *player);
    dcp_status status;
    char message[1024];
    pthread_t thread;
};

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

static void *play(void *argument)
{
    struct player *player = argument;
    player->body(player);
    snprintf(player->message, sizeof player->message, "%s", dcp_error_message());
    return NULL;
}

static void job_begin(struct player players[STAND_IN_RANKS_MAX], int size, const char *path)
{
    ncclComm_t communicators[STAND_IN_RANKS_MAX];
    stand_in_nccl_new(size, communicators);
    for (int r = 0; r < size; r++) {
        players[r] = (struct player){.rank = r,
                                     .size = size,
                                     .communicator = communicators[r],
                                     .stream = stand_in_stream_new(r),
                                     .path = path};
        must(dcp_group_new_nccl(communicators[r], players[r].stream, &players[r].group));
        assert_int_equal(dcp_group_rank(players[r].group), r);
        assert_int_equal(dcp_group_size(players[r].group), size);
    }
}

static void job_play(struct player *players, int count, void (*body)(struct player *))
{
    for (int r = 0; r < count; r++) {
        players[r].body = body;
        assert_int_equal(pthread_create(&players[r].thread, NULL, play, &players[r]), 0);
    }
    for (int r = 0; r < count; r++)
        assert_int_equal(pthread_join(players[r].thread, NULL), 0);
}

static void job_end(struct player *players)
{
    int size = players[0].size;
    for (int r = 0; r < size; r++)
        dcp_group_free(players[r].group);
    stand_in_nccl_abort(players[0].communicator);
    for (int r = 0; r < size; r++)
        stand_in_stream_free(players[r].stream);
    stand_in_nccl_free(players[0].communicator);
}

static unsigned char byte_of(int rank, size_t at)
{
    return (unsigned char)((size_t)rank * 31 + at * 7 + at / 251);
}

/* More than goes through the device at once, too. */
static const size_t sizes[] = {0, 1, 20, 4096, 100000, 5000001};

static void exchange(struct player *player)
{
    dcp_collective call = {"exchanging", 30};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = sizes[i];
        unsigned char *own = malloc(bytes + 1), *all = malloc((size_t)player->size * bytes + 1);
        for (size_t at = 0; at < bytes; at++)
            own[at] = byte_of(player->rank, at);
        must(collective_all_gather(player->group, &call, own, bytes, all));
        for (int r = 0; r < player->size; r++)
            for (size_t at = 0; at < bytes; at++)
                if (all[(size_t)r * bytes + at] != byte_of(r, at))
                    fail_msg("byte %zu of %zu from rank %d", at, bytes, r);
        for (int root = 0; root < player->size; root++) {
            for (size_t at = 0; at < bytes; at++)
                own[at] = byte_of(player->rank, at);
            must(collective_broadcast(player->group, &call, root, own, bytes));
            for (size_t at = 0; at < bytes; at++)
                if (own[at] != byte_of(root, at))
                    fail_msg("byte %zu of %zu broadcast by rank %d", at, bytes, root);
        }
        free(all);
        free(own);
    }
    assert_int_equal(stand_in_current(), -1);
}

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

/* Rank r's message to rank d has so many bytes; some have none. */
static size_t size_between(int from, int to, size_t unit)
{
    return from == to || (from + 2 * to) % 3 == 2 ? 0 : unit * (size_t)(1 + from) + (size_t)to;
}

static void exchange_all(struct player *player)
{
    dcp_collective call = {"exchanging", 30};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t counts[4][STAND_IN_RANKS_MAX] = {{0}}, most = 0, total = 0;
        for (int r = 0; r < player->size; r++) {
            counts[0][r] = size_between(player->rank, r, sizes[i]);
            counts[1][r] = (size_t)r; /* overlapping */
            counts[2][r] = size_between(r, player->rank, sizes[i]);
            counts[3][r] = total;
            total += counts[2][r];
            most = counts[0][r] + counts[1][r] > most ? counts[0][r] + counts[1][r] : most;
        }
        unsigned char *own = malloc(most + 1), *all = malloc(total + 1);
        for (size_t at = 0; at < most; at++)
            own[at] = byte_of(player->rank, at);
        must(collective_all_to_all(player->group, &call, own, counts[0], counts[1], all, counts[2],
                                   counts[3]));
        for (int r = 0; r < player->size; r++)
            for (size_t at = 0; at < counts[2][r]; at++)
                if (all[counts[3][r] + at] != byte_of(r, at + (size_t)player->rank))
                    fail_msg("byte %zu from rank %d", at, r);
        free(all);
        free(own);
    }
    assert_int_equal(stand_in_current(), -1);
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

/* Rows of a matrix on the ranks' own devices. */
static void save_and_load(struct player *player)
{
    int32_t values[60 * 7];
    dcp_mesh mesh = {.ndim = 1, .shape = {player->size}, .rank = player->rank};
    dcp_placement rows = dcp_shard(0);
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {60, 7}};
    must(dcp_mesh_shard(&mesh, &tensor, &rows));
    size_t count = (size_t)(tensor.sizes[0] * 7);
    for (size_t i = 0; i < count; i++)
        values[i] = (int32_t)(tensor.offsets[0] * 7 + (int64_t)i);
    tensor.device = dcp_cuda_stream(player->rank, player->stream);
    tensor.data = stand_in_new(player->rank, values, count * sizeof *values);
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &tensor);
    dcp_state_int(root, "step", 7);
    must(dcp_save(root, player->path, &(dcp_save_options){.group = player->group}));
    memset(stand_in_bytes(tensor.data), 0, count * sizeof *values);
    must(dcp_load(root, player->path, &(dcp_load_options){.group = player->group}, NULL));
    assert_memory_equal(stand_in_bytes(tensor.data), values, count * sizeof *values);
    dcp_state_free(root);
    stand_in_free(tensor.data);
}

/* Everyone wants all of the matrix, on its own device, and reads some of it for the others. */
static void load_for_each_other(struct player *player)
{
    int32_t values[60 * 7];
    for (int32_t i = 0; i < 60 * 7; i++)
        values[i] = i;
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {60, 7}};
    tensor.device = dcp_cuda_stream(player->rank, player->stream);
    tensor.data = stand_in_new(player->rank, NULL, sizeof values);
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &tensor);
    must(dcp_load(root, player->path,
                  &(dcp_load_options){.group = player->group,
                                      .reading = DCP_READING_COOPERATIVE,
                                      .figures = &figures},
                  NULL));
    assert_memory_equal(stand_in_bytes(tensor.data), values, sizeof values);
    assert_true(player->size == 1 || figures.bytes_exchanged > 0);
    dcp_state_free(root);
    stand_in_free(tensor.data);
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

static void gather_soon(struct player *player)
{
    dcp_collective call = {"gathering", 0.3};
    unsigned char own[16] = {1}, all[16 * STAND_IN_RANKS_MAX];
    player->status = collective_all_gather(player->group, &call, own, sizeof own, all);
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
        assert_non_null(strstr(players[r].message,
                               "exchanging what was read: not all of 3 ranks came within 0.3"));
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
            strstr(players[r].message, "gathering: not all of 3 ranks came within 0.3"));
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
    assert_int_equal(stand_in_cuda_host_blocks(), 4);
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
    must_fail(dcp_group_new_nccl(NULL, stream, &group), DCP_ERR_ARGUMENT, "is null");
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

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_of_all_sizes_arrive),     TEST(everyone_sends_to_everyone),
        TEST(gpu_only_jobs_save_and_load),      TEST(a_rank_never_comes),
        TEST(asynchronous_errors_end_the_wait), TEST(every_call_can_fail),
        TEST(making_a_group_can_fail),          TEST(an_exchange_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
