/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench_async.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "seconds.h"

/* A matrix that stays in the cache, and how long computing is measured at least. */
enum { SIDE = 96 };
static const double calm_seconds = 0.3;

static void check(dcp_status status)
{
    if (status != DCP_OK)
        errx(1, "%s: %s", dcp_status_string(status), dcp_error_message());
}

static float left[SIDE][SIDE], right[SIDE][SIDE], product[SIDE][SIDE];

static void multiply(void)
{
    for (int i = 0; i < SIDE; i++)
        for (int k = 0; k < SIDE; k++)
            for (int j = 0; j < SIDE; j++)
                product[i][j] = product[i][j] * 0.5F + left[i][k] * right[k][j];
}

static bool is_over(dcp_future *future)
{
    return !future || dcp_future_poll(future) >= DCP_FUTURE_DONE;
}

/* Computes until the save is over. Returns the products in a second. */
static double compute(dcp_future *future, double least, double *seconds)
{
    double start = seconds_now();
    long products = 0;

    do {
        multiply();
        products++;
        *seconds = seconds_now() - start;
    } while (*seconds < least || !is_over(future));
    return (double)products / *seconds;
}

static void compute_beside(dcp_future *future, double calm_rate, struct async_times *times)
{
    double processor = seconds_on(CLOCK_PROCESS_CPUTIME_ID), seconds;
    double own = seconds_on(CLOCK_THREAD_CPUTIME_ID);
    double rate = compute(future, 0, &seconds);

    own = seconds_on(CLOCK_THREAD_CPUTIME_ID) - own;
    times->processor = seconds_on(CLOCK_PROCESS_CPUTIME_ID) - processor - own;
    times->lost = seconds * (1 - rate / calm_rate);
}

void bench_async_save(struct bench_async *async, const char *path, dcp_staging_kind staging,
                      bool computes, struct async_times *times)
{
    dcp_save_chain **chain = &async->chains[staging];
    double calm_rate = 0, seconds;
    dcp_future *future;

    if (!*chain)
        check(dcp_save_chain_new(
            &(dcp_save_chain_options){.group = async->group, .staging = staging}, chain));
    dcp_save_options options = {.chain = *chain};
    shared_barrier(async->shared);
    if (computes)
        calm_rate = compute(NULL, calm_seconds, &seconds);
    shared_start(async->shared);
    double start = seconds_now();
    check(dcp_save_async(async->state->root, path, &options, &future));
    check(dcp_future_wait_staged(future, -1));
    times->waited = seconds_now() - start;
    if (computes)
        compute_beside(future, calm_rate, times);
    check(dcp_future_wait(future, -1));
    times->whole = seconds_now() - start;
    dcp_future_free(future);
}

static size_t chunk_bytes(const dcp_tensor *chunk)
{
    return (size_t)(chunk->sizes[0] * chunk->sizes[1]) * sizeof(float);
}

double bench_async_copy(struct bench_async *async)
{
    const struct bench_state *state = async->state;
    size_t size = 0;

    for (size_t t = 0; t < state->count; t++)
        size += chunk_bytes(&state->chunks[t]);
    if (!async->copy) {
        async->copy = malloc(size + 1);
        if (!async->copy)
            err(1, "no memory");
        memset(async->copy, 1, size);
    }
    shared_start(async->shared);
    double start = seconds_now();
    unsigned char *to = async->copy;
    for (size_t t = 0; t < state->count; to += chunk_bytes(&state->chunks[t++]))
        memcpy(to, state->chunks[t].data, chunk_bytes(&state->chunks[t]));
    return seconds_now() - start;
}

void bench_async_free(struct bench_async *async)
{
    for (int staging = 0; staging <= DCP_STAGING_OVERLAPPED; staging++)
        dcp_save_chain_free(async->chains[staging]);
    free(async->copy);
}
