/* SPDX-License-Identifier: BSD-3-Clause */
/* What saves and loads of the same structure spend on planning, again and again, with and without
 * the plans of before: small tensors, ranks as threads, in a directory that is removed afterwards:
 * bench_again TENSORS RANKS DIRECTORY
 *
 * One line per figure goes out: its name, seconds, and the unit. Each is the median over the
 * rounds, of the slowest rank's planning_seconds. */
#include <dcp.h>
#include <err.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_state.h"

enum { ROUNDS = 9, RANKS_MAX = 64 };

enum measure { SAVE, SAVE_REUSED, LOAD, LOAD_SAME, LOAD_NEXT, MEASURES };
static const char *const names[MEASURES] = {"save-planning", "save-planning-reused",
                                            "load-planning", "load-planning-reused",
                                            "load-planning-reused-next"};

struct job {
    size_t tensors;
    int ranks;
    const char *directory;
    double seconds[MEASURES][ROUNDS][RANKS_MAX];
};

struct rank {
    struct job *job;
    dcp_group *group;
    int rank;
    struct bench_state state;
};

static void check(dcp_status status)
{
    if (status != DCP_OK)
        errx(1, "%s: %s", dcp_status_string(status), dcp_error_message());
}

static void note(const struct rank *self, enum measure measure, int round,
                 const dcp_figures *figures, bool reused)
{
    if (figures->plan_reused != reused)
        errx(1, "%s: a plan was %s", names[measure], reused ? "made anew" : "reused");
    self->job->seconds[measure][round][self->rank] = figures->planning_seconds;
}

static void save(const struct rank *self, enum measure measure, int round,
                 dcp_save_plan_cache *cache)
{
    char path[4096];
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options options = {
        .group = self->group, .skip_sync = true, .figures = &figures, .plan_cache = cache};
    snprintf(path, sizeof path, "%s/%d-%d", self->job->directory, measure, round);
    check(dcp_save(self->state.root, path, &options));
    note(self, measure, round, &figures, cache && round > 0);
}

static void load(const struct rank *self, enum measure measure, int round, int checkpoint,
                 dcp_load_plan_cache *cache)
{
    char path[4096];
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = {.group = self->group, .figures = &figures, .plan_cache = cache};
    snprintf(path, sizeof path, "%s/%d-%d", self->job->directory, SAVE_REUSED, checkpoint);
    check(dcp_load(self->state.root, path, &options, NULL));
    note(self, measure, round, &figures, cache && (round > 0 || measure == LOAD_NEXT));
}

static void *run_rank(void *argument)
{
    struct rank *self = argument;
    dcp_save_plan_cache *saves;
    dcp_load_plan_cache *loads;
    bench_state_new(&self->state, self->job->tensors, BENCH_ROWS, 1, 0, self->rank,
                    self->job->ranks, true);
    check(dcp_save_plan_cache_new(&saves));
    check(dcp_load_plan_cache_new(&loads));
    for (int i = 0; i < ROUNDS; i++)
        save(self, SAVE, i, NULL);
    for (int i = 0; i < ROUNDS; i++)
        save(self, SAVE_REUSED, i, saves);
    for (int i = 0; i < ROUNDS; i++)
        load(self, LOAD, i, 0, NULL);
    for (int i = 0; i < ROUNDS; i++)
        load(self, LOAD_SAME, i, 0, loads);
    for (int i = 0; i < ROUNDS; i++)
        load(self, LOAD_NEXT, i, ROUNDS - 1 - i, loads);
    dcp_load_plan_cache_free(loads);
    dcp_save_plan_cache_free(saves);
    bench_state_free(&self->state);
    return NULL;
}

static int compare_seconds(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The first round, which nothing comes before, does not count. */
static double median(const struct job *job, enum measure measure)
{
    double slowest[ROUNDS] = {0};
    for (int i = 0; i < ROUNDS; i++)
        for (int rank = 0; rank < job->ranks; rank++)
            if (job->seconds[measure][i][rank] > slowest[i])
                slowest[i] = job->seconds[measure][i][rank];
    qsort(slowest + 1, ROUNDS - 1, sizeof *slowest, compare_seconds);
    return slowest[1 + (ROUNDS - 1) / 2];
}

static int remove_file(const char *path, const struct stat *information, int type, struct FTW *ftw)
{
    (void)information, (void)type, (void)ftw;
    return remove(path);
}

int main(int argument_count, char **arguments)
{
    static struct job job;
    struct rank ranks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    dcp_group *groups[RANKS_MAX];
    char directory[4096];
    if (argument_count != 4)
        errx(2, "usage: bench_again TENSORS RANKS DIRECTORY");
    job.tensors = (size_t)strtoul(arguments[1], NULL, 10);
    job.ranks = (int)strtol(arguments[2], NULL, 10);
    if (job.tensors < 1 || job.ranks < 1 || job.ranks > RANKS_MAX)
        errx(2, "at least a tensor, and 1 to %d ranks", RANKS_MAX);
    snprintf(directory, sizeof directory, "%s/again-XXXXXX", arguments[3]);
    job.directory = mkdtemp(directory);
    if (!job.directory)
        err(1, "%s", directory);
    check(dcp_group_new_threads(job.ranks, groups));
    for (int rank = 0; rank < job.ranks; rank++) {
        ranks[rank] = (struct rank){.job = &job, .group = groups[rank], .rank = rank};
        if (pthread_create(&threads[rank], NULL, run_rank, &ranks[rank]) != 0)
            errx(1, "no thread for rank %d", rank);
    }
    for (int rank = 0; rank < job.ranks; rank++)
        pthread_join(threads[rank], NULL);
    for (int rank = 0; rank < job.ranks; rank++)
        dcp_group_free(groups[rank]);
    nftw(job.directory, remove_file, 16, FTW_DEPTH | FTW_PHYS);
    for (enum measure measure = 0; measure < MEASURES; measure++)
        printf("%s %.9g s\n", names[measure], median(&job, measure));
    return EXIT_SUCCESS;
}
