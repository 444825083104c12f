/* SPDX-License-Identifier: BSD-3-Clause */
#include "growth_point.h"

#include <err.h>
#include <stdio.h>
#include <sys/resource.h>

#include "memory_use.h"
#include "seconds.h"

void growth_check(dcp_status status)
{
    if (status != DCP_OK)
        errx(1, "%s: %s", dcp_status_string(status), dcp_error_message());
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static struct growth_point read_now(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (struct growth_point){.user = seconds_of(usage.ru_utime),
                                 .kernel = seconds_of(usage.ru_stime),
                                 .wall = seconds_now()};
}

struct growth_point growth_start(void)
{
    memory_trim();
    double memory = (double)memory_restart();
    struct growth_point start = read_now();

    start.memory = memory;
    return start;
}

struct growth_point growth_since(const struct growth_point *start)
{
    double memory = (double)memory_peak();
    struct growth_point now = read_now();

    return (struct growth_point){.user = now.user - start->user,
                                 .kernel = now.kernel - start->kernel,
                                 .wall = now.wall - start->wall,
                                 .memory = memory - start->memory};
}

void growth_report(const char *what, const struct growth_point *taken, int ranks)
{
    int shares = ranks > 0 ? ranks : 1;

    printf("%s-user %.9g s\n", what, taken->user / shares);
    printf("%s-kernel %.9g s\n", what, taken->kernel / shares);
    if (ranks == 0)
        printf("%s-wall %.9g s\n", what, taken->wall);
    printf("%s-memory %.0f bytes\n", what, taken->memory / shares);
}

dcp_state *growth_rank_state(int ranks, int rank, long tensors, bool mesh, float *data)
{
    dcp_mesh line = {.ndim = 1, .shape = {ranks}, .rank = rank};
    dcp_placement rows = dcp_shard(0);
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .global_shape = {ranks, GROWTH_COLUMNS},
                         .offsets = {rank, 0},
                         .sizes = {1, GROWTH_COLUMNS},
                         .data = data};
    char name[40];

    if (mesh)
        growth_check(dcp_mesh_shard(&line, &tensor, &rows));
    dcp_state *root = dcp_state_new();
    for (long t = 0; t < tensors; t++) {
        snprintf(name, sizeof name, "layer.%07ld", t);
        dcp_state_tensor(root, name, &tensor);
    }
    growth_check(dcp_state_status(root));
    return root;
}
