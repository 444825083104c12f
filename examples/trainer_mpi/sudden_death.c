/* SPDX-License-Identifier: BSD-3-Clause */
#include "sudden_death.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    char path[4096]; /* of the checkpoint that is not to be finished */
    int *processes;  /* one for each rank */
    int count;
} death;

/* Whether some shard file has bytes and `.metadata`, whose appearance is the commit, is not there.
 */
static bool half_written(void)
{
    char name[sizeof death.path + 300];
    struct stat found;
    const struct dirent *entry;
    bool data = false;

    DIR *listing = opendir(death.path);
    while (listing && !data && (entry = readdir(listing))) {
        if (!strstr(entry->d_name, ".distcp"))
            continue;
        snprintf(name, sizeof name, "%s/%s", death.path, entry->d_name);
        data = stat(name, &found) == 0 && found.st_size > 0;
    }
    if (listing)
        closedir(listing);
    snprintf(name, sizeof name, "%s/.metadata", death.path);
    return data && access(name, F_OK) != 0;
}

static void *wait_and_kill(void *unused)
{
    while (!half_written())
        ;
    for (int r = death.count - 1; r >= 0; r--)
        kill(death.processes[r], SIGKILL);
    return unused;
}

void sudden_death_arm(MPI_Comm communicator, const char *directory, long long step)
{
    pthread_t watcher;
    int rank, self = (int)getpid();

    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &death.count);
    snprintf(death.path, sizeof death.path, "%s/step_%lld", directory, step);
    death.processes = calloc((size_t)death.count, sizeof(int));
    if (!death.processes)
        MPI_Abort(communicator, 1);
    MPI_Gather(&self, 1, MPI_INT, death.processes, 1, MPI_INT, 0, communicator);
    if (rank == 0 && pthread_create(&watcher, NULL, wait_and_kill, NULL) != 0)
        MPI_Abort(communicator, 1);
}
