/* SPDX-License-Identifier: BSD-3-Clause */
/* A point of `growth` with real ranks: as `bench_growth ranks`, but by processes of MPI, into
 * files.
 *
 *   mpiexec -n RANKS bench_growth_mpi TENSORS mesh|plans DIR
 *
 * Figures are of a rank, on average. */
#include <dcp.h>
#include <dcp/mpi.h>
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "growth_point.h"

/* Rank 0 reports what all of them took. */
static void report(const char *what, const struct growth_point *start, int ranks, int rank)
{
    struct growth_point own = growth_since(start);
    double figures[] = {own.user, own.kernel, own.memory}, sums[3];

    MPI_Reduce(figures, sums, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    struct growth_point sum = {.user = sums[0], .kernel = sums[1], .memory = sums[2]};
    if (rank == 0)
        growth_report(what, &sum, ranks);
}

static void measure(long tensors, bool mesh, const char *path)
{
    float data[GROWTH_COLUMNS] = {1, 2, 3, 4};
    int ranks, rank;
    dcp_group *group;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    growth_check(dcp_group_new_mpi(MPI_COMM_WORLD, &group));
    dcp_state *root = growth_rank_state(ranks, rank, tensors, mesh, data);
    const dcp_save_options save = {.group = group};
    const dcp_load_options load = {.group = group};
    MPI_Barrier(MPI_COMM_WORLD);
    struct growth_point start = growth_start();
    growth_check(dcp_save(root, path, &save));
    report("save", &start, ranks, rank);
    start = growth_start();
    growth_check(dcp_load(root, path, &load, NULL));
    report("load", &start, ranks, rank);
    dcp_state_free(root);
    dcp_group_free(group);
}

int main(int argc, char **argv)
{
    int level;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    long tensors = argc == 4 ? strtol(argv[1], NULL, 10) : 0;
    if (tensors <= 0)
        errx(2, "usage: mpiexec -n RANKS bench_growth_mpi TENSORS mesh|plans DIR");
    measure(tensors, strcmp(argv[2], "mesh") == 0, argv[3]);
    MPI_Finalize();
    return 0;
}
