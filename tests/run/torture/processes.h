/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI job from outside: started with its output in a file, and its ranks found and killed. */
#ifndef TESTS_RUN_TORTURE_PROCESSES_H
#define TESTS_RUN_TORTURE_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { JOB_RANKS_MAX = 16 };

struct mpi_job {
    pid_t launcher;
    const char *program; /* of the ranks: the last part of its path */
    bool ended;
    int status; /* as waitpid() gives it */
};

/* Launches arguments[0], with standard output and error in a file. Exits if it cannot. */
void job_start(struct mpi_job *job, char *const *arguments, const char *program, const char *log);
/* Whether it has ended. */
bool job_poll(struct mpi_job *job);
/* Waits for its end; false: it has not come after so many seconds. */
bool job_wait(struct mpi_job *job, double seconds);
/* Its ranks that live. */
size_t job_ranks(const struct mpi_job *job, pid_t ranks[JOB_RANKS_MAX]);
/* Ends all of it, whatever it is doing. */
void job_end(struct mpi_job *job);

double seconds_now(void);
void sleep_seconds(double seconds);

#endif
