/* SPDX-License-Identifier: BSD-3-Clause */
#include <dcp/nccl.h>

#include "save_load.h"

/* Without a GPU there is no communicator to make a group of. */
int main(int argc, char **argv)
{
    dcp_group *group = NULL;
    int version = 0;
    return argc != 2 || ncclGetVersion(&version) != ncclSuccess || version <= 0 ||
           dcp_group_new_nccl(NULL, NULL, &group) != DCP_ERR_ARGUMENT ||
           save_and_load(argv[1], group) != 0;
}
