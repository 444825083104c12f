/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to dcp bench: saves and loads a synthetic state, and prints figures. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "dcp.h"

#define BENCH_RANKS_MAX  256
#define BENCH_REPEAT_MAX 1000

struct bench_options {
    const char *directory;
    uint64_t bytes;  /* of all tensors */
    bool replicated; /* every rank holds all of each tensor, not a part */
    int64_t tensor_count;
    int rank_count;
    int repeat;
    bool json;
    uint64_t plan_bytes;  /* of a save that is to be estimated; 0: as measured */
    double failure_hours; /* mean time between failures; 0: several */
    bool plan;
    dcp_save_options save; /* options of a rank, without its group */
    dcp_load_options load;
};

/* Figures of one save or load: the largest seconds and memory of any rank, and the bytes of all. */
struct bench_figures {
    dcp_figures most;
    uint64_t bytes_moved;
    uint64_t bytes_read;
    uint64_t files;
};

/* Makes a directory in options->directory, or an id below it in the storage that takes it, saves
 * into and loads from it options->repeat times, and removes it again, also after a failure or an
 * interruption. Returns an exit status, after printing errors. */
int bench_run(const struct bench_options *options, struct bench_figures *saves,
              struct bench_figures *loads);
/* The bytes actually saved: every tensor has at least one element on each rank. */
uint64_t bench_bytes(const struct bench_options *options);

/* As lines, or as a JSON document, to standard output. Sorts the figures. */
void bench_print(const struct bench_options *options, struct bench_figures *saves,
                 struct bench_figures *loads);

/* As a part of it: what a save of another size will cost, and how often to save. */
void bench_plan(const struct bench_options *options, const struct bench_figures *median);

#endif
