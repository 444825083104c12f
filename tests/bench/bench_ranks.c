/* SPDX-License-Identifier: BSD-3-Clause */
/* Our side of tests/bench/compare: ranks are processes that keep a state in memory and do what is
 * asked on standard input, one command a line: bench_ranks RANKS TENSORS COLUMNS [ROWS]
 *
 *   save DIR, load DIR, reshard DIR   a checkpoint
 *   save_kept DIR                     one whose pages stay in the page cache
 *   save_files DIR                    one with a file for each tensor
 *   rows DIR                          the rows that it would have with one rank more
 *   unchecked_rows DIR, unchecked_reshard DIR   the same without checking a byte
 *   everything DIR                    a load of everything by every rank
 *   alone DIR, together DIR           the same: each reads for itself, or for the others as well
 *   write:WAY DIR                     as many bytes as the last save has written in one of the ways
 *                                     of disk_ways.h, as the state has if all saves were
 *                                     asynchronous; infinitely many seconds where it is lacking
 *   read:WAY DIR                      the files there, likewise
 *   cool DIR                          out of the page cache
 *   trim DIR                          what was freed back to the system: DIR is not used
 *   async DIR, overlapped DIR         an asynchronous save, the next one of its chain
 *   beside DIR                        as async, while each rank computes
 *   copy DIR                          a plain copy in memory
 *
 * Each is answered by a line with the seconds that it took the slowest rank, or made its step wait,
 * the bytes read, the memory that a rank needed at most beside its state, the bytes that ranks gave
 * each other, of asynchronous saves the seconds until the checkpoint was there, the CPU seconds of
 * all ranks, and of asynchronous saves the seconds that their computations lost. */
#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_async.h"
#include "bench_state.h"
#include "disk.h"
#include "disk_ways.h"
#include "memory_use.h"
#include "seconds.h"
#include "shared_group.h"

enum { MOST_RANKS = SHARED_RANKS_MOST, LINE = 4096 };

struct answer {
    double seconds;
    unsigned long long bytes_read;
    unsigned long long memory; /* more than before, at a time */
    unsigned long long exchanged;
    struct async_times async;
};

struct rank {
    int rank, ranks;
    struct shared_memory *shared;
    dcp_group *group;
    size_t count;
    int64_t rows, columns;
    struct bench_state state; /* divided by rows */
    uint64_t written;         /* by the last save: elements, and what the format puts around them */
    struct bench_async async;
};

static void check(dcp_status status)
{
    if (status != DCP_OK)
        errx(1, "%s: %s", dcp_status_string(status), dcp_error_message());
}

static void save(struct rank *rank, const char *path, const dcp_save_options *how,
                 struct answer *answer)
{
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options options = *how;
    unsigned long long before = memory_restart();

    options.group = rank->group;
    options.figures = &figures;
    shared_start(rank->shared);
    double start = seconds_now(), processor = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
    check(dcp_save(rank->state.root, path, &options));
    answer->seconds = seconds_now() - start;
    answer->async.processor = seconds_on(CLOCK_PROCESS_CPUTIME_ID) - processor;
    answer->memory = memory_peak() - before;
    rank->written = figures.bytes_moved;
}

/* Loads into a state, and makes sure, outside the time taken, that all of it arrived. */
static void load(struct rank *rank, struct bench_state *state, const char *path,
                 const dcp_load_options *how, struct answer *answer)
{
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = *how;

    options.group = rank->group;
    options.figures = &figures;
    bench_state_clear(state);
    unsigned long long before = memory_restart();
    shared_start(rank->shared);
    double start = seconds_now(), processor = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
    check(dcp_load(state->root, path, &options, NULL));
    answer->seconds = seconds_now() - start;
    answer->async.processor = seconds_on(CLOCK_PROCESS_CPUTIME_ID) - processor;
    answer->memory = memory_peak() - before;
    answer->exchanged = figures.bytes_exchanged;
    answer->bytes_read = figures.bytes_read;
    if (!bench_state_is_filled(state))
        errx(1, "%s: what was loaded differs", path);
}

/* Into a state that is divided otherwise; by rows, as among one rank more. */
static void load_divided(struct rank *rank, const char *path, int dim, const dcp_load_options *how,
                         struct answer *answer)
{
    struct bench_state state;

    bench_state_new(&state, rank->count, rank->rows, rank->columns, dim, rank->rank,
                    rank->ranks + (dim == 0), dim != 0);
    load(rank, &state, path, how, answer);
    bench_state_free(&state);
}

/* One of those loads, if a command is one. */
static bool load_as(struct rank *rank, const char *command, const char *path, struct answer *answer)
{
    static const struct {
        const char *command;
        int dim;
        dcp_load_options how;
    } loads[] = {
        {"reshard", 1, {0}},
        {"rows", 0, {0}},
        {"unchecked_reshard", 1, {.verification = DCP_VERIFY_NONE}},
        {"unchecked_rows", 0, {.verification = DCP_VERIFY_NONE}},
        {"everything", -1, {0}},
        {"alone", -1, {.reading = DCP_READING_DIRECT}},
        {"together", -1, {.reading = DCP_READING_COOPERATIVE}},
    };
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        if (strcmp(command, loads[i].command) == 0) {
            load_divided(rank, path, loads[i].dim, &loads[i].how, answer);
            return true;
        }
    return false;
}

static size_t tensor_bytes(const struct rank *rank)
{
    return (size_t)(rank->columns * rank->rows) * sizeof(float);
}

/* "write:WAY" or "read:WAY". */
static void plain(const struct rank *rank, const char *path, const char *command,
                  struct answer *answer)
{
    const char *name = strchr(command, ':') + 1;
    bool writes = strncmp(command, "write:", 6) == 0, good = true;
    struct disk_way way;
    char file[LINE + 20];

    if (!disk_way_from_name(name, &way))
        errx(2, "no such way: %s", name);
    size_t bytes = rank->written;
    if (bytes == 0)
        bytes = rank->count * tensor_bytes(rank) / (size_t)rank->ranks + 1;
    struct disk_ways *ways = disk_ways_new(&way, bytes);
    snprintf(file, sizeof file, "%s/plain_%d", path, rank->rank);
    shared_start(rank->shared);
    double start = seconds_now(), processor = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
    if (ways)
        good = writes ? disk_ways_write(ways, file)
                      : disk_ways_read(ways, path, rank->rank, rank->ranks);
    answer->async.processor = seconds_on(CLOCK_PROCESS_CPUTIME_ID) - processor;
    shared_barrier(rank->shared);
    answer->seconds = ways && good ? seconds_now() - start : INFINITY;
    disk_ways_free(ways);
}

static void save_behind(struct rank *rank, const char *path, const char *command,
                        struct answer *answer)
{
    dcp_staging_kind staging =
        strcmp(command, "overlapped") == 0 ? DCP_STAGING_OVERLAPPED : DCP_STAGING_BLOCKING;

    bench_async_save(&rank->async, path, staging, strcmp(command, "beside") == 0, &answer->async);
    answer->seconds = answer->async.waited;
}

static struct answer execute(struct rank *rank, const char *command, const char *path)
{
    struct answer answer = {0};
    unsigned long long before = disk_bytes_read();

    if (strcmp(command, "save") == 0)
        save(rank, path, &(dcp_save_options){0}, &answer);
    else if (strcmp(command, "save_kept") == 0)
        save(rank, path, &(dcp_save_options){.page_cache = DCP_PAGE_CACHE_KEPT}, &answer);
    else if (strcmp(command, "save_files") == 0)
        save(rank, path, &(dcp_save_options){.files = DCP_FILE_PER_ITEM}, &answer);
    else if (strcmp(command, "load") == 0)
        load(rank, &rank->state, path, &(dcp_load_options){0}, &answer);
    else if (load_as(rank, command, path, &answer))
        ;
    else if (strcmp(command, "async") == 0 || strcmp(command, "overlapped") == 0 ||
             strcmp(command, "beside") == 0)
        save_behind(rank, path, command, &answer);
    else if (strcmp(command, "trim") == 0)
        memory_trim();
    else if (strcmp(command, "copy") == 0)
        answer.seconds = bench_async_copy(&rank->async);
    else if (strcmp(command, "cool") == 0)
        disk_cool(path);
    else if (strncmp(command, "write:", 6) == 0 || strncmp(command, "read:", 5) == 0)
        plain(rank, path, command, &answer);
    else
        errx(2, "no such command: %s", command);
    /* What io_uring reads is in no counter of the process. */
    unsigned long long counted = disk_bytes_read() - before;
    answer.bytes_read = counted > answer.bytes_read ? counted : answer.bytes_read;
    return answer;
}

static void run_rank(struct rank *rank, int commands, int answers)
{
    FILE *lines = fdopen(commands, "r");
    char line[LINE], command[40], path[LINE];

    check(shared_group_new(rank->shared, rank->rank, &rank->group));
    bench_state_new(&rank->state, rank->count, rank->rows, rank->columns, 0, rank->rank,
                    rank->ranks, true);
    bench_state_fill(&rank->state);
    rank->async = (struct bench_async){rank->group, rank->shared, &rank->state, {NULL}, NULL};
    while (lines && fgets(line, sizeof line, lines)) {
        if (sscanf(line, "%39s %4095[^\n]", command, path) != 2)
            errx(2, "bad command: %s", line);
        struct answer answer = execute(rank, command, path);
        if (write(answers, &answer, sizeof answer) != sizeof answer)
            err(1, "write");
    }
    bench_async_free(&rank->async);
    bench_state_free(&rank->state);
    dcp_group_free(rank->group);
    fclose(lines);
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

/* The slowest one's time, and sums. */
static void add_answer(struct answer *all, const struct answer *answer)
{
    all->seconds = longer(all->seconds, answer->seconds);
    if (answer->memory > all->memory)
        all->memory = answer->memory;
    all->bytes_read += answer->bytes_read;
    all->exchanged += answer->exchanged;
    all->async.whole = longer(all->async.whole, answer->async.whole);
    all->async.processor += answer->async.processor;
    all->async.lost += answer->async.lost;
}

/* Passes each line to all ranks. */
static void conduct(const int *commands, int answers, int ranks)
{
    char line[LINE];

    while (fgets(line, sizeof line, stdin)) {
        struct answer all = {0}, answer;
        for (int r = 0; r < ranks; r++)
            if (write(commands[r], line, strlen(line)) < 0)
                err(1, "write");
        for (int r = 0; r < ranks; r++) {
            if (read(answers, &answer, sizeof answer) != sizeof answer)
                errx(1, "a rank died");
            add_answer(&all, &answer);
        }
        printf("%.6f %llu %llu %llu %.6f %.6f %.6f\n", all.seconds, all.bytes_read, all.memory,
               all.exchanged, all.async.whole, all.async.processor, all.async.lost);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    int commands[MOST_RANKS], answers[2], pipe_ends[2];

    if (argc != 4 && argc != 5)
        errx(2, "usage: bench_ranks RANKS TENSORS COLUMNS [ROWS]");
    int ranks = (int)strtol(argv[1], NULL, 10);
    struct shared_memory *shared = shared_memory_new(ranks);
    if (ranks < 1 || ranks > MOST_RANKS || !shared || pipe(answers) != 0)
        errx(1, "cannot start %d ranks", ranks);
    for (int r = 0; r < ranks; r++) {
        if (pipe(pipe_ends) != 0)
            err(1, "pipe");
        commands[r] = pipe_ends[1];
        pid_t child = fork();
        if (child < 0)
            err(1, "fork");
        if (child > 0) {
            close(pipe_ends[0]);
            continue;
        }
        for (int earlier = 0; earlier <= r; earlier++)
            close(commands[earlier]);
        struct rank rank = {.rank = r,
                            .ranks = ranks,
                            .shared = shared,
                            .count = strtoul(argv[2], NULL, 10),
                            .rows = argc == 5 ? strtol(argv[4], NULL, 10) : BENCH_ROWS,
                            .columns = strtol(argv[3], NULL, 10)};
        run_rank(&rank, pipe_ends[0], answers[1]);
        return 0;
    }
    close(answers[1]);
    conduct(commands, answers[0], ranks);
    for (int r = 0; r < ranks; r++)
        close(commands[r]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
