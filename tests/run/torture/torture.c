/* SPDX-License-Identifier: BSD-3-Clause */
/* Kills a trainer again and again while it saves, commits, moves its mark and removes old
 * checkpoints, and lets it resume each time, on another number of ranks:
 *
 *     torture [--count N] [--seconds N] [--seed N] MPIEXEC TRAINER DIRECTORY
 *
 * Every other run has a mirror, and of some of these the directory is lost between two lives.
 *
 * Fails if a resume takes a checkpoint that is older than the last one that was committed, if a
 * loss differs from that of a run that was never killed, if a job does not end, or if a run or its
 * mirror is not whole in the end. Exits with 77 (skipped) where there is no MPIEXEC. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dcp.h"
#include "run/torture/oracle.h"
#include "run/torture/processes.h"

enum { STEPS = 150, KEEP = 2, RANKS_MAX = 3 };

/* When it is killed: as soon as the directory looks so, and a moment later. */
enum moment { ANY, SAVE, COMMIT, MARK, REMOVAL, COPY, MOMENTS };
static const char *const moment_names[MOMENTS] = {"at any time",    "in a save",    "in a commit",
                                                  "after a commit", "in a removal", "in a copy"};

struct torture {
    char *mpiexec, *trainer;
    char run[2048], mirror[2048], log[2048];
    bool mirrored; /* the run that is under way has a mirror */
    struct oracle oracle;
    uint64_t random;
    int kills[MOMENTS]; /* by what they left */
    int all, resumed, fresh, lost, finished;
    int stuck;       /* launchers that did not notice that a rank was gone */
    char said[1024]; /* of the last failure */
};

static uint32_t draw(struct torture *torture, uint32_t below)
{
    torture->random = torture->random * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(torture->random >> 33) % below;
}

static bool __attribute__((format(printf, 2, 3)))
wrong(struct torture *torture, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(torture->said, sizeof torture->said, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- one life of the trainer ---- */

static void begin_life(struct torture *torture, struct mpi_job *job, uint32_t ranks,
                       const char *save_every)
{
    char count[16], steps[16], keep[16];
    snprintf(count, sizeof count, "%u", ranks);
    snprintf(steps, sizeof steps, "%d", STEPS);
    snprintf(keep, sizeof keep, "%d", KEEP);
    char *arguments[] = {torture->mpiexec,   "-n",     count,
                         torture->trainer,   "--dir",  torture->run,
                         "--steps",          steps,    "--save-every",
                         (char *)save_every, "--keep", keep,
                         "--hidden",         "24",     torture->mirrored ? "--mirror" : NULL,
                         torture->mirror,    NULL};
    job_start(job, arguments, torture->trainer, torture->log);
}

static bool has_come(enum moment moment, const struct sight *before, const struct sight *now)
{
    bool is_new = now->newest > before->newest;
    return moment == ANY      ? is_new
           : moment == SAVE   ? is_new && now->has_data
           : moment == COPY   ? is_new && now->has_data
           : moment == COMMIT ? is_new && now->commits
           : moment == MARK   ? now->committed > before->committed && now->committed > now->marked
                              : now->removes;
}

/* Waits for a moment, but not for ever: the next best one will do. */
static void wait_for(struct torture *torture, struct mpi_job *job, enum moment moment)
{
    struct sight before, now;
    double until = seconds_now() + 8;
    const char *place = moment == COPY && torture->mirrored ? torture->mirror : torture->run;
    sight_take(place, &before);
    do {
        sight_take(place, &now);
    } while (now.newest <= before.newest && !job_poll(job) && seconds_now() < until);
    sleep_seconds(draw(torture, 300) / 1e3);
    until = seconds_now() + 1;
    before = now;
    do {
        sight_take(place, &now);
    } while (!has_come(moment, &before, &now) && !job_poll(job) && seconds_now() < until);
    sleep_seconds(draw(torture, moment == ANY ? 30000 : 2000) / 1e6);
}

/* False: there are none, as at the very end. */
static bool kill_ranks(struct torture *torture, const struct mpi_job *job)
{
    pid_t ranks[JOB_RANKS_MAX];
    size_t count = job_ranks(job, ranks);
    bool all = draw(torture, 2) == 0;
    torture->all += all && count > 0;
    size_t first = count > 0 && !all ? draw(torture, (uint32_t)count) : 0;
    for (size_t i = first; i < (all ? count : first + 1) && i < count; i++)
        kill(ranks[i], SIGKILL);
    return count > 0;
}

static void count_kill(struct torture *torture, const struct sight *left)
{
    struct sight copied = {.has_data = false};
    if (torture->mirrored)
        sight_take(torture->mirror, &copied);
    enum moment moment = copied.has_data                  ? COPY
                         : left->removes                  ? REMOVAL
                         : left->commits                  ? COMMIT
                         : left->has_data                 ? SAVE
                         : left->committed > left->marked ? MARK
                                                          : ANY;
    torture->kills[moment]++;
}

/* What the life that has ended did, against what was known before it. */
static bool judge(struct torture *torture, const struct mpi_job *job, bool killed,
                  const struct sight *left)
{
    struct oracle *oracle = &torture->oracle;
    struct life life;
    oracle_read(oracle, torture->log, false, &life);
    if (*life.wrong)
        return wrong(torture, "%s", life.wrong);
    if (life.first >= 0 && life.resumed < oracle->committed)
        return wrong(torture,
                     "it resumed from step %" PRId64 ", though step %" PRId64 " was committed",
                     life.resumed, oracle->committed);
    if (!killed && job->status != 0)
        return wrong(torture, "it failed by itself, with wait status %d", job->status);
    if (!killed && life.last != STEPS && life.resumed != STEPS)
        return wrong(torture, "it ended at step %" PRId64, life.last);
    if (left->committed < life.saved)
        return wrong(torture, "it says that step %" PRId64 " is saved, and %" PRId64 " is there",
                     life.saved, left->committed);
    torture->resumed += life.first >= 0 && life.resumed >= 0;
    torture->fresh += life.first >= 0 && life.resumed < 0;
    if (left->committed > oracle->committed)
        oracle->committed = left->committed;
    return true;
}

static bool remove_directory(struct torture *torture, const char *path)
{
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    return system(command) == 0 || wrong(torture, "%s cannot be removed", path);
}

/* The next run begins, with a mirror or without. */
static bool remove_run(struct torture *torture)
{
    torture->mirrored = draw(torture, 2) == 0;
    return remove_directory(torture, torture->run) && remove_directory(torture, torture->mirror);
}

/* Of a place of a run that has come to its end: the rest of what was killed is gone. */
static bool finish_place(struct torture *torture, const char *place)
{
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = KEEP};
    struct sight left;
    uint64_t faults = 1;
    char last[4096];
    /* Removing goes on behind training, and ends with it. */
    if (dcp_run_prune(place, &(dcp_run_prune_options){.keep = &keep}, NULL) != DCP_OK)
        return wrong(torture, "its rest is not removed: %.500s", dcp_error_message());
    sight_take(place, &left);
    if (left.removes || left.steps != KEEP)
        return wrong(torture, "%d directories are left in %.500s that keeps %d%s", left.steps,
                     place, KEEP, left.removes ? ", and a removal that is not done" : "");
    snprintf(last, sizeof last, "%s/step_%d", place, STEPS);
    if (dcp_verify(last, NULL, NULL, NULL, &faults) != DCP_OK || faults > 0)
        return wrong(torture, "%.500s is not whole: %.400s", last,
                     faults > 0 ? "it has faults" : dcp_error_message());
    return true;
}

static bool finish_run(struct torture *torture)
{
    torture->finished++;
    torture->oracle.committed = -1;
    return finish_place(torture, torture->run) &&
           (!torture->mirrored || finish_place(torture, torture->mirror)) && remove_run(torture);
}

/* Now and then the directory goes of a run that has a mirror, with what was not copied yet. */
static bool lose_run(struct torture *torture)
{
    struct sight copied;
    if (!torture->mirrored || draw(torture, 8) > 0)
        return true;
    sight_take(torture->mirror, &copied);
    torture->oracle.committed = copied.committed;
    torture->lost++;
    return remove_directory(torture, torture->run);
}

static bool live(struct torture *torture, bool is_killed)
{
    struct mpi_job job;
    struct sight left;
    pid_t ranks[JOB_RANKS_MAX];
    begin_life(torture, &job, 1 + draw(torture, RANKS_MAX), "1");
    if (is_killed)
        wait_for(torture, &job, (enum moment)draw(torture, MOMENTS));
    bool killed = is_killed && !job_poll(&job) && kill_ranks(torture, &job);
    bool ended = job_wait(&job, killed ? 10 : 120);
    /* To end the other ranks of one that was killed is the launcher's task, and so is to end. */
    bool stuck = !ended && (killed || job_ranks(&job, ranks) == 0);
    job_end(&job);
    torture->stuck += stuck;
    if (!job.ended || (!ended && !stuck))
        return wrong(torture, "the job does not end");
    sight_take(torture->run, &left);
    killed = (killed || stuck) && job.status != 0;
    if (killed)
        count_kill(torture, &left);
    if (!judge(torture, &job, killed, &left))
        return false;
    return killed ? lose_run(torture) : finish_run(torture);
}

/* ---- all of them ---- */

/* The losses of a run that is never killed. */
static bool learn(struct torture *torture)
{
    struct mpi_job job;
    struct life life;
    char never[16];
    snprintf(never, sizeof never, "%d", STEPS);
    begin_life(torture, &job, 2, never);
    bool ended = job_wait(&job, 120);
    job_end(&job);
    oracle_read(&torture->oracle, torture->log, true, &life);
    if (!ended || job.status != 0 || life.last != STEPS)
        return wrong(torture, "without being killed it ends at step %" PRId64, life.last);
    torture->oracle.committed = -1;
    return remove_run(torture);
}

static int sum(const int *counts)
{
    int all = 0;
    for (int i = 0; i < MOMENTS; i++)
        all += counts[i];
    return all;
}

/* Now and then a launcher is; if many are, it is for a reason. */
static bool few_are_stuck(struct torture *torture)
{
    int kills = sum(torture->kills);
    return torture->stuck <= 1 + kills / 4 ||
           wrong(torture, "%d launchers were stuck, of %d kills", torture->stuck, kills);
}

static bool run_all(struct torture *torture, int count, double seconds)
{
    double until = seconds_now() + seconds;
    if (!learn(torture))
        return false;
    while (sum(torture->kills) < count && seconds_now() < until)
        if (!live(torture, true))
            return false;
    return live(torture, false) && few_are_stuck(torture);
}

static void report(const struct torture *torture)
{
    printf("%d kills (%d of all ranks, else of one):", sum(torture->kills), torture->all);
    for (int i = 0; i < MOMENTS; i++)
        printf(" %d %s%s", torture->kills[i], moment_names[i], i + 1 < MOMENTS ? "," : "");
    printf("\n%d resumes, %d starts anew, %d directories lost, %d runs to the end, %" PRIu64
           " losses compared, %d launchers stuck\n",
           torture->resumed, torture->fresh, torture->lost, torture->finished,
           torture->oracle.compared, torture->stuck);
}

/* Open MPI asks for these, others do not look: as any user, on any number of cores. */
static void set_environment(void)
{
    static const char *const values[][2] = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                            {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                            {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                                            {"OMPI_MCA_mpi_yield_when_idle", "1"},
                                            {"OMPI_MCA_btl", "self,vader,tcp"},
                                            {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        setenv(values[i][0], values[i][1], 1);
}

int main(int argc, char **argv)
{
    static struct torture torture;
    double count = 20, seconds = 1e9, seed = 1;
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        double *value = strcmp(argv[at], "--count") == 0     ? &count
                        : strcmp(argv[at], "--seconds") == 0 ? &seconds
                        : strcmp(argv[at], "--seed") == 0    ? &seed
                                                             : NULL;
        if (!value)
            break;
        *value = strtod(argv[at + 1], NULL);
    }
    if (argc - at != 3) {
        fputs("usage: torture [--count N] [--seconds N] [--seed N] MPIEXEC TRAINER DIRECTORY\n",
              stderr);
        return 2;
    }
    if (access(argv[at], X_OK) != 0) {
        printf("no %s: skipped\n", argv[at]);
        return 77;
    }
    torture.mpiexec = argv[at];
    torture.trainer = argv[at + 1];
    torture.random = (uint64_t)seed * 2654435761U;
    mkdir(argv[at + 2], 0777);
    snprintf(torture.run, sizeof torture.run, "%s/run", argv[at + 2]);
    snprintf(torture.mirror, sizeof torture.mirror, "%s/mirror", argv[at + 2]);
    snprintf(torture.log, sizeof torture.log, "%s/life.log", argv[at + 2]);
    set_environment();
    bool good = remove_run(&torture) && run_all(&torture, (int)count, seconds);
    report(&torture);
    if (!good)
        fprintf(stderr, "torture --seed %.0f: life %d: %s\nit left %s and %s\n", seed,
                sum(torture.kills) + torture.finished, torture.said, torture.run, torture.log);
    oracle_free(&torture.oracle);
    return good ? 0 : 1;
}
