/* SPDX-License-Identifier: BSD-3-Clause */
/* How long an emergency save of one rank takes, from the call until it is durable, next to what the
 * disk takes for as many bytes in its best way:
 *
 *   bench_emergency DIR BYTES [REPEAT]    prints a line of JSON: seconds, medians */
#include <dcp.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk_ways.h"
#include "seconds.h"

enum { TENSORS = 32, REPEAT_MAX = 99 };

static const char *const way_names[] = {"buffered", "large-ring", "copied-ring-threads"};
enum { WAYS = sizeof way_names / sizeof *way_names };

static void check(dcp_status status)
{
    if (status != DCP_OK)
        errx(1, "%s: %s", dcp_status_string(status), dcp_error_message());
}

static int compare(const void *first, const void *second)
{
    double a = *(const double *)first, b = *(const double *)second;
    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

/* Its tensors are the parts of memory, TENSORS blocks of as many elements. */
static dcp_state *make_state(float *memory, int64_t elements)
{
    dcp_state *state = dcp_state_new(), *model = dcp_state_dict(state, "model");
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        float *data = memory + i * elements;
        memset(data, i + 1, (size_t)elements * sizeof(float));
        snprintf(name, sizeof name, "w%d", i);
        dcp_state_tensor(model, name,
                         &(dcp_tensor){.dtype = DCP_F32,
                                       .ndim = 1,
                                       .sharded = true,
                                       .global_shape = {2 * elements},
                                       .sizes = {elements},
                                       .data = data});
    }
    check(dcp_state_status(state));
    return state;
}

static void remove_all(const char *directory)
{
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    if (system(command) != 0)
        errx(1, "%s cannot be removed", directory);
}

/* 0: there is no such way. */
static double time_way(const char *name, const char *path, size_t bytes)
{
    struct disk_way way;
    if (!disk_way_from_name(name, &way))
        errx(1, "no way %s", name);
    struct disk_ways *ways = disk_ways_new(&way, bytes);
    if (!ways)
        return 0;
    double begun = seconds_now();
    bool good = disk_ways_write(ways, path);
    double seconds = seconds_now() - begun;
    disk_ways_free(ways);
    return good ? seconds : 0;
}

static double time_save(dcp_run *run, int64_t step, const char *place)
{
    check(dcp_run_step(run, step));
    double begun = seconds_now();
    check(dcp_run_emergency_save(run));
    double seconds = seconds_now() - begun;
    remove_all(place);
    return seconds;
}

static void measure(const char *directory, size_t bytes, int repeat)
{
    char run_path[2048], place[2048], files[2048];
    double ours[REPEAT_MAX], ways[WAYS][REPEAT_MAX], best = 0;
    int64_t elements = (int64_t)(bytes / TENSORS / sizeof(float));
    void *memory;
    dcp_run *run;
    check(dcp_memory_allocate((size_t)elements * TENSORS * sizeof(float), &memory));
    dcp_state *state = make_state(memory, elements);
    snprintf(run_path, sizeof run_path, "%s/run", directory);
    snprintf(place, sizeof place, "%s/local", directory);
    snprintf(files, sizeof files, "%s/disk", directory);
    const dcp_run_emergency emergency = {.size_of = sizeof emergency, .path = place};
    const dcp_run_options options = {.state = state, .emergency = &emergency};
    check(dcp_run_open(run_path, &options, &run));
    for (int i = 0; i < repeat; i++) {
        ours[i] = time_save(run, i + 1, place);
        for (int w = 0; w < WAYS; w++) {
            char command[4096];
            ways[w][i] = time_way(way_names[w], files, bytes);
            snprintf(command, sizeof command, "rm -f '%s'*", files);
            if (system(command) != 0)
                errx(1, "%s cannot be removed", files);
        }
    }
    check(dcp_run_close(run));
    remove_all(run_path);
    dcp_state_free(state);
    dcp_memory_free(memory);
    double seconds = median(ours, repeat);
    printf("{\"bytes\": %zu, \"emergency\": %.4f", bytes, seconds);
    for (int w = 0; w < WAYS; w++) {
        double way = median(ways[w], repeat);
        printf(", \"%s\": %.4f", way_names[w], way);
        best = way > 0 && (best <= 0 || way < best) ? way : best;
    }
    printf(", \"of_the_best\": %.2f}\n", best > 0 ? best / seconds : 0);
}

int main(int argc, char **argv)
{
    long repeat = argc > 3 ? strtol(argv[3], NULL, 10) : 5;
    if (argc < 3 || repeat < 1 || repeat > REPEAT_MAX)
        errx(2, "usage: bench_emergency DIR BYTES [REPEAT]");
    size_t bytes = (size_t)strtoull(argv[2], NULL, 10);
    if (bytes < TENSORS * (size_t)DISK_BLOCK)
        errx(2, "expected at least %d bytes", TENSORS * DISK_BLOCK);
    measure(argv[1], bytes, (int)repeat);
    return 0;
}
