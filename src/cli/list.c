/* SPDX-License-Identifier: BSD-3-Clause */
/* The checkpoints of a run: all of them, or the latest. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "command.h"

/* ---- for programs ---- */

static void print_text(const char *key, const char *value)
{
    printf(", \"%s\": ", key);
    print_json_string(stdout, value);
}

static void print_flag(const char *key, bool value)
{
    printf(", \"%s\": %s", key, value ? "true" : "false");
}

static void print_object(const dcp_run_checkpoint *checkpoint)
{
    fputs("{\"path\": ", stdout);
    print_json_string(stdout, checkpoint->path);
    if (checkpoint->has_step)
        printf(", \"step\": %" PRId64, checkpoint->step);
    else
        fputs(", \"step\": null", stdout);
    print_text("kind", dcp_run_kind_name(checkpoint->kind));
    print_text("framework", checkpoint->framework);
    print_flag("complete", checkpoint->complete);
    if (!checkpoint->complete)
        print_text("why", checkpoint->why);
    print_flag("latest", checkpoint->latest);
    print_flag("marked", checkpoint->marked);
    print_flag("best", checkpoint->best);
    print_flag("pinned", checkpoint->pinned);
    printf(", \"mirrored\": %" PRIu32, checkpoint->mirrored);
    printf(", \"bytes\": %" PRIu64, checkpoint->bytes);
    if (checkpoint->unix_time > 0)
        printf(", \"unix_time\": %" PRId64, checkpoint->unix_time);
    putchar('}');
}

static int list_json(const dcp_run_list *list)
{
    dcp_run_checkpoint checkpoint;
    putchar('[');
    for (size_t i = 0; i < dcp_run_list_count(list); i++) {
        if (dcp_run_list_checkpoint(list, i, &checkpoint) != DCP_OK)
            return command_fail("list");
        fputs(i > 0 ? ",\n " : "\n ", stdout);
        print_object(&checkpoint);
    }
    fputs("\n]\n", stdout);
    return EXIT_FINE;
}

/* ---- for people ---- */

static void print_bytes(uint64_t bytes)
{
    static const char units[] = "KMGTPE";
    double value = (double)bytes;
    int unit = -1;
    while (value >= 1000 && units[unit + 1]) {
        value /= 1024;
        unit++;
    }
    if (unit < 0)
        printf("%8" PRIu64, bytes);
    else
        printf("%7.1f%c", value, units[unit]);
}

/* How long ago, in one unit; "-": unknown, or not yet. */
static void print_age(int64_t unix_time, int64_t now)
{
    static const struct {
        int64_t seconds;
        char letter;
    } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
    int64_t age = now - unix_time;
    size_t unit = 0;
    if (unix_time <= 0 || age < 0) {
        printf("%6s", "-");
        return;
    }
    while (unit < 3 && age < 2 * units[unit].seconds)
        unit++;
    printf("%5" PRId64 "%c", age / units[unit].seconds, units[unit].letter);
}

/* Up to where the words on the right begin. */
static int widest_path(const dcp_run_list *list)
{
    enum { PATH_COLUMNS = 60 };
    dcp_run_checkpoint checkpoint;
    int widest = 4;
    for (size_t i = 0; i < dcp_run_list_count(list); i++)
        if (dcp_run_list_checkpoint(list, i, &checkpoint) == DCP_OK) {
            size_t length = strlen(checkpoint.path);
            if (length <= PATH_COLUMNS && (int)length > widest)
                widest = (int)length;
        }
    return widest;
}

static void print_line(const dcp_run_checkpoint *checkpoint, int width, int64_t now)
{
    if (checkpoint->has_step)
        printf("%12" PRId64, checkpoint->step);
    else
        printf("%12s", "-");
    putchar(' ');
    print_bytes(checkpoint->bytes);
    putchar(' ');
    print_age(checkpoint->unix_time, now);
    printf("  %-15s ", dcp_run_kind_name(checkpoint->kind));
    print_plain(stdout, checkpoint->path);
    size_t length = strlen(checkpoint->path);
    printf("%*s  ", length < (size_t)width ? width - (int)length : 0, "");
    if (checkpoint->complete)
        fputs("whole", stdout);
    else
        print_plain(stdout, checkpoint->why);
    if (checkpoint->latest)
        fputs(" [latest]", stdout);
    if (checkpoint->marked)
        fputs(" [marked]", stdout);
    if (checkpoint->best)
        fputs(" [best]", stdout);
    if (checkpoint->pinned)
        fputs(" [pinned]", stdout);
    if (checkpoint->mirrored > 0)
        fputs(" [mirrored]", stdout);
    putchar('\n');
}

static int list_plain(const dcp_run_list *list)
{
    dcp_run_checkpoint checkpoint;
    int width = widest_path(list);
    int64_t now = (int64_t)time(NULL);
    printf("%12s %8s %6s  %-15s %-*s  %s\n", "step", "size", "age", "kind", width, "path", "state");
    for (size_t i = 0; i < dcp_run_list_count(list); i++) {
        if (dcp_run_list_checkpoint(list, i, &checkpoint) != DCP_OK)
            return command_fail("list");
        print_line(&checkpoint, width, now);
    }
    print_plain(stdout, dcp_run_list_reason(list));
    putchar('\n');
    return EXIT_FINE;
}

/* ---- both commands ---- */

/* False: wrong usage. options: NULL: only RUN and --json are known. */
static bool read_arguments(int argc, char **argv, const char **run, bool *json,
                           dcp_run_list_options *options)
{
    *run = NULL;
    *json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            *json = true;
        else if (options && strcmp(argv[i], "--best") == 0 && i + 1 < argc)
            options->metric = argv[++i];
        else if (options && strcmp(argv[i], "--higher") == 0)
            options->higher_is_better = true;
        else if (argv[i][0] == '-' || *run)
            return false;
        else
            *run = argv[i];
    }
    return *run != NULL;
}

/* Nothing can be said of the run for want of memory or open files: another status. */
static int fail(const char *command, dcp_status status)
{
    command_fail(command);
    return status == DCP_ERR_NO_MEMORY || status == DCP_ERR_FILE_LIMIT ? EXIT_UNABLE : EXIT_FAULT;
}

int command_list(int argc, char **argv)
{
    dcp_run_list_options options = {.storage = command_storage()};
    dcp_run_list *list;
    const char *run;
    bool json;
    if (!read_arguments(argc, argv, &run, &json, &options))
        return EXIT_USAGE;
    dcp_status read = dcp_run_list_read(run, &options, &list);
    if (read != DCP_OK)
        return fail("list", read);
    int status = json ? list_json(list) : list_plain(list);
    dcp_run_list_free(list);
    return status;
}

static int print_latest(const char *run, const dcp_run_list *list, bool json)
{
    dcp_run_checkpoint checkpoint;
    size_t index;
    if (dcp_run_list_latest(list, &index) != DCP_OK ||
        dcp_run_list_checkpoint(list, index, &checkpoint) != DCP_OK)
        return command_fail("latest");
    if (json) {
        print_object(&checkpoint);
        putchar('\n');
        return EXIT_FINE;
    }
    printf("%s%s%s\n", run, run[strlen(run) - 1] == '/' ? "" : "/", checkpoint.path);
    fputs("dcp latest: ", stderr);
    print_plain(stderr, dcp_run_list_reason(list));
    fputc('\n', stderr);
    return EXIT_FINE;
}

int command_latest(int argc, char **argv)
{
    const dcp_run_list_options options = {.storage = command_storage(), .latest_only = true};
    dcp_run_list *list;
    const char *run;
    bool json;
    if (!read_arguments(argc, argv, &run, &json, NULL))
        return EXIT_USAGE;
    dcp_status read = dcp_run_list_read(run, &options, &list);
    if (read != DCP_OK)
        return fail("latest", read);
    int status = print_latest(run, list, json);
    dcp_run_list_free(list);
    return status;
}
