/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves, loads and checks of a checkpoint on the real file system, of which one system call fails,
 * or all of a kind from some call on: each call of each kind, in an order of chance. What must come
 * of it is an error that names a file and what is wrong, or success with everything right; the
 * checkpoint before or the new one is there, and no descriptor and no memory is lost.
 *
 * usage: test_system_faults [SECONDS [SEED]]      SECONDS 0: until all was tried */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fault/failing_allocator.h"
#include "preload/checkpoints.h"
#include "preload/failing_calls.h"

/* Longer than anything takes here. */
#define HANG_SECONDS 60
/* In the directory, before all that was left there goes. */
#define MOST_NAMES      12
#define MOST_OPERATIONS 16

/* What can be made of the calls of a kind. */
static const struct failure {
    enum call_kind kind;
    int error;
    const char *name;
    bool endured; /* it does not matter to whoever saves or loads */
    bool unnamed; /* there is no file to it */
} failures[] = {
    {CALL_OPEN, EIO, "open: EIO", false, false},
    {CALL_OPEN, EMFILE, "open: EMFILE", false, false},
    {CALL_OPEN, EINTR, "open: EINTR", true, false},
    {CALL_CLOSE, EIO, "close: EIO", false, false},
    {CALL_CLOSE, EINTR, "close: EINTR", true, false},
    {CALL_PREAD, EIO, "pread: EIO", false, false},
    {CALL_PREAD, EINTR, "pread: EINTR", true, false},
    {CALL_PREAD, FAILURE_SHORT, "pread: short", true, false},
    {CALL_PWRITE, EIO, "pwrite: EIO", false, false},
    {CALL_PWRITE, ENOSPC, "pwrite: ENOSPC", false, false},
    {CALL_PWRITE, EINTR, "pwrite: EINTR", true, false},
    {CALL_PWRITE, FAILURE_SHORT, "pwrite: short", true, false},
    {CALL_FSYNC, EIO, "fsync: EIO", false, false},
    {CALL_FSYNC, ENOSPC, "fsync: ENOSPC", false, false},
    {CALL_FSYNC, EINTR, "fsync: EINTR", true, false},
    {CALL_FALLOCATE, ENOSPC, "fallocate: ENOSPC", false, false},
    {CALL_FALLOCATE, EINTR, "fallocate: EINTR", true, false},
    {CALL_FALLOCATE, EOPNOTSUPP, "fallocate: EOPNOTSUPP", true, false},
    {CALL_FSTAT, EIO, "fstat: EIO", false, false},
    {CALL_STAT, EIO, "stat: EIO", false, false},
    {CALL_STATFS, EIO, "statfs: EIO", false, false},
    {CALL_RENAME, EIO, "rename: EIO", false, false},
    {CALL_RENAME, FAILURE_LATE, "rename: done and EIO", false, false},
    {CALL_LINK, EIO, "link: EIO", false, false},
    {CALL_UNLINK, EIO, "unlink: EIO", false, false},
    {CALL_UNLINK, FAILURE_LATE, "unlink: done and EIO", false, false},
    {CALL_MKDIR, EIO, "mkdir: EIO", false, false},
    {CALL_MKDIR, FAILURE_LATE, "mkdir: done and EIO", false, false},
    {CALL_RMDIR, EIO, "rmdir: EIO", false, false},
    {CALL_OPENDIR, EMFILE, "opendir: EMFILE", false, false},
    {CALL_READDIR, EIO, "readdir: EIO", false, false},
    {CALL_MMAP, ENOMEM, "mmap: ENOMEM", false, false},
    {CALL_ADVISE, EIO, "fadvise: EIO", true, false},
    {CALL_CACHESTAT, ENOSYS, "cachestat: ENOSYS", true, false},
    {CALL_RANDOM, ENOSYS, "getrandom: ENOSYS", false, true},
    {CALL_RANDOM, EINTR, "getrandom: EINTR", true, true},
    {CALL_RANDOM, FAILURE_SHORT, "getrandom: short", true, true},
    {CALL_THREAD, EAGAIN, "pthread_create: EAGAIN", false, true},
    {CALL_RING_OPEN, ENOSYS, "io_uring_setup: ENOSYS", true, true},
    {CALL_RING_OPEN, EMFILE, "io_uring_setup: EMFILE", true, true},
    {CALL_RING_PROBE, ENOMEM, "io_uring_register: ENOMEM", true, true},
    {CALL_RING_SUBMIT, EAGAIN, "io_uring_enter: EAGAIN", true, true},
    {CALL_RING_SUBMIT, EINTR, "io_uring_enter: EINTR", true, true},
    {CALL_RING_SUBMIT, EIO, "io_uring_enter: EIO", true, true},
    {CALL_RING_WAIT, EINTR, "waiting for io_uring: EINTR", true, true},
    {CALL_RING_WAIT, EIO, "waiting for io_uring: EIO", true, true},
    {CALL_RING_TRANSFER, EBADF, "transfer by io_uring: EBADF", false, false},
    {CALL_RING_TRANSFER, FAILURE_SHORT, "transfer by io_uring: short", true, false},
};

/* One thing to try. */
struct attempt {
    const struct operation *operation;
    const struct failure *failure;
    long n;
    bool from_then_on;
    uint64_t turn;
};

static char temporary[96], scratch[128], home[160], fresh[160];
static char at_work[400];                /* the attempt, for whoever must end the program */
static int stored = 1;                   /* version of the checkpoint at home */
static int names_before;                 /* in its directory, before what is tried */
static int names_after[MOST_OPERATIONS]; /* and after each operation, if all goes well */
static long fault_count;
static struct contents contents;

static void complain(const char *what, const struct outcome *outcome)
{
    fprintf(stderr, "%s: %s (%d: %s)\n", at_work, what, outcome ? (int)outcome->status : 0,
            outcome ? outcome->message : "");
    fault_count++;
}

static void end_by_signal(int number)
{
    static const char text[] = ": the process hangs, or is ended by a signal\n";
    (void)number;
    (void)!write(STDERR_FILENO, at_work, strlen(at_work));
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1);
}

static int count_names(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

static void remove_tree(const char *path)
{
    char name[600];
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (unlink(name) != 0)
            remove_tree(name);
    }
    if (directory)
        closedir(directory);
    rmdir(path);
}

static void run(const struct operation *operation, const struct attempt *attempt,
                struct outcome *outcome, long *failed)
{
    const struct failure *failure = attempt ? attempt->failure : &failures[0];
    int version = operation->saves ? stored + 1 : stored;
    *outcome = (struct outcome){.status = DCP_OK};
    alarm(HANG_SECONDS);
    failing_calls_arm(failure->kind, attempt ? attempt->n : 0, attempt && attempt->from_then_on,
                      failure->error);
    operation->run(operation, operation->fresh ? fresh : home, version, &contents, outcome);
    *failed = failing_calls_disarm();
    alarm(0);
}

/* The error says what is wrong, and with which file. */
static void check_error(const struct failure *failure, const struct outcome *outcome)
{
    if (!failure->unnamed && strstr(outcome->message, temporary) == NULL)
        complain("the error names no file", outcome);
    /* What is asked for, and not there, has a name of its own. */
    if (failure->error > 0 && outcome->status != DCP_ERR_UNSUPPORTED &&
        strstr(outcome->message, strerror(failure->error)) == NULL)
        complain("the error does not say what is wrong", outcome);
}

/* What was not made durable is not saved. Only the last sync is of something that can be spared,
 * and that of metadata.json, which on a slow disk has begun before. */
static bool is_durable(const struct attempt *attempt)
{
    return attempt->failure->kind != CALL_FSYNC || attempt->failure->endured ||
           attempt->n >= failing_calls_count(CALL_FSYNC) ||
           failing_calls_unsynced("/metadata.json.");
}

static void check_end(const struct attempt *attempt, const struct outcome *outcome, long failed)
{
    bool well = outcome->status == DCP_OK && outcome->faults == 0;
    if (well && !is_durable(attempt))
        complain("a sync that failed is no error", outcome);
    if (outcome->status == DCP_ERR_STATE)
        complain("", outcome);
    else if (!well && failed == 0)
        complain("no call failed, and yet", outcome);
    else if (!well && attempt->failure->endured && !attempt->from_then_on &&
             outcome->status != DCP_ERR_UNSUPPORTED)
        complain("not endured", outcome);
    else if (!well)
        check_error(attempt->failure, outcome);
}

/* Beside what is asked for. Where nothing came of a save nothing of it stays, but where it is
 * removing that fails, where a directory was made that seemed not to be, and where a commit that
 * was seen already was taken back: then shards wait for the metadata that a power cut may bring. */
static bool may_leave_something(const struct attempt *attempt, bool saved)
{
    switch (attempt->failure->kind) {
    case CALL_UNLINK:
    case CALL_RMDIR:
        return true;
    case CALL_OPEN:
    case CALL_FSYNC:
    case CALL_MKDIR:
    case CALL_RENAME:
        return saved || attempt->from_then_on || attempt->operation->fresh;
    default:
        return saved || attempt->from_then_on;
    }
}

/* What the directory holds after a save: the new checkpoint if that succeeded, else one of both. */
static void check_saved(const struct attempt *attempt, const struct outcome *outcome, long failed)
{
    struct outcome found;
    const struct operation *operation = attempt->operation;
    const char *path = operation->fresh ? fresh : home;
    int before = operation->fresh ? 0 : stored;
    int version = checkpoint_version(path, &contents, &found);
    bool saved = version != before;
    if (version != stored + 1 && (outcome->status == DCP_OK || saved))
        complain("what is there afterwards is neither the checkpoint before nor the new one",
                 &found);
    int names = saved ? names_after[operation - operations] : operation->fresh ? 0 : names_before;
    if ((failed == 0 || !may_leave_something(attempt, saved)) && count_names(path) > names)
        complain("something stays in the directory", outcome);
    if (operation->fresh)
        remove_tree(fresh);
    else if (version > 0)
        stored = version;
}

/* By a save of which nothing fails, which also shows that one is possible. */
static void tidy_up(void)
{
    long failed;
    struct outcome outcome, found;
    run(&operations[0], NULL, &outcome, &failed);
    stored++;
    if (outcome.status != DCP_OK || checkpoint_version(home, &contents, &found) != stored)
        complain("the save after it fails", &outcome);
    else if (names_after[0] != 0 && count_names(home) != names_after[0])
        complain("the save after it does not tidy up", &outcome);
    names_before = count_names(home);
}

static void try(const struct attempt *attempt)
{
    struct outcome outcome;
    long failed;
    snprintf(at_work, sizeof at_work, "%s, call %ld%s of %s", attempt->operation->name, attempt->n,
             attempt->from_then_on ? " and all after it" : "", attempt->failure->name);
    int descriptors = count_names("/proc/self/fd");
    failing_allocator_install(0, false);
    run(attempt->operation, attempt, &outcome, &failed);
    if (failing_allocator_remove() != 0)
        complain("memory is lost", &outcome);
    if (count_names("/proc/self/fd") != descriptors)
        complain("descriptors are lost", &outcome);
    check_end(attempt, &outcome, failed);
    if (attempt->operation->saves)
        check_saved(attempt, &outcome, failed);
    if (attempt->operation->saves && !attempt->operation->fresh)
        names_before = count_names(home);
    if (names_before > MOST_NAMES)
        tidy_up();
}

/* All that there is to try of an operation, by what it calls when nothing fails. */
static size_t list_attempts(const struct operation *operation, struct attempt *attempts)
{
    struct outcome outcome;
    long failed;
    size_t count = 0;
    snprintf(at_work, sizeof at_work, "%s, without a failure", operation->name);
    run(operation, NULL, &outcome, &failed);
    if (outcome.status == DCP_ERR_UNSUPPORTED) {
        printf("%s: left out: %s\n", operation->name, outcome.message);
        return 0;
    }
    if (outcome.status != DCP_OK || outcome.faults != 0)
        complain("fails", &outcome);
    names_after[operation - operations] = count_names(operation->fresh ? fresh : home);
    if (operation->fresh)
        remove_tree(fresh);
    else if (operation->saves)
        stored++;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        const struct failure *failure = &failures[i];
        long calls = failing_calls_count(failure->kind);
        /* Waits are as many as it happens. */
        calls += failure->kind == CALL_RING_WAIT ? 3 : 0;
        for (long n = 1; n <= calls; n++) {
            struct attempt once = {operation, failure, n, false, 0};
            struct attempt on = {operation, failure, n, true, 0};
            if (attempts)
                attempts[count] = once;
            count++;
            /* What is interrupted for ever may be tried again for ever. */
            if (failure->error == EINTR || (n & (n - 1)) != 0)
                continue;
            if (attempts)
                attempts[count] = on;
            count++;
        }
    }
    return count;
}

static int compare_turns(const void *left, const void *right)
{
    const struct attempt *a = left, *b = right;
    return (a->turn > b->turn) - (a->turn < b->turn);
}

/* By chance, but for each failure of each operation one before there is another. */
static void shuffle(struct attempt *attempts, size_t count, unsigned seed)
{
    enum { FAILURES = sizeof failures / sizeof *failures };
    uint64_t random = seed;
    uint32_t seen[MOST_OPERATIONS * FAILURES] = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < count; i++) {
            size_t kind = (size_t)(attempts[i].operation - operations) * FAILURES +
                          (size_t)(attempts[i].failure - failures);
            random = random * 6364136223846793005u + 1442695040888963407u;
            attempts[i].turn = random >> 32;
            if (pass > 0)
                attempts[i].turn |= (uint64_t)seen[kind]++ << 32;
        }
        qsort(attempts, count, sizeof *attempts, compare_turns);
    }
}

static void begin(void)
{
    static const int signals[] = {SIGALRM, SIGSEGV, SIGBUS, SIGABRT, SIGFPE};
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], end_by_signal);
    snprintf(temporary, sizeof temporary, "%.80s", folder);
    snprintf(scratch, sizeof scratch, "%s/dcp-faults-XXXXXX", temporary);
    if (!mkdtemp(scratch)) {
        perror(scratch);
        exit(1);
    }
    snprintf(home, sizeof home, "%s/home", scratch);
    snprintf(fresh, sizeof fresh, "%s/fresh", scratch);
    tidy_up();
}

int main(int count, char **arguments)
{
    enum { MOST = 20000 };
    double seconds = count > 1 ? strtod(arguments[1], NULL) : 20;
    unsigned seed = count > 2 ? (unsigned)strtoul(arguments[2], NULL, 10) : 1;
    struct attempt *attempts = calloc(MOST, sizeof *attempts);
    size_t all = 0, tried = 0;
    begin();
    for (size_t i = 0; i < operation_count; i++)
        all += list_attempts(&operations[i], attempts + all);
    shuffle(attempts, all, seed);
    time_t end = time(NULL) + (time_t)seconds;
    while (tried < all && (seconds <= 0 || time(NULL) < end))
        try(&attempts[tried++]);
    printf("%zu of %zu failures tried, %ld with a fault\n", tried, all, fault_count);
    free(attempts);
    remove_tree(scratch);
    return fault_count > 0;
}
