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
    int *processes;
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
    for (int i = death.count - 1; i >= 0; i--)
        kill(death.processes[i], SIGKILL);
    return unused;
}

bool sudden_death_arm(const char *checkpoint, const int *processes, int count)
{
    pthread_t watcher;

    snprintf(death.path, sizeof death.path, "%s", checkpoint);
    death.count = count;
    death.processes = malloc((size_t)count * sizeof *processes);
    if (!death.processes)
        return false;
    memcpy(death.processes, processes, (size_t)count * sizeof *processes);
    return pthread_create(&watcher, NULL, wait_and_kill, NULL) == 0;
}
