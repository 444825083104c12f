/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous saves of jobs that have NCCL: nothing is sent behind the caller's back, so that they
 * commit when they are asked for; paired with another group, they commit by themselves over that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "cuda/stand_in_cuda.h"
#include "dcp/cuda.h"
#include "device/stand_in.h"
#include "nccl/players.h"

enum { ROWS = 60, COLUMNS = 7 };

static void doze(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

/* A rank's rows of a matrix, on its device. */
struct rows {
    dcp_tensor tensor;
    int32_t values[ROWS * COLUMNS];
    size_t bytes;
};

static void rows_make(struct rows *rows, const struct player *player)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {player->size}, .rank = player->rank};
    dcp_placement by_rows = dcp_shard(0);
    rows->tensor = (dcp_tensor){.dtype = DCP_I32, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    must(dcp_mesh_shard(&mesh, &rows->tensor, &by_rows));
    rows->bytes = (size_t)(rows->tensor.sizes[0] * COLUMNS) * sizeof(int32_t);
    for (size_t i = 0; i < rows->bytes / sizeof(int32_t); i++)
        rows->values[i] = (int32_t)(rows->tensor.offsets[0] * COLUMNS + (int64_t)i);
    rows->tensor.device = dcp_cuda_stream(player->device, player->stream);
    rows->tensor.data = stand_in_new(player->device, rows->values, rows->bytes);
}

static dcp_state *tree_of(const struct rows *rows)
{
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &rows->tensor);
    return root;
}

static dcp_future *begin(const struct player *player, const struct rows *rows, double timeout,
                         dcp_save_chain **chain)
{
    dcp_save_chain_options how = {
        .group = player->group, .staging = DCP_STAGING_OVERLAPPED, .exit_seconds = 0.2};
    dcp_save_options options = {.group = player->group, .timeout_seconds = timeout};
    dcp_future *future = NULL;
    dcp_state *root = tree_of(rows);
    must(dcp_save_chain_new(&how, chain));
    options.chain = *chain;
    must(dcp_save_async(root, player->path, &options, &future));
    must(dcp_future_wait_staged(future, 30));
    memset(stand_in_bytes(rows->tensor.data), 0, rows->bytes);
    dcp_state_free(root);
    return future;
}

static void check(const struct player *player, const struct rows *rows)
{
    dcp_state *root = tree_of(rows);
    must(dcp_load(root, player->path, &(dcp_load_options){.group = player->group}, NULL));
    assert_memory_equal(stand_in_bytes(rows->tensor.data), rows->values, rows->bytes);
    dcp_state_free(root);
}

/* What training does meanwhile. */
static void train(const struct player *player, void *sums)
{
    stand_in_set_current(player->device);
    assert_int_equal(
        ncclAllReduce(sums, sums, 4, ncclInt64, ncclSum, player->communicator, player->stream),
        ncclSuccess);
    stand_in_set_current(-1);
}

static void save_and_ask(struct player *player)
{
    struct rows rows;
    dcp_save_chain *chain;
    void *sums = stand_in_new(player->device, NULL, 4 * sizeof(int64_t));
    rows_make(&rows, player);
    dcp_future *future = begin(player, &rows, 30, &chain);
    assert_false(dcp_save_chain_in_background(chain));
    long before = stand_in_nccl_collectives(player->communicator);
    doze(150);
    assert_int_equal(stand_in_nccl_collectives(player->communicator), before);
    while (dcp_future_poll(future) < DCP_FUTURE_DONE)
        train(player, sums);
    must(dcp_future_wait(future, 0));
    assert_true(stand_in_nccl_collectives(player->communicator) > before);
    dcp_future_free(future);
    dcp_save_chain_free(chain);
    check(player, &rows);
    stand_in_free(rows.tensor.data);
    stand_in_free(sums);
}

static void saves_commit_when_they_are_asked_for(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    for (int size = 2; size <= STAND_IN_RANKS_MAX; size++) {
        char name[16];
        snprintf(name, sizeof name, "%d", size);
        job_begin(players, size, path_in(state, name));
        job_play(players, size, save_and_ask);
        job_end(players);
        assert_int_equal(stand_in_cuda_host_blocks(), 0);
        assert_int_equal(stand_in_figures().blocks, 0);
    }
}

/* It does something else for longer than the others wait. */
static void wait_unless_last(struct player *player)
{
    struct rows rows;
    dcp_save_chain *chain;
    rows_make(&rows, player);
    dcp_future *future = begin(player, &rows, 0.3, &chain);
    if (player->rank != player->size - 1) {
        must_fail(dcp_future_wait(future, 30), DCP_ERR_TIMEOUT,
                  "not all of 2 ranks made this call within");
        assert_int_equal(dcp_future_poll(future), DCP_FUTURE_FAILED);
    } else {
        doze(900); /* freeing would take part */
    }
    dcp_future_free(future);
    dcp_save_chain_free(chain);
    stand_in_free(rows.tensor.data);
}

static void a_rank_that_never_waits_fails_the_others(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    dcp_checkpoint *checkpoint;
    const char *path = path_in(state, "c");
    job_begin(players, 2, path);
    job_play(players, 2, wait_unless_last);
    job_end(players);
    must_fail(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_ERR_NOT_FOUND, "");
    assert_int_not_equal(access(path_in(state, "c/.metadata.tmp"), F_OK), 0);
    assert_int_not_equal(access(path_in(state, "c/metadata.json.tmp"), F_OK), 0);
}

static dcp_group *bulk_groups[STAND_IN_RANKS_MAX];

static void save_behind(struct player *player)
{
    struct rows rows;
    dcp_save_chain *chain;
    must(dcp_group_pair(player->group, bulk_groups[player->device], 30));
    rows_make(&rows, player);
    long before = stand_in_nccl_collectives(player->communicator);
    dcp_future *future = begin(player, &rows, 30, &chain);
    assert_true(dcp_save_chain_in_background(chain));
    while (dcp_future_poll(future) < DCP_FUTURE_DONE)
        doze(1);
    must(dcp_future_wait(future, 0));
    assert_int_equal(stand_in_nccl_collectives(player->communicator), before);
    dcp_future_free(future);
    dcp_save_chain_free(chain);
    check(player, &rows);
    stand_in_free(rows.tensor.data);
}

static void pairs_commit_in_the_background(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    dcp_group *threads[STAND_IN_RANKS_MAX];
    long blocks = stand_in_figures().blocks; /* that a stuck collective has kept */
    job_begin(players, 3, path_in(state, "c"));
    must(dcp_group_new_threads(3, threads));
    for (int r = 0; r < 3; r++) {
        bulk_groups[r] = players[r].group;
        players[r].group = threads[r];
    }
    job_play(players, 3, save_behind);
    job_end(players);
    assert_int_equal(stand_in_figures().blocks, blocks);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, players_setup, players_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(saves_commit_when_they_are_asked_for),
        TEST(a_rank_that_never_waits_fails_the_others),
        TEST(pairs_commit_in_the_background),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
