/* SPDX-License-Identifier: BSD-3-Clause */
/* A run of three saves, the first of which is removed then, whose process is killed before one of
 * its system calls: each call of each kind in turn. What the next start makes of it: the newest
 * whole checkpoint, with the right values, and never one that is older than the last that was
 * reported as saved; and the run goes on.
 *
 * usage: test_run_kills [STRIDE]      every STRIDE-th call */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcp.h"
#include "preload/failing_calls.h"

enum { ROWS = 256, KEEP = 2 };
static const int64_t steps[] = {10, 20, 30};

/* Where a killed run was, as the table in README.md has it. */
enum point { FIRST_SAVE, SHARDS, COMMITTED, MARKED, REMOVING, POINTS };
static const char *const points[POINTS] = {"in the first save", "in the shards of a later one",
                                           "after a commit", "after its mark", "in a removal"};

static const enum call_kind kinds[] = {CALL_OPEN, CALL_PWRITE, CALL_FSYNC, CALL_RENAME,
                                       CALL_LINK, CALL_UNLINK, CALL_MKDIR, CALL_RMDIR};

static char directory[256], run_path[300];
static int64_t *reported; /* the last step that a save said was saved; shared with the child */

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nthe run is %s\n", run_path);
    exit(1);
}

static void must(dcp_status status, const char *what)
{
    if (status != DCP_OK)
        fail("%s: %s: %s", what, dcp_status_string(status), dcp_error_message());
}

/* ---- the job ---- */

static float rows[ROWS];

static dcp_state *make_state(void)
{
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(
        dcp_state_dict(state, "model"), "w",
        &(dcp_tensor){
            .dtype = DCP_F32, .ndim = 1, .global_shape = {ROWS}, .sizes = {ROWS}, .data = rows});
    must(dcp_state_status(state), "the state");
    return state;
}

static void set_rows(int64_t step)
{
    for (int i = 0; i < ROWS; i++)
        rows[i] = (float)step + (float)i / ROWS;
}

static void expect_rows(int64_t step)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i] != (float)step + (float)i / ROWS)
            fail("row %d is %g, expected that of step %" PRId64, i, (double)rows[i], step);
}

static dcp_run *open_run(dcp_state *state)
{
    dcp_run *run;
    const dcp_run_options options = {.state = state, .identity = "kills", .mode = DCP_RUN_BLOCKING};
    must(dcp_run_open(run_path, &options, &run), "opening the run");
    return run;
}

static void save(dcp_run *run, int64_t step)
{
    set_rows(step);
    must(dcp_run_save(run, step), "a save");
}

static void prune(void)
{
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = KEEP};
    must(dcp_run_prune(run_path, &(dcp_run_prune_options){.keep = &keep}, NULL), "removing");
}

static void live(void)
{
    dcp_run *run = open_run(make_state());
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        save(run, steps[i]);
        *reported = steps[i];
    }
    prune();
    must(dcp_run_close(run), "closing");
}

/* False: it came to its end, as there are fewer calls. */
static bool live_and_die(enum call_kind kind, long n)
{
    int status;
    *reported = -1;
    pid_t child = fork();
    if (child == 0) {
        failing_calls_arm(kind, n, false, FAILURE_KILL);
        live();
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        fail("there is no child");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return true;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("the job fails by itself");
    return false;
}

/* ---- what is left ---- */

static bool is_there(const char *format, int64_t step)
{
    char name[64], path[400];
    struct stat found;
    snprintf(name, sizeof name, format, step);
    snprintf(path, sizeof path, "%s/%s", run_path, name);
    return lstat(path, &found) == 0;
}

static int64_t newest_whole(void)
{
    for (size_t i = sizeof steps / sizeof *steps; i-- > 0;)
        if (is_there("step_%" PRId64 "/.metadata", steps[i]))
            return steps[i];
    return -1;
}

static enum point point_of(int64_t whole)
{
    char path[400], target[64];
    snprintf(path, sizeof path, "%s/latest", run_path);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    if (is_there(".dcp_removing.step_%" PRId64, 10))
        return REMOVING;
    if (whole < 0)
        return FIRST_SAVE;
    if (is_there("step_%" PRId64, whole + 10))
        return SHARDS;
    return strncmp(target, "step_", 5) == 0 && atoi(target + 5) == whole ? MARKED : COMMITTED;
}

static bool holds_something(int64_t step)
{
    char path[400];
    const struct dirent *entry;
    bool something = false;
    snprintf(path, sizeof path, "%s/step_%" PRId64, run_path, step);
    DIR *listing = opendir(path);
    while (listing && (entry = readdir(listing)))
        something =
            something || (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0);
    if (listing)
        closedir(listing);
    return something;
}

static int count_steps(void)
{
    int count = 0;
    for (int64_t step = 5; step <= 45; step += 5)
        count += holds_something(step);
    return count;
}

/* The next start: resumes, goes on with one more save, and removes what is too many. The save is of
 * the next step, or of one behind it, so that nothing replaces what a killed save has left. */
static enum point start_again(int64_t next)
{
    dcp_run_resumed resumed;
    int64_t whole = newest_whole();
    enum point point = point_of(whole);
    dcp_state *state = make_state();
    dcp_run *run = open_run(state);
    memset(rows, 0, sizeof rows);
    must(dcp_run_resume(run, &resumed), "the resume");
    int64_t step = resumed.found ? resumed.step : -1;
    if (step != whole || step < *reported)
        fail("it resumed from step %" PRId64 ", step %" PRId64 " is whole, %" PRId64
             " was reported: %s",
             step, whole, *reported, resumed.reason);
    if (step >= 0)
        expect_rows(step);
    if (is_there(".dcp_removing.step_%" PRId64, step) || (point == REMOVING && step != 30))
        fail("what is being removed is taken");
    save(run, (step < 0 ? 0 : step) + next);
    prune();
    must(dcp_run_close(run), "closing");
    dcp_state_free(state);
    int expected = step < 0 ? 1 : KEEP;
    if (count_steps() != expected || is_there(".dcp_removing.step_%" PRId64, 10))
        fail("%d checkpoints are left, expected %d", count_steps(), expected);
    return point;
}

static void begin_anew(void)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", run_path);
    if (system(command) != 0)
        fail("%s stays", run_path);
}

static void quiet(void *context, dcp_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

int main(int argc, char **argv)
{
    long stride = argc > 1 ? atol(argv[1]) : 1, kills = 0;
    int seen[POINTS] = {0};
    const char *temporary = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    reported =
        mmap(NULL, sizeof *reported, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(directory, sizeof directory, "%.200s/dcp-kills-XXXXXX", temporary);
    if (stride < 1 || reported == MAP_FAILED || !mkdtemp(directory))
        return 2;
    snprintf(run_path, sizeof run_path, "%s/run", directory);
    dcp_set_log(quiet, NULL, DCP_LOG_ERROR);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (long n = 1; live_and_die(kinds[k], n); n += stride, kills++) {
            seen[start_again(kills % 2 == 0 ? 10 : 15)]++;
            begin_anew();
        }
    printf("killed before %ld calls:", kills);
    for (int i = 0; i < POINTS; i++) {
        printf(" %d %s%s", seen[i], points[i], i + 1 < POINTS ? "," : "\n");
        if (seen[i] == 0)
            fail("never %s", points[i]);
    }
    begin_anew();
    rmdir(directory);
    return 0;
}
