/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/torture/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void sleep_seconds(double seconds)
{
    struct timespec rest = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        ;
}

/* ---- the launcher ---- */

void job_start(struct mpi_job *job, char *const *arguments, const char *program, const char *log)
{
    const char *slash = strrchr(program, '/');
    *job = (struct mpi_job){.program = slash ? slash + 1 : program};
    job->launcher = fork();
    if (job->launcher < 0) {
        perror("torture: fork");
        exit(1);
    }
    if (job->launcher > 0)
        return;
    int file = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int nothing = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (file < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(file, 1) < 0 || dup2(file, 2) < 0)
        _exit(126);
    execvp(arguments[0], arguments);
    _exit(127);
}

bool job_poll(struct mpi_job *job)
{
    if (!job->ended)
        job->ended = waitpid(job->launcher, &job->status, WNOHANG) == job->launcher;
    return job->ended;
}

bool job_wait(struct mpi_job *job, double seconds)
{
    for (double until = seconds_now() + seconds; !job_poll(job) && seconds_now() < until;)
        sleep_seconds(0.005);
    return job->ended;
}

/* ---- its ranks ---- */

struct process {
    pid_t parent;
    char name[32];
    bool lives;
};

/* From "PID (NAME) STATE PARENT ...": a name may hold anything, so its end is looked for from
 * behind. */
static bool read_process(pid_t id, struct process *process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)id);
    int file = open(path, O_RDONLY);
    ssize_t size = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    if (file >= 0)
        close(file);
    if (size <= 0)
        return false;
    text[size] = '\0';
    const char *begin = strchr(text, '('), *end = strrchr(text, ')');
    if (!begin || !end || strlen(end) < 5)
        return false;
    snprintf(process->name, sizeof process->name, "%.*s", (int)(end - begin - 1), begin + 1);
    process->lives = end[2] != 'Z' && end[2] != 'X';
    process->parent = (pid_t)strtol(end + 4, NULL, 10);
    return true;
}

static bool is_below(pid_t id, pid_t ancestor)
{
    struct process process;
    for (int depth = 0; depth < 16 && id > 1; depth++) {
        if (id == ancestor)
            return true;
        if (!read_process(id, &process))
            return false;
        id = process.parent;
    }
    return false;
}

size_t job_ranks(const struct mpi_job *job, pid_t ranks[JOB_RANKS_MAX])
{
    enum { SHOWN = 15 }; /* bytes of a name that the kernel keeps */
    DIR *listing = opendir("/proc");
    const struct dirent *entry;
    size_t count = 0;
    while (listing && count < JOB_RANKS_MAX && (entry = readdir(listing))) {
        struct process process;
        pid_t id = (pid_t)strtol(entry->d_name, NULL, 10);
        if (isdigit((unsigned char)entry->d_name[0]) && read_process(id, &process) &&
            process.lives && strncmp(process.name, job->program, SHOWN) == 0 &&
            id != job->launcher && is_below(id, job->launcher))
            ranks[count++] = id;
    }
    if (listing)
        closedir(listing);
    return count;
}

void job_end(struct mpi_job *job)
{
    pid_t ranks[JOB_RANKS_MAX];
    for (size_t i = job_ranks(job, ranks); i-- > 0;)
        kill(ranks[i], SIGKILL);
    if (!job_poll(job))
        kill(job->launcher, SIGKILL);
    job_wait(job, 10);
}
