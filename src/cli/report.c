/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of a run's saves as a page for a browser: one file, without scripts. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "element.h"
#include "saves.h"

enum { WIDTH = 900, HEIGHT = 140, COLUMNS_MAX = 450, FAILURES_SHOWN = 20 };

/* ---- text ---- */

static void print_html(const char *text)
{
    for (size_t length; *text; text += length) {
        if (strchr("<>&\"'", *text)) {
            length = 1;
            printf("&#%d;", *text);
        } else if (is_visible(text, &length)) {
            fwrite(text, 1, length, stdout);
        } else {
            for (size_t i = 0; i < length; i++)
                printf("\\x%02x", (unsigned char)text[i]);
        }
    }
}

static void print_time(int64_t unix_time)
{
    char text[32];
    const time_t seconds = (time_t)unix_time;
    struct tm parts;
    if (gmtime_r(&seconds, &parts) &&
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts) > 0)
        fputs(text, stdout);
}

/* ---- charts ---- */

static double stall_of(const struct save_line *line)
{
    return line->stall;
}

static double seconds_of(const struct save_line *line)
{
    return line->seconds;
}

static double megabytes_of(const struct save_line *line)
{
    return (double)line->bytes / 1048576;
}

static double failure_of(const struct save_line *line)
{
    return line->saved ? 0 : 1;
}

static const struct chart {
    const char *title, *unit;
    double (*value)(const struct save_line *line);
} charts[] = {
    {"Stall: how long training waited", "s", stall_of},
    {"Duration: until it was durable", "s", seconds_of},
    {"Bytes of rank 0", "MiB", megabytes_of},
    {"Failures", "", failure_of},
};

/* In the order of the file, which is that of time, also where a clock was set back. Of many saves
 * several share a bar: the greatest is drawn. */
static void print_chart(const struct saves *saves, const struct chart *chart)
{
    size_t columns = saves->count < COLUMNS_MAX ? saves->count : COLUMNS_MAX;
    double top = 0, width = (double)WIDTH / (double)columns;
    for (size_t i = 0; i < saves->count; i++)
        top = chart->value(&saves->lines[i]) > top ? chart->value(&saves->lines[i]) : top;
    printf("<h2>%s</h2>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
           chart->title, WIDTH + 100, HEIGHT + 24, chart->title);
    if (top > 0)
        printf("<text x=\"%d\" y=\"12\">%.4g %s</text>\n", WIDTH + 6, top, chart->unit);
    printf("<text x=\"%d\" y=\"%d\">0</text>\n", WIDTH + 6, HEIGHT);
    printf("<line x1=\"0\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", HEIGHT, WIDTH, HEIGHT);
    for (size_t column = 0, i = 0; column < columns; column++) {
        double greatest = 0;
        bool failed = false;
        const struct save_line *first = &saves->lines[i];
        for (; i < (column + 1) * saves->count / columns; i++) {
            double value = chart->value(&saves->lines[i]);
            greatest = value > greatest ? value : greatest;
            failed = failed || !saves->lines[i].saved;
        }
        double height = top > 0 ? greatest / top * (HEIGHT - 4) : 0;
        printf("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"%s><title>step %" PRId64
               ": %.4g %s</title></rect>\n",
               width * (double)column, HEIGHT - height, width > 3 ? width - 1 : width, height,
               failed ? " class=\"failed\"" : "", first->step, greatest, chart->unit);
    }
    printf("<text x=\"0\" y=\"%d\">step %" PRId64 ", ", HEIGHT + 18, saves->lines[0].step);
    print_time(saves->lines[0].unix_time);
    printf("</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">step %" PRId64 ", ", WIDTH,
           HEIGHT + 18, saves->lines[saves->count - 1].step);
    print_time(saves->lines[saves->count - 1].unix_time);
    fputs("</text>\n</svg>\n", stdout);
}

/* ---- the page ---- */

static void print_summary(const struct saves *saves)
{
    double stall = 0, seconds = 0, longest = 0;
    uint64_t failures = 0;
    for (size_t i = 0; i < saves->count; i++) {
        const struct save_line *line = &saves->lines[i];
        stall += line->stall;
        seconds += line->seconds;
        longest = line->seconds > longest ? line->seconds : longest;
        failures += !line->saved;
    }
    double count = saves->count > 0 ? (double)saves->count : 1;
    printf("<p>%zu saves, %" PRIu64
           " of them failed. Training waited %.2f s in all, %.3f s for one "
           "in the mean. A save took %.2f s in the mean, %.2f s at most.",
           saves->count, failures, stall, stall / count, seconds / count, longest);
    if (saves->count > COLUMNS_MAX)
        printf(" A bar stands for about %zu saves, and shows the greatest of them.",
               saves->count / COLUMNS_MAX);
    if (saves->copies > 0)
        printf(" %zu copies to mirrors, %zu of them failed.", saves->copies, saves->failed_copies);
    if (saves->strange > 0)
        printf(" %zu lines were not understood.", saves->strange);
    fputs("</p>\n", stdout);
}

static void print_failures(const struct saves *saves)
{
    size_t shown = 0;
    for (size_t i = saves->count; i-- > 0 && shown < FAILURES_SHOWN;) {
        const struct save_line *line = &saves->lines[i];
        if (line->saved)
            continue;
        if (shown++ == 0)
            fputs("<h2>The last failures</h2>\n<table>\n<tr><th>step</th><th>when</th><th>why</th>"
                  "</tr>\n",
                  stdout);
        printf("<tr><td>%" PRId64 "</td><td>", line->step);
        print_time(line->unix_time);
        fputs("</td><td>", stdout);
        print_html(line->failure);
        fputs("</td></tr>\n", stdout);
    }
    if (shown > 0)
        fputs("</table>\n", stdout);
}

static void print_page(const char *run, const struct saves *saves)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>Saves of ",
          stdout);
    print_html(run);
    fputs(
        "</title>\n<style>\n"
        "body{font:15px/1.4 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\n"
        "h2{font-size:1em;margin:1.6em 0 .3em}\nsvg{width:100%;height:auto}\n"
        "svg text{font-size:12px;fill:#555}\nrect{fill:#3b6ea5}\nrect.failed{fill:#c0392b}\n"
        "line{stroke:#999}\ntable{border-collapse:collapse}\n"
        "td,th{border-bottom:1px solid #ddd;padding:.2em .6em;text-align:left}\n"
        "</style></head>\n<body>\n<h1>Saves of ",
        stdout);
    print_html(run);
    fputs("</h1>\n", stdout);
    print_summary(saves);
    for (size_t i = 0; saves->count > 0 && i < sizeof charts / sizeof *charts; i++)
        print_chart(saves, &charts[i]);
    print_failures(saves);
    fputs("</body></html>\n", stdout);
}

static void fail(const char *run, int error)
{
    fputs("dcp report: ", stderr);
    print_plain(stderr, run);
    fprintf(stderr, "/dcp_saves.jsonl: %s\n", strerror(error));
}

/* ---- for programs ---- */

static void print_save_json(const struct save_line *line)
{
    printf("{\"unix_time\": %" PRId64 ", \"step\": %" PRId64 ", \"path\": ", line->unix_time,
           line->step);
    print_json_string(stdout, line->path);
    printf(", \"saved\": %s, \"stall_seconds\": ", line->saved ? "true" : "false");
    number_print(stdout, line->stall, false, true);
    fputs(", \"seconds\": ", stdout);
    number_print(stdout, line->seconds, false, true);
    printf(", \"bytes\": %" PRIu64 ", \"run\": ", line->bytes);
    print_json_string(stdout, line->run);
    if (!line->saved) {
        fputs(", \"failure\": ", stdout);
        print_json_string(stdout, line->failure);
    }
    putchar('}');
}

static void print_json(const struct saves *saves)
{
    fputs("{\"saves\": [", stdout);
    for (size_t i = 0; i < saves->count; i++) {
        fputs(i > 0 ? ",\n " : "\n ", stdout);
        print_save_json(&saves->lines[i]);
    }
    printf("\n], \"copies\": %zu, \"failed_copies\": %zu, \"not_understood\": %zu}\n",
           saves->copies, saves->failed_copies, saves->strange);
}

/* ---- the command ---- */

struct report_options {
    bool json;
};

static int run_report(struct command_line *line)
{
    const struct report_options *options = line->options;
    const char *run = line->paths[0];
    struct saves saves;
    if (command_storage())
        return option_usage(line, "figures of saves are in the file system alone");
    bool good = saves_read(run, &saves);
    int error = errno;
    if (good && options->json)
        print_json(&saves);
    else if (good)
        print_page(run, &saves);
    else
        fail(run, error);
    saves_free(&saves);
    return good ? EXIT_FINE : EXIT_FAULT;
}

static const struct option report_table[] = {{.name = "json",
                                              .letter = 'j',
                                              .set = option_flag,
                                              .field = offsetof(struct report_options, json),
                                              .help = "The figures, as JSON, instead of a page."},
                                             {.name = NULL}};

const struct command command_report = {
    .name = "report",
    .operands = "RUN",
    .least = 1,
    .most = 1,
    .purpose = "draw how a run's saves went, as a page for a browser",
    .description =
        "Prints an HTML page of the figures in RUN/dcp_saves.jsonl, to which a job that keeps its "
        "checkpoints by the library appends a line for each save: how long training waited, how "
        "long the save took, the bytes that rank 0 wrote, and failures, over time, and why the "
        "last saves failed.\n"
        "\n"
        "The page is one file with drawings in it, and has no scripts. Lines that are cut short "
        "are counted and left out. Of many saves several share a bar, which is as high as the "
        "greatest of them.\n",
    .options = report_table,
    .size = sizeof(struct report_options),
    .json =
        "An object:\n"
        "  saves           an array, in the order of the file: unix_time (when it ended), step,\n"
        "                  path in the run, saved, stall_seconds, seconds, bytes (of rank 0),\n"
        "                  run (the job's id), and failure if it was not saved\n"
        "  copies          to mirrors\n"
        "  failed_copies   of these\n"
        "  not_understood  lines of the file\n",
    .examples = "  dcp report run >saves.html\n"
                "      A page to look at.\n"
                "  dcp report --json run | jq '[.saves[].stall_seconds] | add'\n"
                "      How long training has waited for saves.\n",
    .see_also = "watch list",
    .run = run_report};
