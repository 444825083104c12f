/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs that know nothing of each other save into one directory, all at once: processes, each of one
 * rank or several. Who returns DCP_OK has a checkpoint that was whole; the others are refused. What
 * is left is the checkpoint of one of those, with nothing else beside it. Readers read meanwhile.
 * With an argument of n there are n rounds of each kind. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

enum { JOBS_MAX = 16, VALUES = 4998, READERS = 2 };

/* What a reader found that cannot be. */
enum { READER_FOUND_ITS_END = 0, READER_FOUND_A_MIXTURE = 100, READER_FAILED = 101 };

static long rounds;

static const struct kind {
    const char *name;
    int jobs, ranks;
    bool replaces; /* there is a checkpoint before */
    dcp_overwrite overwrite;
    bool crashed; /* a save was killed there while it wrote */
    int readers;
} kinds[] = {
    {"fresh, 2 jobs", 2, 1, false, DCP_OVERWRITE_REPLACE, false, 0},
    {"fresh, 16 jobs", 16, 1, false, DCP_OVERWRITE_REPLACE, false, 0},
    {"fresh, not to be overwritten, 8 jobs", 8, 1, false, DCP_OVERWRITE_REFUSE, false, 0},
    {"replacing, 2 jobs", 2, 1, true, DCP_OVERWRITE_REPLACE, false, READERS},
    {"replacing, 4 jobs", 4, 1, true, DCP_OVERWRITE_REPLACE, false, READERS},
    {"replacing, 8 jobs", 8, 1, true, DCP_OVERWRITE_REPLACE, false, READERS},
    {"fresh, 2 jobs of 3 ranks", 2, 3, false, DCP_OVERWRITE_REPLACE, false, 0},
    {"replacing, 2 jobs of 3 ranks", 2, 3, true, DCP_OVERWRITE_REPLACE, false, READERS},
    {"fresh, after a crash, 8 jobs", 8, 1, false, DCP_OVERWRITE_REPLACE, true, 0},
    {"replacing, after a crash, 6 jobs", 6, 1, true, DCP_OVERWRITE_REPLACE, true, READERS},
};

struct content {
    float *values;
    dcp_state *root;
};

static void content_init(struct content *content, int version, int rank, int size)
{
    int64_t own = VALUES / size;
    content->values = calloc((size_t)own, sizeof(float));
    for (int64_t i = 0; i < own; i++)
        content->values[i] = (float)(version * 10000 + rank * own + i);
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 1,
                               .sharded = true,
                               .data = content->values,
                               .global_shape = {own * size},
                               .offsets = {own * rank},
                               .sizes = {own}};
    content->root = dcp_state_new();
    dcp_state_tensor(content->root, "values", &tensor);
    dcp_state_int(content->root, "version", version);
}

static void content_free(struct content *content)
{
    dcp_state_free(content->root);
    free(content->values);
}

/* -1: a mixture. */
static int version_of(const struct content *content)
{
    int64_t version = -1;
    dcp_state_as_int(dcp_state_find(content->root, "version"), &version);
    for (int64_t i = 0; i < VALUES; i++)
        if (content->values[i] != (float)(version * 10000 + i))
            return -1;
    return (int)version;
}

static dcp_status load_version(const char *path, int *version)
{
    struct content content;
    content_init(&content, 0, 0, 1);
    memset(content.values, 0xff, VALUES * sizeof(float));
    dcp_status status = dcp_load(content.root, path, NULL, NULL);
    *version = status == DCP_OK ? version_of(&content) : -1;
    content_free(&content);
    return status;
}

/* ---- the jobs ---- */

struct job {
    const struct kind *kind;
    int version;
    dcp_progress_function progress;
};

static dcp_status save_rank(struct rank *self)
{
    const struct job *job = self->context;
    struct content content;
    const dcp_save_options options = {.group = self->size > 1 ? self->group : NULL,
                                      .overwrite = job->kind->overwrite,
                                      .skip_sync = job->version % 2 == 0,
                                      .timeout_seconds = 60,
                                      .progress = job->progress};
    content_init(&content, job->version, self->rank, self->size);
    dcp_status status = dcp_save(content.root, self->path, &options);
    if (status != DCP_OK && status != DCP_ERR_BUSY && status != DCP_ERR_EXISTS)
        fprintf(stderr, "version %d: %s\n", job->version, dcp_error_message());
    content_free(&content);
    return status;
}

static dcp_status save_job(const char *path, struct job job)
{
    struct rank ranks[RANKS_MAX] = {{.size = 1, .path = path, .context = &job}};
    if (job.kind->ranks == 1)
        return save_rank(&ranks[0]);
    ranks_run(ranks, job.kind->ranks, path, save_rank, &job);
    for (int r = 1; r < job.kind->ranks; r++)
        if (ranks[r].status != ranks[0].status)
            return DCP_ERR_INTERNAL;
    return ranks[0].status;
}

/* Reads until it is told to end; the exit status is what it found. */
static int read_on(const char *path, const volatile bool *ends)
{
    while (!*ends) {
        int version;
        dcp_status status = load_version(path, &version);
        if (status == DCP_OK && version < 0)
            return READER_FOUND_A_MIXTURE;
        if (status != DCP_OK && status != DCP_ERR_BUSY) {
            fprintf(stderr, "a reader: %s\n", dcp_error_message());
            return READER_FAILED;
        }
    }
    return READER_FOUND_ITS_END;
}

/* A process that waits for the start, which comes when the pipe is closed. */
static pid_t start_job(const char *path, struct job job, const int start[2])
{
    pid_t child = fork();
    if (child != 0)
        return child;
    char byte;
    close(start[1]);
    ssize_t got = read(start[0], &byte, 1);
    _exit(got == 0 ? (int)save_job(path, job) : 102);
}

/* It must not keep the pipe open that the jobs wait at. */
static pid_t start_reader(const char *path, const volatile bool *ends, const int start[2])
{
    pid_t child = fork();
    if (child != 0)
        return child;
    close(start[0]);
    close(start[1]);
    _exit(read_on(path, ends));
}

static int exit_status(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- a save that is killed ---- */

static bool die(void *context, const dcp_progress *progress)
{
    (void)context;
    if (progress->phase == DCP_PHASE_COMMIT)
        raise(SIGKILL);
    return true;
}

static void crash_there(const char *path, const struct kind *kind)
{
    pid_t child = fork();
    if (child == 0)
        _exit((int)save_job(path, (struct job){kind, 99, die}));
    assert_int_equal(exit_status(child), -1);
    char mark[512];
    snprintf(mark, sizeof mark, "%s/.dcp_owner", path);
    assert_int_equal(access(mark, F_OK), 0);
}

/* ---- rounds ---- */

/* Files that are neither the checkpoint's small ones nor shards; *shards: those. */
static int count_others(const char *path, int *shards)
{
    int others = 0;
    DIR *listing = opendir(path);
    *shards = 0;
    assert_non_null(listing);
    for (const struct dirent *entry = readdir(listing); entry; entry = readdir(listing)) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, ".metadata") == 0 ||
            strcmp(name, "metadata.json") == 0)
            continue;
        bool shard = strstr(name, ".distcp") != NULL;
        *shards += shard;
        others += !shard;
        if (!shard)
            print_error("%s is left\n", name);
    }
    closedir(listing);
    return others;
}

static void remove_all(const char *path)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

/* Returns how many have saved. */
static int check_outcome(const struct kind *kind, const char *path, const int ended[JOBS_MAX])
{
    int saved = 0, shards, found = -1;
    for (int j = 0; j < kind->jobs; j++) {
        bool refused = ended[j] == DCP_ERR_BUSY ||
                       (ended[j] == DCP_ERR_EXISTS && kind->overwrite == DCP_OVERWRITE_REFUSE);
        if (ended[j] != DCP_OK && !refused)
            fail_msg("%s: job %d ended with %d", kind->name, j, ended[j]);
        saved += ended[j] == DCP_OK;
    }
    must(load_version(path, &found));
    if (found < 1 || found > kind->jobs || ended[found - 1] != DCP_OK)
        fail_msg("%s: found version %d, of %d that were saved", kind->name, found, saved);
    assert_int_equal(count_others(path, &shards), 0);
    assert_int_equal(shards, kind->ranks);
    assert_true(saved == 1 || kind->overwrite == DCP_OVERWRITE_REPLACE);
    return saved;
}

static int run_round(const struct kind *kind, const char *path)
{
    pid_t jobs[JOBS_MAX], readers[READERS];
    int ended[JOBS_MAX], start[2];
    volatile bool *ends =
        mmap(NULL, sizeof *ends, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal((void *)ends, MAP_FAILED);
    remove_all(path);
    if (kind->replaces)
        must(save_job(path, (struct job){kind, 0, NULL}));
    if (kind->crashed)
        crash_there(path, kind);
    assert_int_equal(pipe(start), 0);
    for (int r = 0; r < kind->readers; r++)
        readers[r] = start_reader(path, ends, start);
    for (int j = 0; j < kind->jobs; j++)
        jobs[j] = start_job(path, (struct job){kind, j + 1, NULL}, start);
    close(start[1]);
    close(start[0]);
    for (int j = 0; j < kind->jobs; j++)
        ended[j] = exit_status(jobs[j]);
    *ends = true;
    for (int r = 0; r < kind->readers; r++)
        assert_int_equal(exit_status(readers[r]), READER_FOUND_ITS_END);
    munmap((void *)ends, sizeof *ends);
    return check_outcome(kind, path, ended);
}

static void jobs_that_begin_at_once(void **state)
{
    needs_files();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int saved = 0;
        for (long i = 0; i < rounds; i++)
            saved += run_round(&kinds[k], path_in(state, "c"));
        print_message("%-40s %ld rounds, %d of %ld saves\n", kinds[k].name, rounds, saved,
                      rounds * kinds[k].jobs);
    }
}

/* ---- what a refused save says ---- */

static dcp_status save_inside(void *context, const char *variable)
{
    const struct kind kind = {"", 1, 1, false, DCP_OVERWRITE_REPLACE, false, 0};
    if (variable)
        setenv(variable, "4", 1);
    dcp_status status = save_job(context, (struct job){&kind, 2, NULL});
    if (variable)
        unsetenv(variable);
    return status;
}

static const char *inner_path;
static int inner_calls;

static void check_refusal(const char *variable)
{
    char own[64];
    assert_int_equal(save_inside((void *)inner_path, variable), DCP_ERR_BUSY);
    const char *text = dcp_error_message();
    snprintf(own, sizeof own, "of process %ld on ", (long)getpid());
    assert_non_null(strstr(text, own));
    assert_non_null(strstr(text, ", since 20"));
    assert_true((strstr(text, "options.group is not set") != NULL) == (variable != NULL));
    assert_true((strstr(text, "one of 4 of a job") != NULL) == (variable != NULL));
}

/* In the middle of a save another one is tried. */
static bool interrupt(void *context, const dcp_progress *progress)
{
    (void)context;
    if (progress->phase != DCP_PHASE_WRITING || inner_calls++ > 0)
        return true;
    check_refusal(NULL);
    check_refusal("OMPI_COMM_WORLD_SIZE");
    check_refusal("PMI_SIZE");
    return true;
}

static void a_refused_save_names_the_other(void **state)
{
    const struct kind kind = {"", 1, 1, false, DCP_OVERWRITE_REPLACE, false, 0};
    int found, shards;
    needs_files();
    inner_path = path_in(state, "c");
    remove_all(inner_path);
    must(save_job(inner_path, (struct job){&kind, 1, interrupt}));
    assert_true(inner_calls > 0);
    must(load_version(inner_path, &found));
    assert_int_equal(found, 1);
    assert_int_equal(count_others(inner_path, &shards), 0);
}

static void seconds_that_are_none_are_refused(void **state)
{
    const dcp_save_options options = {.takeover_seconds = -1};
    dcp_state *root = dcp_state_new();
    must_fail(dcp_save(root, path_in(state, "c"), &options), DCP_ERR_ARGUMENT, "takeover_seconds");
    dcp_state_free(root);
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_that_begin_at_once),
        cmocka_unit_test(a_refused_save_names_the_other),
        cmocka_unit_test(seconds_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, directory_setup, directory_teardown);
}
