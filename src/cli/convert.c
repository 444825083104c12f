/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp convert: one form of checkpoint into another. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

enum { SOURCES_MAX = 4096 };

/* What the command line says. Lists have room for all arguments. */
struct convert_line {
    dcp_convert_options options;
    const char **paths; /* sources, then the destination */
    size_t path_count;
    const char **include, **exclude;
    dcp_convert_rename *renames;
    char **texts; /* of renames, to be freed */
    bool quiet;
    bool json;
};

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- the command line ---- */

static bool read_number(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *value <= most;
}

/* Bytes: "5GB", "500MB", "5G" or a number; units are decimal with a B, as transformers has them,
 * and powers of two without. */
static bool read_size(const char *text, uint64_t *size)
{
    static const char units[] = "KMGT";
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    double value = strtod(text, &end), factor = 1;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        double base = end[1] == 'B' ? 1000 : 1024;
        for (const char *step = units; step <= unit; step++)
            factor *= base;
        end += end[1] == 'B' ? 2 : 1;
    }
    if (errno != 0 || *end || value * factor < 1 || value * factor >= 0x1p63)
        return false;
    *size = (uint64_t)(value * factor);
    return true;
}

static bool read_dtype(const char *text, dcp_dtype *dtype)
{
    static const char *const shorts[][2] = {
        {"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}, {"fp64", "float64"}};
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++)
        if (strcmp(text, shorts[i][0]) == 0)
            text = shorts[i][1];
    *dtype = dcp_dtype_from_name(text);
    return *dtype != DCP_DTYPE_NONE;
}

/* "FROM=TO": a pattern if FROM has a star, else a whole name or what is below it. */
static bool read_rename(struct convert_line *line, const char *text)
{
    dcp_convert_options *options = &line->options;
    char *copy = strdup(text);
    char *equals = copy ? strchr(copy, '=') : NULL;
    if (!equals) {
        free(copy);
        return false;
    }
    *equals = '\0';
    line->texts[options->rename_count] = copy;
    line->renames[options->rename_count++] = (dcp_convert_rename){
        strpbrk(copy, "*?[") ? DCP_RENAME_GLOB : DCP_RENAME_EXACT, copy, equals + 1};
    return true;
}

static bool read_tied(const char *text, dcp_tied *tied)
{
    *tied = strcmp(text, "keep") == 0 ? DCP_TIED_KEEP : DCP_TIED_DROP;
    return strcmp(text, "keep") == 0 || strcmp(text, "drop") == 0;
}

/* False: there is no such option. *fits: its value is one. */
static bool read_valued(struct convert_line *line, const char *name, const char *value, bool *fits)
{
    dcp_convert_options *options = &line->options;
    uint64_t number = 0;
    if (strcmp(name, "--to") == 0) {
        options->form = dcp_form_from_name(value);
        *fits = options->form != DCP_FORM_UNKNOWN;
    } else if (strcmp(name, "--dtype") == 0) {
        *fits = read_dtype(value, &options->dtype);
    } else if (strcmp(name, "--dequantize") == 0) {
        *fits = read_dtype(value, &options->dequantize);
    } else if (strcmp(name, "--include") == 0) {
        line->include[options->include_count++] = value;
    } else if (strcmp(name, "--exclude") == 0) {
        line->exclude[options->exclude_count++] = value;
    } else if (strcmp(name, "--rename") == 0) {
        *fits = read_rename(line, value);
    } else if (strcmp(name, "--shard-size") == 0) {
        *fits = read_size(value, &options->shard_size);
    } else if (strcmp(name, "--tied") == 0) {
        *fits = read_tied(value, &options->tied);
    } else if (strcmp(name, "--ranks") == 0) {
        *fits = read_number(value, DCP_CONVERT_RANKS_MAX, &number) && number > 0;
        options->ranks = (int32_t)number;
    } else if (strcmp(name, "--threads") == 0) {
        *fits = read_number(value, 64, &number) && number > 0;
        options->thread_count = (int32_t)number;
    } else {
        return false;
    }
    return true;
}

static bool read_flag(struct convert_line *line, const char *name)
{
    dcp_convert_options *options = &line->options;
    if (strcmp(name, "--model-only") == 0)
        options->model_only = true;
    else if (strcmp(name, "--masters") == 0)
        options->take = DCP_TAKE_MASTERS;
    else if (strcmp(name, "--all") == 0)
        options->take = DCP_TAKE_ALL;
    else if (strcmp(name, "--zstd") == 0)
        options->compression = DCP_COMPRESSION_ZSTD;
    else if (strcmp(name, "--no-sync") == 0)
        options->skip_sync = true;
    else if (strcmp(name, "--quiet") == 0)
        line->quiet = true;
    else if (strcmp(name, "--json") == 0)
        line->json = true;
    else
        return false;
    return true;
}

/* An option, whose value is behind "=" or the next argument. */
static bool read_option(struct convert_line *line, char **argv, int argc, int *at)
{
    char *name = argv[*at], *equals = strchr(name, '=');
    const char *value = equals ? equals + 1 : *at + 1 < argc ? argv[*at + 1] : NULL;
    bool fits = true;
    if (!equals && read_flag(line, name))
        return true;
    if (equals)
        *equals = '\0';
    bool known = read_valued(line, name, value ? value : "", &fits);
    if (!known || !value || !fits) {
        fprintf(stderr, "dcp convert: %s %s%s%s\n",
                !known   ? "there is no option"
                : !value ? "a value is missing behind"
                         : "not a value of",
                name, known && value ? ": " : "", known && value ? value : "");
        return false;
    }
    *at += equals ? 0 : 1;
    return true;
}

static bool read_line(struct convert_line *line, int argc, char **argv)
{
    bool only_paths = false;
    for (int i = 1; i < argc; i++) {
        if (!only_paths && strcmp(argv[i], "--") == 0)
            only_paths = true;
        else if (only_paths || argv[i][0] != '-')
            line->paths[line->path_count++] = argv[i];
        else if (!read_option(line, argv, argc, &i))
            return false;
    }
    line->options.include = line->include;
    line->options.exclude = line->exclude;
    line->options.renames = line->renames;
    return line->path_count >= 2 && line->path_count <= SOURCES_MAX + 1;
}

static bool line_new(struct convert_line *line, int argc)
{
    size_t count = (size_t)argc;
    *line = (struct convert_line){0};
    line->paths = calloc(count, sizeof *line->paths);
    line->include = calloc(count, sizeof *line->include);
    line->exclude = calloc(count, sizeof *line->exclude);
    line->renames = calloc(count, sizeof *line->renames);
    line->texts = calloc(count, sizeof *line->texts);
    return line->paths && line->include && line->exclude && line->renames && line->texts;
}

static void line_free(struct convert_line *line)
{
    for (size_t i = 0; line->texts && i < line->options.rename_count; i++)
        free(line->texts[i]);
    free((void *)line->paths);
    free((void *)line->include);
    free((void *)line->exclude);
    free(line->renames);
    free((void *)line->texts);
}

/* ---- while it runs ---- */

struct watch {
    bool shown; /* on a terminal */
    struct timespec begin;
};

static double seconds_since(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begin->tv_sec) + 1e-9 * (double)(now.tv_nsec - begin->tv_nsec);
}

static bool goes_on(void *context, const dcp_progress *progress)
{
    const struct watch *watch = context;
    double seconds = seconds_since(&watch->begin);
    if (watch->shown && progress->bytes_total > 0 && seconds > 0) {
        double done = (double)progress->bytes_done, total = (double)progress->bytes_total;
        fprintf(stderr, "\r%5.1f %%  %8.1f MiB/s  %6.0f s left ", 100 * done / total,
                done / seconds / 0x1p20, done > 0 ? (total - done) * seconds / done : 0);
    }
    return !interrupted;
}

static void print_report(const struct convert_line *line, const dcp_convert_report *report)
{
    if (line->json) {
        printf("{\"source\": \"%s\", \"source_text\": ", dcp_form_name(report->source));
        print_json_string(stdout, report->source_text);
        printf(", \"target\": \"%s\", \"tensors\": %" PRIu64 ", \"objects\": %" PRIu64
               ", \"bytes\": %" PRIu64 ", \"files\": %" PRIu64 ", \"left_out\": %" PRIu64
               ", \"tied\": %" PRIu64 ", \"dequantized\": %" PRIu64 "}\n",
               dcp_form_name(report->target), report->tensors, report->objects, report->bytes,
               report->files, report->left_out, report->tied, report->dequantized);
        return;
    }
    if (line->quiet)
        return;
    printf("%" PRIu64 " tensors (%" PRIu64 " bytes) and %" PRIu64 " objects", report->tensors,
           report->bytes, report->objects);
    if (report->left_out > 0)
        printf(", %" PRIu64 " left out", report->left_out);
    if (report->tied > 0)
        printf(", %" PRIu64 " tied", report->tied);
    if (report->dequantized > 0)
        printf(", %" PRIu64 " dequantized", report->dequantized);
    putchar('\n');
}

static int convert_line(struct convert_line *line)
{
    struct watch watch = {.shown = !line->quiet && isatty(STDERR_FILENO)};
    const char *target = line->paths[line->path_count - 1];
    const char *source = line->path_count == 2 ? line->paths[0] : ".";
    dcp_convert_options *options = &line->options;
    dcp_convert_report report;
    if (line->path_count > 2) {
        options->members = line->paths;
        options->member_count = line->path_count - 1;
    }
    options->storage = command_storage();
    if (options->form == DCP_FORM_DCP)
        options->target_storage = command_storage();
    if (dcp_convert_recognize(source, options, &report) != DCP_OK)
        return command_fail("convert");
    if (!line->quiet) {
        fprintf(stderr, "dcp convert: ");
        print_plain(stderr, line->paths[0]);
        fprintf(stderr, "%s is taken for ", line->path_count > 2 ? " ..." : "");
        print_plain(stderr, report.source_text);
        fputc('\n', stderr);
    }
    clock_gettime(CLOCK_MONOTONIC, &watch.begin);
    options->progress = goes_on;
    options->progress_context = &watch;
    dcp_status status = dcp_convert(source, target, options, &report);
    if (watch.shown)
        fprintf(stderr, "\r%*s\r", 50, "");
    if (status != DCP_OK)
        return command_fail("convert");
    print_report(line, &report);
    return EXIT_FINE;
}

/* By a signal that came while it ran, the command ends as others do, when all is cleaned up. What
 * was to be ignored (nohup) still is. */
static int convert_interruptibly(struct convert_line *line)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    struct sigaction before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    return convert_line(line);
}

int command_convert(int argc, char **argv)
{
    struct convert_line line;
    int status = EXIT_USAGE;
    if (!line_new(&line, argc)) {
        fputs("dcp convert: not enough memory\n", stderr);
        status = EXIT_FAULT;
    } else if (read_line(&line, argc, argv)) {
        status = convert_interruptibly(&line);
    }
    line_free(&line);
    return status;
}
