/* SPDX-License-Identifier: BSD-3-Clause */
#include <dcp/mpi.h>

#include "save_load.h"

int main(int argc, char **argv)
{
    dcp_group *group = NULL;
    MPI_Init(&argc, &argv);
    int failed = argc != 2 || dcp_group_new_mpi(MPI_COMM_WORLD, &group) != DCP_OK ||
                 save_and_load(argv[1], group) != 0;
    dcp_group_free(group);
    MPI_Finalize();
    return failed;
}
