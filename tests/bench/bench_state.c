/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench_state.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of tensors' memory, as frameworks have it. */
enum { ALIGNMENT = 64 };

void bench_state_new(struct bench_state *state, size_t count, int64_t rows, int64_t columns,
                     int dim, int rank, int ranks, bool with_layout)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {ranks}, .rank = rank};
    dcp_placement placement = dim < 0 ? dcp_replicate() : dcp_shard(dim);
    char name[40];

    *state = (struct bench_state){
        .count = count,
        .rows = rows,
        .columns = columns,
        .chunks = calloc(count, sizeof *state->chunks),
        .root = dcp_state_new(),
    };
    dcp_state *model = dcp_state_dict(state->root, "model");
    for (size_t t = 0; state->chunks && t < count; t++) {
        dcp_tensor *chunk = &state->chunks[t];
        *chunk = (dcp_tensor){.dtype = DCP_F32, .ndim = 2, .global_shape = {rows, columns}};
        if (dcp_mesh_shard(&mesh, chunk, &placement) != DCP_OK)
            errx(1, "%s", dcp_error_message());
        if (!with_layout)
            chunk->layout = (dcp_layout){0};
        size_t size = (size_t)(chunk->sizes[0] * chunk->sizes[1] + 1) * sizeof(float);
        chunk->data = aligned_alloc(ALIGNMENT, (size / ALIGNMENT + 1) * ALIGNMENT);
        if (!chunk->data)
            err(1, "no memory");
        snprintf(name, sizeof name, "t%zu", t);
        dcp_state_tensor(model, name, chunk);
    }
    if (dcp_state_status(state->root) != DCP_OK)
        errx(1, "%s", dcp_error_message());
}

void bench_state_free(struct bench_state *state)
{
    dcp_state_free(state->root);
    for (size_t t = 0; t < state->count; t++)
        free(state->chunks[t].data);
    free(state->chunks);
}

static float element(const struct bench_state *state, size_t t, int64_t row, int64_t column)
{
    return (float)(((int64_t)t * 31 + row * state->columns + column) & 0xffffff);
}

void bench_state_fill(const struct bench_state *state)
{
    for (size_t t = 0; t < state->count; t++) {
        const dcp_tensor *chunk = &state->chunks[t];
        float *data = chunk->data;
        for (int64_t r = 0; r < chunk->sizes[0]; r++)
            for (int64_t c = 0; c < chunk->sizes[1]; c++)
                *data++ = element(state, t, chunk->offsets[0] + r, chunk->offsets[1] + c);
    }
}

void bench_state_clear(const struct bench_state *state)
{
    for (size_t t = 0; t < state->count; t++)
        memset(state->chunks[t].data, 0xff,
               (size_t)(state->chunks[t].sizes[0] * state->chunks[t].sizes[1]) * sizeof(float));
}

bool bench_state_is_filled(const struct bench_state *state)
{
    for (size_t t = 0; t < state->count; t++) {
        const dcp_tensor *chunk = &state->chunks[t];
        const float *data = chunk->data;
        for (int64_t r = 0; r < chunk->sizes[0]; r++)
            for (int64_t c = 0; c < chunk->sizes[1]; c++)
                if (*data++ != element(state, t, chunk->offsets[0] + r, chunk->offsets[1] + c))
                    return false;
    }
    return true;
}
