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

struct widths {
    int step, path;
};

/* Longer paths push what is right of them away. */
static struct widths find_widths(const dcp_run_list *list)
{
    enum { PATH_COLUMNS = 60 };
    struct widths widths = {.step = 12, .path = 4};
    dcp_run_checkpoint checkpoint;
    for (size_t i = 0; i < dcp_run_list_count(list); i++)
        if (dcp_run_list_checkpoint(list, i, &checkpoint) == DCP_OK) {
            int columns = plain_columns(checkpoint.path);
            int digits = checkpoint.has_step ? snprintf(NULL, 0, "%" PRId64, checkpoint.step) : 0;
            if (columns <= PATH_COLUMNS && columns > widths.path)
                widths.path = columns;
            if (digits > widths.step)
                widths.step = digits;
        }
    return widths;
}

static void print_line(const dcp_run_checkpoint *checkpoint, const struct widths *widths,
                       int64_t now)
{
    if (checkpoint->has_step)
        printf("%*" PRId64, widths->step, checkpoint->step);
    else
        printf("%*s", widths->step, "-");
    putchar(' ');
    print_size(stdout, checkpoint->bytes, 10);
    putchar(' ');
    print_age(checkpoint->unix_time, now);
    printf("  %-15s ", dcp_run_kind_name(checkpoint->kind));
    print_plain(stdout, checkpoint->path);
    int padding = widths->path - plain_columns(checkpoint->path);
    printf("%*s  ", padding > 0 ? padding : 0, "");
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

/* What else is to be said of a directory without checkpoints: it may have been taken for a run. */
static const char *hint(const char *path, const dcp_run_list *list)
{
    const dcp_open_options options = {.storage = command_storage()};
    dcp_checkpoint *checkpoint = NULL;
    bool itself =
        dcp_run_list_count(list) == 0 && dcp_checkpoint_open(path, &options, &checkpoint) == DCP_OK;
    dcp_checkpoint_close(checkpoint);
    return itself ? "; it is a checkpoint itself, which dcp ls shows" : "";
}

static int list_plain(const char *run, const dcp_run_list *list)
{
    dcp_run_checkpoint checkpoint;
    const struct widths widths = find_widths(list);
    int64_t now = (int64_t)time(NULL);
    printf("%*s %10s %6s  %-15s %-*s  %s\n", widths.step, "step", "size", "age", "kind",
           widths.path, "path", "state");
    for (size_t i = 0; i < dcp_run_list_count(list); i++) {
        if (dcp_run_list_checkpoint(list, i, &checkpoint) != DCP_OK)
            return command_fail("list");
        print_line(&checkpoint, &widths, now);
    }
    print_plain(stdout, dcp_run_list_reason(list));
    puts(hint(run, list));
    return EXIT_FINE;
}

/* ---- both commands ---- */

struct list_options {
    bool json;
    bool higher;
    const char *metric;
};

static int run_list(struct command_line *line)
{
    const struct list_options *given = line->options;
    const dcp_run_list_options options = {
        .storage = command_storage(), .metric = given->metric, .higher_is_better = given->higher};
    dcp_run_list *list;
    dcp_status read = dcp_run_list_read(line->paths[0], &options, &list);
    if (read != DCP_OK)
        return command_fail_with("list", read);
    int status = given->json ? list_json(list) : list_plain(line->paths[0], list);
    dcp_run_list_free(list);
    return status;
}

static int print_latest(const char *run, const dcp_run_list *list, bool json)
{
    dcp_run_checkpoint checkpoint;
    size_t index;
    if (dcp_run_list_latest(list, &index) != DCP_OK ||
        dcp_run_list_checkpoint(list, index, &checkpoint) != DCP_OK) {
        char said[1024];
        snprintf(said, sizeof said, "%s", dcp_error_message());
        const char *more = hint(run, list);
        dcp_error_set(DCP_ERR_NOT_FOUND, "%s%s", said, more);
        return command_fail("latest");
    }
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

static int run_latest(struct command_line *line)
{
    const dcp_run_list_options options = {.storage = command_storage(), .latest_only = true};
    const struct list_options *given = line->options;
    const char *run = line->paths[0];
    dcp_run_list *list;
    dcp_status read = dcp_run_list_read(run, &options, &list);
    if (read != DCP_OK)
        return command_fail_with("latest", read);
    int status = print_latest(run, list, given->json);
    dcp_run_list_free(list);
    return status;
}

#define JSON_OPTION                                                                                \
    {                                                                                              \
        .name = "json", .letter = 'j', .set = option_flag,                                         \
        .field = offsetof(struct list_options, json), .help = "What is found, as JSON."            \
    }

static const struct option latest_table[] = {JSON_OPTION, {.name = NULL}};
static const struct option list_table[] = {
    {.name = "best",
     .argument = "METRIC",
     .set = option_text,
     .field = offsetof(struct list_options, metric),
     .help = "Mark the checkpoint with the least of this number, which is among the info in "
             "metadata.json."},
    {.name = "higher",
     .set = option_flag,
     .field = offsetof(struct list_options, higher),
     .help = "Mark the one with the most of it."},
    JSON_OPTION,
    {.name = NULL}};

static const char json_text[] =
    "An object for each checkpoint; dcp list prints an array of them.\n"
    "  path       as it is below RUN\n"
    "  step       a number, or null if none is known\n"
    "  kind       what it is made of: \"dcp\", \"dcp-stages\" (their union), \"dcp-part\",\n"
    "             \"mcore\", \"hf-fsdp\" (two DCP directories), \"automodel\", \"pt\",\n"
    "             \"pt-set\", \"megatron-legacy\", \"deepspeed\", \"orbax\", \"emergency\",\n"
    "             \"link\"\n"
    "  framework  whose layout it is, as dcp prune --layout takes it\n"
    "  complete   true or false; if false, \"why\" is a sentence\n"
    "  latest     whether it is the latest whole one\n"
    "  marked     whether a framework's mark names it\n"
    "  best       whether it is the best by --best\n"
    "  pinned     whether dcp pin keeps it\n"
    "  mirrored   to how many mirrors it was copied, as a note in the run says\n"
    "  bytes      of all its files\n"
    "  unix_time  when it was saved, in seconds, if that is known\n";

static const struct exit_text exits[] = {
    {EXIT_UNABLE, "It could not look at everything, for want of memory or open files."}, {0, NULL}};

static const struct exit_text latest_exits[] = {
    {EXIT_FAULT, "A failure, there is no whole checkpoint, or there are two of one step."},
    {EXIT_UNABLE, "It could not look at everything, for want of memory or open files."},
    {0, NULL}};

const struct command command_list = {
    .name = "list",
    .operands = "RUN",
    .least = 1,
    .most = 1,
    .purpose = "list the checkpoints of a training run",
    .description =
        "RUN is the directory that holds the steps of a training job, or the one above it. Each "
        "checkpoint is checked without reading its data: whole, or why not. The layouts of "
        "torchtitan, KempnerForge, Megatron-LM and Bridge, NeMo, Lightning, TorchTNT, "
        "Transformers, "
        "Accelerate, Composer, DeepSpeed, OLMo-core and others are known. The last line says which "
        "is the latest. Pinned ones, and those that were copied to a mirror, are marked.\n",
    .options = list_table,
    .size = sizeof(struct list_options),
    .json = json_text,
    .examples = "  dcp list run\n"
                "      All checkpoints, with step, size and age.\n"
                "  dcp list --json run | jq -r '.[] | select(.complete) | .path'\n"
                "      The whole ones.\n",
    .exits = exits,
    .see_also = "latest prune pin mirror ls",
    .run = run_list};

const struct command command_latest = {
    .name = "latest",
    .operands = "RUN",
    .least = 1,
    .most = 1,
    .purpose = "find the latest whole checkpoint of a run",
    .description = "Prints its path, and on standard error why it is this one. Marks of frameworks "
                   "are hints; what counts is what is there.\n",
    .options = latest_table,
    .size = sizeof(struct list_options),
    .json = json_text,
    .examples = "  dcp verify \"$(dcp latest run)\"\n"
                "      Checks the latest one.\n",
    .exits = latest_exits,
    .see_also = "list verify",
    .run = run_latest};
