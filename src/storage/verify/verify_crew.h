/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs of a check that threads do, while the calling thread reports what they find: faults in the
 * order of the jobs, whoever finds them first, and how far the check is. */
#ifndef STORAGE_VERIFY_VERIFY_CREW_H
#define STORAGE_VERIFY_VERIFY_CREW_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "dcp/types.h"

struct verify_job;

/* Does one job; its faults go to verify_job_fault(), which may be told on the calling thread at
 * once. */
typedef dcp_status verify_work(void *context, struct verify_job *job, size_t index);
/* Called on the calling thread alone. False ends the check. */
typedef bool verify_tell(void *context);

struct verify_crew {
    verify_work *work;
    verify_tell *tell; /* at least a hundred times a second while threads work */
    dcp_fault_function report;
    void *context;        /* of work and tell */
    void *report_context; /* of report */
};

/* Does jobs 0 to count - 1 on so many threads, 1: on the calling one. Jobs begin in their order.
 * After a failure none begins; it is the result, of the lowest job that failed. */
dcp_status verify_crew_run(const struct verify_crew *crew, size_t count, size_t thread_count);
void verify_job_fault(struct verify_job *job, const char *file, uint64_t offset, const char *name,
                      const char *fault);
/* Waits until `flag`, which another job sets, is true; false: the check ends. */
bool verify_job_await(struct verify_job *job, const bool *flag);
/* False: the check ends. */
bool verify_job_goes_on(struct verify_job *job);
/* False: the job runs on the calling thread. */
bool verify_job_is_threaded(const struct verify_job *job);
void verify_job_set(struct verify_job *job, bool *flag);

#endif
