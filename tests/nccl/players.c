/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/players.h"

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
#include "group/collective.h"

int players_setup(void **state)
{
    stand_in_cuda_begin();
    return directory_setup(state);
}

int players_teardown(void **state)
{
    struct stand_in_nccl_figures figures = stand_in_nccl_figures();
    stand_in_cuda_end();
    if (figures.alive != 0 || figures.foreign_aborts != 0)
        fail_msg("%d communicators of ours are left, %d of the caller's were aborted",
                 figures.alive, figures.foreign_aborts);
    return directory_teardown(state);
}

static void *play(void *argument)
{
    struct player *player = argument;
    rank_set_apart(true); /* so that messages are sent */
    player->body(player);
    snprintf(player->message, sizeof player->message, "%s", dcp_error_message());
    return NULL;
}

void job_begin(struct player players[STAND_IN_RANKS_MAX], int size, const char *path)
{
    ncclComm_t communicators[STAND_IN_RANKS_MAX];
    stand_in_nccl_new(size, communicators);
    for (int r = 0; r < size; r++) {
        players[r] = (struct player){.rank = r,
                                     .device = r,
                                     .size = size,
                                     .communicator = communicators[r],
                                     .stream = stand_in_stream_new(r),
                                     .path = path};
        must(dcp_group_new_nccl(communicators[r], players[r].stream, &players[r].group));
        assert_int_equal(dcp_group_rank(players[r].group), r);
        assert_int_equal(dcp_group_size(players[r].group), size);
    }
}

void job_play(struct player *players, int count, void (*body)(struct player *))
{
    for (int r = 0; r < count; r++) {
        players[r].body = body;
        assert_int_equal(pthread_create(&players[r].thread, NULL, play, &players[r]), 0);
    }
    for (int r = 0; r < count; r++)
        assert_int_equal(pthread_join(players[r].thread, NULL), 0);
}

void job_end(struct player *players)
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

void exchange(struct player *player)
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

/* Rank r's message to rank d has so many bytes; some have none. */
static size_t size_between(int from, int to, size_t unit)
{
    return from == to || (from + 2 * to) % 3 == 2 ? 0 : unit * (size_t)(1 + from) + (size_t)to;
}

void exchange_all(struct player *player)
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

/* Rows of a matrix on the ranks' own devices. */
void save_and_load(struct player *player)
{
    int32_t values[60 * 7];
    dcp_mesh mesh = {.ndim = 1, .shape = {player->size}, .rank = player->rank};
    dcp_placement rows = dcp_shard(0);
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {60, 7}};
    must(dcp_mesh_shard(&mesh, &tensor, &rows));
    size_t count = (size_t)(tensor.sizes[0] * 7);
    for (size_t i = 0; i < count; i++)
        values[i] = (int32_t)(tensor.offsets[0] * 7 + (int64_t)i);
    tensor.device = dcp_cuda_stream(player->device, player->stream);
    tensor.data = stand_in_new(player->device, values, count * sizeof *values);
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
void load_for_each_other(struct player *player)
{
    int32_t values[60 * 7];
    for (int32_t i = 0; i < 60 * 7; i++)
        values[i] = i;
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {60, 7}};
    tensor.device = dcp_cuda_stream(player->device, player->stream);
    tensor.data = stand_in_new(player->device, NULL, sizeof values);
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

void gather_soon(struct player *player)
{
    dcp_collective call = {"gathering", 0.3};
    unsigned char own[16] = {1}, all[16 * STAND_IN_RANKS_MAX];
    player->status = collective_all_gather(player->group, &call, own, sizeof own, all);
}
