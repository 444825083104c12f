/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>

#include "bench.h"
#include "command.h"

/* The phases of a save or load, in order. */
struct phase {
    const char *name;
    double seconds;
};

enum { PHASES = 5 };

static int list_phases(const dcp_figures *figures, bool loads, struct phase phases[PHASES])
{
    int count = 0;
    if (loads) {
        phases[count++] = (struct phase){"planning", figures->planning_seconds};
        phases[count++] = (struct phase){"reading", figures->reading_seconds};
    } else {
        phases[count++] = (struct phase){"staging", figures->staging_seconds};
        phases[count++] = (struct phase){"planning", figures->planning_seconds};
        phases[count++] = (struct phase){"writing", figures->writing_seconds};
        phases[count++] = (struct phase){"syncing", figures->syncing_seconds};
    }
    phases[count++] = (struct phase){"commit", figures->commit_seconds};
    return count;
}

static int compare(const void *left, const void *right)
{
    double a = ((const struct bench_figures *)left)->most.total_seconds;
    double b = ((const struct bench_figures *)right)->most.total_seconds;
    return a < b ? -1 : a > b;
}

static void print_plainly(const struct bench_options *options, const char *name, bool loads,
                          const struct bench_figures *sorted)
{
    const struct bench_figures *median = &sorted[options->repeat / 2];
    const dcp_figures *most = &median->most;
    struct phase phases[PHASES];
    int count = list_phases(most, loads, phases);
    printf("%s  %.3f s", name, most->total_seconds);
    if (options->repeat > 1)
        printf(" (median of %d, %.3f to %.3f)", options->repeat, sorted[0].most.total_seconds,
               sorted[options->repeat - 1].most.total_seconds);
    printf(", %.2f GB/s\n", (double)bench_bytes(options) / 1e9 / most->total_seconds);
    for (int i = 0; i < count; i++)
        printf("      %-9s %.3f s%s\n", phases[i].name, phases[i].seconds,
               loads || i != 3 ? "" : ", within writing");
    if (!loads && most->replica_check_seconds > 0)
        printf("      %-9s %.3f s, within planning: %.1f %% of the save\n", "checking",
               most->replica_check_seconds,
               100 * most->replica_check_seconds / most->total_seconds);
    printf("      %" PRIu64 " bytes %s, %" PRIu64 " file%s, by %s, %s the page cache\n",
           loads ? median->bytes_read : median->bytes_moved, loads ? "read" : "written",
           median->files, median->files == 1 ? "" : "s",
           most->ring ? "io_uring" : "reads and writes", most->direct ? "around" : "through");
    printf("      %.1f MiB of extra memory on a rank\n", (double)most->peak_memory / 1048576);
}

static void print_json_figures(const struct bench_figures *figures, bool loads)
{
    struct phase phases[PHASES];
    int count = list_phases(&figures->most, loads, phases);
    printf("{\"total_seconds\": %.6f", figures->most.total_seconds);
    for (int i = 0; i < count; i++)
        printf(", \"%s_seconds\": %.6f", phases[i].name, phases[i].seconds);
    printf(", \"bytes_moved\": %" PRIu64, figures->bytes_moved);
    if (!loads)
        printf(", \"replica_check_seconds\": %.6f", figures->most.replica_check_seconds);
    if (loads)
        printf(", \"bytes_read\": %" PRIu64, figures->bytes_read);
    printf(", \"files\": %" PRIu64 ", \"peak_memory\": %" PRIu64 ", \"direct\": %s, \"ring\": %s}",
           figures->files, figures->most.peak_memory, figures->most.direct ? "true" : "false",
           figures->most.ring ? "true" : "false");
}

static void print_json_list(const struct bench_options *options, const char *name, bool loads,
                            const struct bench_figures *sorted)
{
    printf(",\n \"%s\": [", name);
    for (int i = 0; i < options->repeat; i++) {
        fputs(i > 0 ? ",\n  " : "\n  ", stdout);
        print_json_figures(&sorted[i], loads);
    }
    fputs("]", stdout);
}

void bench_print(const struct bench_options *options, struct bench_figures *saves,
                 struct bench_figures *loads)
{
    qsort(saves, (size_t)options->repeat, sizeof *saves, compare);
    qsort(loads, (size_t)options->repeat, sizeof *loads, compare);
    if (options->json) {
        printf("{\"version\": ");
        print_json_string(stdout, dcp_version_string());
        printf(", \"bytes\": %" PRIu64 ", \"tensors\": %" PRId64 ", \"ranks\": %d, \"repeat\": %d",
               bench_bytes(options), options->tensor_count, options->rank_count, options->repeat);
        print_json_list(options, "save", false, saves);
        print_json_list(options, "load", true, loads);
        if (options->plan)
            bench_plan(options, &saves[options->repeat / 2]);
        fputs("}\n", stdout);
        return;
    }
    printf("%" PRIu64 " bytes in %" PRId64 " tensor%s, %d rank%s\n", bench_bytes(options),
           options->tensor_count, options->tensor_count == 1 ? "" : "s", options->rank_count,
           options->rank_count == 1 ? "" : "s");
    print_plainly(options, "save", false, saves);
    print_plainly(options, "load", true, loads);
    if (options->plan)
        bench_plan(options, &saves[options->repeat / 2]);
}
