/* SPDX-License-Identifier: BSD-3-Clause */
/* make_run DIRECTORY STEP...: a run with these checkpoints, for tests of the command. Each has the
 * number "loss": its step's last digit. */
#include <stdio.h>
#include <stdlib.h>

#include "run/job_scene.h"

int main(int argc, char **argv)
{
    struct job job;
    if (argc < 2)
        return 2;
    job_make(&job, 0, 1);
    job_open(&job, argv[1], NULL);
    for (int i = 2; i < argc; i++) {
        int64_t step = atoll(argv[i]);
        must(dcp_run_note(job.run, "loss", (double)(step % 10)));
        job_save(&job, step);
    }
    job_close(&job);
    return 0;
}
