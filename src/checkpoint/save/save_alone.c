/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_alone.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/error.h"

/* Environment variables in which launchers pass the number of a job's processes: Open MPI; MPICH
 * and others that use PMI; MVAPICH2; srun (sbatch also sets it for a script, which is a single
 * process); torchrun. */
static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                                        "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"};

dcp_status save_alone_explain(dcp_status status, int group_size)
{
    struct saved_error error;
    if (group_size > 1 || (status != DCP_ERR_BUSY && status != DCP_ERR_EXISTS))
        return status;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        long count = value ? strtol(value, NULL, 10) : 0;
        if (count <= 1)
            continue;
        error_save(&error);
        return dcp_error_set(status,
                             "%.800s; this process is one of %ld of a job (%s), but options.group "
                             "is not set, so each process saves separately: set options.group",
                             error.text, count, variables[i]);
    }
    return status;
}
