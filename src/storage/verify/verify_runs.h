/* SPDX-License-Identifier: BSD-3-Clause */
/* The pieces of a job in runs: small neighbours are read at once, with the blocks that they lie in,
 * and all that is looked at of them is in memory; what is larger is read where it is looked at. */
#ifndef STORAGE_VERIFY_VERIFY_RUNS_H
#define STORAGE_VERIFY_VERIFY_RUNS_H

#include "storage/shard/read_batch.h"
#include "storage/shard/shard_request.h"
#include "storage/verify/verify_jobs.h"

struct verify_run {
    size_t first, count; /* of the job's pieces */
    uint64_t from, end;  /* bytes of the file whose blocks are its own, as those of a job */
    bool together;       /* its pieces are read at once */
};

/* Small runs that have been announced, or are being read. */
struct runs_ahead {
    struct read_batch *batch; /* NULL: the page cache has them */
    size_t end;               /* of their pieces */
    uint64_t reached;         /* end of the last one */
};

struct verify_runs {
    struct verification *verification; /* whose window is that of the current run */
    const struct placed_piece *placed; /* of the job */
    size_t count;
    uint64_t end;
    struct shard_file *file; /* in use */
    uint64_t together;       /* bytes that are read at once */
    struct verify_run run;   /* the current one */
    bool begun;
    struct runs_ahead ahead[2]; /* that of the current run, and the next one */
    struct read_window window;
};

/* To be ended in any case. */
dcp_status verify_runs_begin(struct verify_runs *runs, struct verification *verification,
                             const struct placed_piece *placed, const struct file_job *job);
/* The next run; false: there is none. A job without pieces has one of blocks alone. */
bool verify_runs_next(struct verify_runs *runs, dcp_status *status);
void verify_runs_end(struct verify_runs *runs);

#endif
