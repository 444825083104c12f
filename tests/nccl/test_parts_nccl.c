/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of a group over NCCL, on communicators that are the library's own: what they carry, how
 * they end, and that only they are ever aborted; and pairs, in which NCCL carries bulk bytes only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "cuda/stand_in_cuda.h"
#include "device/stand_in.h"
#include "group/collective.h"
#include "nccl/nccl_group.h"
#include "nccl/players.h"

static const dcp_collective patient = {"testing", 30};

/* The player's part of two, in reversed order. */
static struct player in_part(const struct player *player)
{
    struct player part = *player;
    must(dcp_group_split(player->group, player->rank % 2, -player->rank, 30, &part.group));
    part.rank = dcp_group_rank(part.group);
    part.size = dcp_group_size(part.group);
    assert_int_equal(part.size, (player->size + 1 - player->rank % 2) / 2);
    assert_int_equal(part.rank, part.size - 1 - player->rank / 2);
    return part;
}

static void work_in_parts(struct player *player)
{
    char path[512];
    struct player part = in_part(player);
    snprintf(path, sizeof path, "%s/pp%d", player->path, player->rank % 2);
    part.path = path;
    exchange(&part);
    exchange_all(&part);
    save_and_load(&part);
    load_for_each_other(&part);
    exchange(player);
    dcp_group_free(part.group);
    exchange_all(player);
}

static void parts_do_all_that_groups_do(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    for (int size = 2; size <= STAND_IN_RANKS_MAX; size++) {
        char name[16];
        snprintf(name, sizeof name, "%d", size);
        job_begin(players, size, path_in(state, name));
        for (int r = 0; r < size && size == 3; r++)
            stand_in_nccl_linger(players[r].communicator, r + 1);
        job_play(players, size, work_in_parts);
        job_end(players);
        assert_int_equal(stand_in_figures().blocks, 0);
        assert_int_equal(stand_in_cuda_host_blocks(), 0);
    }
    assert_int_equal(stand_in_nccl_figures().aborted, 0);
}

static void split_without_the_last(struct player *player)
{
    int color = player->rank == player->size - 1 ? DCP_NO_COLOR : 3;
    dcp_group *part;
    must(dcp_group_split(player->group, color, 0, 30, &part));
    assert_int_equal(part == NULL, color == DCP_NO_COLOR);
    if (part)
        must(collective_broadcast(part, &patient, 0, &(int){5}, sizeof(int)));
    dcp_group_free(part);
}

static void ranks_may_be_in_no_part(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    job_begin(players, 3, *state);
    job_play(players, 3, split_without_the_last);
    job_end(players);
    assert_int_equal(stand_in_figures().blocks, 0);
}

/* Its last rank does not come. The others abort the part and nothing else, and go on. */
static void give_up_on_a_part(struct player *player)
{
    struct player part = *player;
    must(dcp_group_split(player->group, 0, 0, 30, &part.group));
    if (player->rank != player->size - 1) {
        gather_soon(&part);
        assert_int_equal(part.status, DCP_ERR_TIMEOUT);
        assert_non_null(
            strstr(dcp_error_message(), "not all of 3 ranks made this call within 0.3 seconds"));
        gather_soon(&part);
        assert_int_equal(part.status, DCP_ERR_STATE);
    }
    exchange(player);
    dcp_group_free(part.group);
    exchange(player);
}

static void only_what_is_ours_is_aborted(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    int aborted = stand_in_nccl_figures().aborted;
    job_begin(players, 3, *state);
    job_play(players, 3, give_up_on_a_part);
    assert_int_equal(stand_in_nccl_figures().aborted, aborted + 2);
    job_end(players);
    assert_int_equal(stand_in_figures().blocks, 0);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
}

static _Atomic bool held;

static void hold(void *argument)
{
    (void)argument;
    while (held)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* An abort would wait for it. */
static void wait_behind_others(struct player *player)
{
    struct player part = *player;
    must(dcp_group_split(player->group, 0, 0, 30, &part.group));
    held = true;
    int aborted = stand_in_nccl_figures().aborted;
    stand_in_stream_run(player->stream, hold, NULL);
    gather_soon(&part);
    assert_int_equal(part.status, DCP_ERR_TIMEOUT);
    assert_non_null(
        strstr(dcp_error_message(), "earlier work on the stream did not end within 0.3 seconds"));
    assert_int_equal(stand_in_nccl_figures().aborted, aborted);
    held = false;
    stand_in_set_current(player->device);
    while (cudaEventQuery(((struct nccl_group *)part.group->context)->begun) == cudaErrorNotReady)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    stand_in_set_current(-1);
    dcp_group_free(part.group);
    assert_int_equal(stand_in_nccl_figures().aborted, aborted + 1);
}

static void what_the_caller_has_on_the_stream_is_not_waited_for(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    job_begin(players, 1, *state);
    job_play(players, 1, wait_behind_others);
    job_end(players);
    assert_int_equal(stand_in_figures().blocks, 0);
}

static void split_in_vain(struct player *player)
{
    dcp_group *part = NULL;
    player->status = dcp_group_split(player->group, 0, 0, 30, &part);
    assert_null(part);
    must(collective_broadcast(player->group, &patient, 0, &(int){5}, sizeof(int)));
}

/* On any rank: nobody gets a part, and the group is as good as before. */
static void a_split_can_fail(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    for (int odd = 0; odd < 3; odd++) {
        job_begin(players, 3, *state);
        stand_in_nccl_fail(players[odd].communicator, "ncclCommSplit", 1, ncclSystemError);
        job_play(players, 3, split_in_vain);
        for (int r = 0; r < 3; r++)
            assert_int_equal(players[r].status, DCP_ERR_GROUP);
        job_end(players);
    }
    static const char *const cuda[] = {"cudaMalloc", "cudaHostAlloc", "cudaEventCreateWithFlags"};
    for (size_t i = 0; i < sizeof cuda / sizeof *cuda; i++)
        for (long n = 1; n <= 3; n++) {
            job_begin(players, 3, *state);
            stand_in_cuda_fail(cuda[i], n, cudaErrorMemoryAllocation);
            job_play(players, 3, split_in_vain);
            stand_in_cuda_fail("", 0, cudaSuccess);
            for (int r = 0; r < 3; r++)
                assert_int_equal(players[r].status, DCP_ERR_NO_MEMORY);
            job_end(players);
        }
    assert_int_equal(stand_in_figures().blocks, 0);
    assert_int_equal(stand_in_cuda_host_blocks(), 0);
}

/* Others are lost after all have met: where the communicator does not block, the deadline holds. */
static void a_split_can_be_late(void **state)
{
    for (int color = DCP_NO_COLOR; color <= 0; color++) {
        static const dcp_collective hasty = {"splitting", 0.2};
        struct player players[STAND_IN_RANKS_MAX];
        void *part = NULL;
        job_begin(players, 2, *state);
        stand_in_nccl_linger(players[0].communicator, 1);
        dcp_group *group = players[0].group;
        must_fail(group->operations.split(group->context, &hasty, color, 0, 2, &part),
                  DCP_ERR_TIMEOUT, "not all of 2 ranks made this call within 0.2 seconds");
        assert_null(part);
        job_end(players);
    }
}

/* How the communicator of a part is given back. */
static void end_part(struct player *player)
{
    dcp_group *part;
    must(dcp_group_split(player->group, 0, 0, 30, &part));
    ncclComm_t communicator = ((struct nccl_group *)part->context)->communicator;
    stand_in_nccl_fail(communicator, "ncclCommFinalize", player->rank == 0, ncclSystemError);
    stand_in_nccl_stall(communicator, player->rank == 1);
    dcp_group_free(part);
}

static void parts_that_do_not_end_are_aborted(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    int aborted = stand_in_nccl_figures().aborted;
    double before = nccl_now();
    job_begin(players, 3, *state);
    job_play(players, 3, end_part);
    job_end(players);
    assert_int_equal(stand_in_nccl_figures().aborted, aborted + 2);
    assert_in_range((int)(nccl_now() - before), 4, 20);
}

/* ---- pairs ---- */

/* A group of threads for everything, and NCCL for bulk bytes. */
static void pair_begin(struct player *players, dcp_group **bulk, int size, const char *path)
{
    dcp_group *threads[STAND_IN_RANKS_MAX];
    job_begin(players, size, path);
    must(dcp_group_new_threads(size, threads));
    for (int r = 0; r < size; r++) {
        bulk[r] = players[r].group;
        players[r].group = threads[r];
    }
}

static dcp_group *bulk_groups[STAND_IN_RANKS_MAX];

static void pair_up(struct player *player)
{
    must(dcp_group_pair(player->group, bulk_groups[player->device], 30));
}

/* From here on NCCL gathers and broadcasts no more. */
static void use_pair(struct player *player)
{
    dcp_group *copy, *bulk = player->group->bulk;
    stand_in_nccl_fail(player->communicator, "ncclAllGather", 1, ncclInternalError);
    save_and_load(player);
    load_for_each_other(player);
    must_fail(dcp_group_duplicate(NULL, 1, NULL), DCP_ERR_ARGUMENT, "copy");
    must(dcp_group_duplicate(player->group, 30, &copy));
    assert_null(copy->bulk);
    assert_null(bulk->operations.duplicate);
    dcp_group_free(copy);
}

static void pairs_send_bulk_bytes_over_nccl(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    for (int size = 2; size <= STAND_IN_RANKS_MAX; size++) {
        char name[16];
        snprintf(name, sizeof name, "%d", size);
        pair_begin(players, bulk_groups, size, path_in(state, name));
        job_play(players, size, pair_up);
        job_play(players, size, use_pair);
        job_end(players);
        assert_int_equal(stand_in_figures().blocks, 0);
    }
}

static void load_soon(struct player *player)
{
    int32_t values[60 * 7];
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {60, 7}, .data = values};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &tensor);
    player->status = dcp_load(root, player->path,
                              &(dcp_load_options){.group = player->group,
                                                  .timeout_seconds = 0.5,
                                                  .reading = DCP_READING_COOPERATIVE},
                              NULL);
    dcp_state_free(root);
}

/* A failure of NCCL on one rank is heard by all over the other group. */
static void what_fails_in_bulk_is_heard_by_all(void **state)
{
    struct player players[STAND_IN_RANKS_MAX];
    pair_begin(players, bulk_groups, 3, path_in(state, "c"));
    job_play(players, 3, pair_up);
    job_play(players, 3, save_and_load);
    stand_in_nccl_fail(players[0].communicator, "ncclGroupEnd", 1, ncclSystemError);
    job_play(players, 3, load_soon);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(players[r].status, DCP_ERR_GROUP);
        assert_non_null(strstr(players[r].message, "sending and receiving failed: unhandled"));
        assert_string_equal(players[r].message, players[0].message);
    }
    job_end(players);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, players_setup, players_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(parts_do_all_that_groups_do),
        TEST(ranks_may_be_in_no_part),
        TEST(only_what_is_ours_is_aborted),
        TEST(what_the_caller_has_on_the_stream_is_not_waited_for),
        TEST(a_split_can_fail),
        TEST(a_split_can_be_late),
        TEST(parts_that_do_not_end_are_aborted),
        TEST(pairs_send_bulk_bytes_over_nccl),
        TEST(what_fails_in_bulk_is_heard_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
