/* SPDX-License-Identifier: BSD-3-Clause */
/* What the measured save says of a larger one, and of how often to save. */
#include <inttypes.h>
#include <math.h>

#include "bench.h"
#include "command.h"

/* What does not move bytes is taken to cost the same whatever the size, and the rest to be in
 * proportion to it. */
static double cost_of(const struct bench_options *options, const dcp_figures *save, uint64_t bytes)
{
    double moving = save->staging_seconds + save->writing_seconds;
    if (moving > save->total_seconds)
        moving = save->total_seconds;
    return save->total_seconds - moving + moving * (double)bytes / (double)bench_bytes(options);
}

/* From the beginning of a save to that of the next, so that the least time is lost: J. T. Daly, A
 * higher order estimate of the optimum checkpoint interval for restart dumps, 2006, equation 37. */
static double interval_of(double cost, double failure)
{
    if (cost >= 2 * failure)
        return failure;
    double ratio = cost / (2 * failure);
    return sqrt(2 * cost * failure) * (1 + sqrt(ratio) / 3 + ratio / 9);
}

/* The part of the time that goes to saving, and on the average is lost by failures: half of an
 * interval each. */
static double lost_of(double cost, double failure)
{
    double interval = interval_of(cost, failure);
    double lost = cost / interval + interval / (2 * failure);
    return lost < 1 ? lost : 1;
}

static void print_duration(double seconds, int width)
{
    char text[32];
    if (seconds < 120)
        snprintf(text, sizeof text, "%.*f s", seconds < 10 ? 2 : 0, seconds);
    else if (seconds < 7200)
        snprintf(text, sizeof text, "%.1f min", seconds / 60);
    else if (seconds < 172800)
        snprintf(text, sizeof text, "%.1f h", seconds / 3600);
    else
        snprintf(text, sizeof text, "%.1f days", seconds / 86400);
    printf("%*s", width, text);
}

static void print_interval(double cost, double failure, bool json, bool first)
{
    double interval = interval_of(cost, failure), lost = lost_of(cost, failure);
    if (json) {
        printf("%s\n  {\"failure_seconds\": %.6g, \"every_seconds\": %.6g, \"lost\": %.6g}",
               first ? "" : ",", failure, interval, lost);
        return;
    }
    print_duration(failure, 21);
    print_duration(interval, 14);
    printf("%12.2f %%\n", 100 * lost);
}

void bench_plan(const struct bench_options *options, const struct bench_figures *median)
{
    static const double usual_hours[] = {1, 4, 12, 24, 168};
    uint64_t bytes = options->plan_bytes > 0 ? options->plan_bytes : bench_bytes(options);
    double cost = cost_of(options, &median->most, bytes);
    size_t count = options->failure_hours > 0 ? 1 : sizeof usual_hours / sizeof *usual_hours;
    if (options->json) {
        printf(",\n \"plan\": {\"bytes\": %" PRIu64 ", \"save_seconds\": %.6g, \"intervals\": [",
               bytes, cost);
    } else {
        fputs("plan  a save of ", stdout);
        print_size(stdout, bytes, 0);
        fputs(" takes about ", stdout);
        print_duration(cost, 0);
        printf("\n%21s%14s%14s\n", "fails every", "save every", "time lost");
    }
    for (size_t i = 0; i < count; i++) {
        double hours = options->failure_hours > 0 ? options->failure_hours : usual_hours[i];
        print_interval(cost, 3600 * hours, options->json, i == 0);
    }
    if (options->json)
        fputs("]}", stdout);
}
