/* SPDX-License-Identifier: BSD-3-Clause */
/* Removing old checkpoints of a run, and keeping some from that. */
#include <string.h>

#include "command.h"

struct arguments {
    dcp_run_keep keep;
    dcp_run_prune_options prune;
    int64_t younger;
    bool json;
    bool stopped; /* by a signal, before all that was to go had gone */
    size_t told;  /* so far */
};

/* Asked before each removal. */
static bool is_stopped(void *context)
{
    struct arguments *arguments = context;
    arguments->stopped = command_interrupted();
    return arguments->stopped;
}

static void print_object(const struct arguments *arguments, const char *name, const char *word,
                         const char *why)
{
    fputs(arguments->told > 0 ? ",\n {\"path\": " : "\n {\"path\": ", stdout);
    print_json_string(stdout, name);
    printf(", \"result\": \"%s\", \"why\": ", word);
    print_json_string(stdout, why);
    putchar('}');
}

static void print_verdict(void *context, const char *name, dcp_run_verdict verdict, const char *why)
{
    struct arguments *arguments = context;
    const char *word = verdict == DCP_RUN_KEPT    ? "keep"
                       : verdict == DCP_RUN_LEFT  ? "leave"
                       : arguments->prune.dry_run ? "would remove"
                                                  : "removed";
    if (arguments->json) {
        print_object(arguments, name, word, why);
    } else {
        printf("%-12s ", word);
        print_plain(stdout, name);
        fputs(": ", stdout);
        print_plain(stdout, why);
        putchar('\n');
    }
    arguments->told++;
}

static int run_prune(struct command_line *line)
{
    struct arguments *arguments = line->options;
    if (arguments->keep.best > 0 && !arguments->keep.metric)
        return option_usage(line, "--best needs --metric NAME");
    arguments->keep.younger_seconds = (double)arguments->younger;
    arguments->prune.storage = command_storage();
    arguments->prune.keep = &arguments->keep;
    arguments->prune.verdict = print_verdict;
    arguments->prune.verdict_context = arguments;
    arguments->prune.stopped = is_stopped;
    arguments->prune.stopped_context = arguments;
    command_catch_signals(true);
    if (arguments->json)
        putchar('[');
    dcp_status status = dcp_run_prune(line->paths[0], &arguments->prune, NULL);
    if (arguments->json)
        fputs("\n]\n", stdout);
    if (status == DCP_OK && arguments->stopped)
        return command_fail_with("prune", DCP_ERR_CANCELLED);
    return status == DCP_OK ? EXIT_FINE : command_fail("prune");
}

static const struct option prune_table[] = {
    {.name = "last",
     .argument = "N",
     .set = option_int,
     .field = offsetof(struct arguments, keep.last),
     .least = 1,
     .most = INT32_MAX,
     .help = "Keep the newest N."},
    {.name = "every",
     .argument = "N",
     .set = option_int64,
     .field = offsetof(struct arguments, keep.every_steps),
     .least = 1,
     .most = INT64_MAX,
     .help = "Keep those whose step is a multiple of N."},
    {.name = "best",
     .argument = "N",
     .set = option_int,
     .field = offsetof(struct arguments, keep.best),
     .least = 1,
     .most = INT32_MAX,
     .help = "Keep the best N by --metric."},
    {.name = "metric",
     .argument = "NAME",
     .set = option_text,
     .field = offsetof(struct arguments, keep.metric),
     .help = "A number among the caller's fields in metadata.json. Less of it is better."},
    {.name = "higher",
     .set = option_flag,
     .field = offsetof(struct arguments, keep.higher_is_better),
     .help = "More of the metric is better."},
    {.name = "younger",
     .argument = "SECONDS",
     .set = option_int64,
     .field = offsetof(struct arguments, younger),
     .least = 1,
     .most = INT32_MAX,
     .help = "Keep those that were saved less long ago."},
    {.name = "identity",
     .argument = "NAME",
     .set = option_text,
     .field = offsetof(struct arguments, prune.identity),
     .help = "Of the run, if the directory holds several."},
    {.name = "layout",
     .argument = "NAME",
     .set = option_text,
     .field = offsetof(struct arguments, prune.layout),
     .help = "Prune a run that another framework keeps, as dcp list --json names it."},
    {.name = "dry-run",
     .letter = 'n',
     .set = option_flag,
     .field = offsetof(struct arguments, prune.dry_run),
     .help = "Remove nothing, and print what would go."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = offsetof(struct arguments, json),
     .help = "What was done, as JSON."},
    {.name = NULL}};

static const struct arguments prune_defaults = {.keep = {.size_of = sizeof(dcp_run_keep)}};

const struct command command_prune = {
    .name = "prune",
    .operands = "RUN",
    .least = 1,
    .most = 1,
    .purpose = "remove old checkpoints of a run",
    .description =
        "Removes whole checkpoints of a run that dcp/run.h keeps and none of the rules does, and "
        "what its dead saves have left. The newest whole one and those that are pinned stay, and "
        "so does everything that is not this run's. Prints a line for each: keep, leave or "
        "removed, and why. A signal ends it before the next removal.\n"
        "\n"
        "A run of another framework is pruned only if --layout names it, as torchtitan, "
        "kempnerforge, megatron-bridge or transformers; no job should save there meanwhile. Then "
        "what a mark or a link names stays as well.\n",
    .options = prune_table,
    .size = sizeof(struct arguments),
    .defaults = &prune_defaults,
    .json = "An array of objects:\n"
            "  path    as it is below RUN\n"
            "  result  \"keep\", \"leave\", \"removed\", or with --dry-run \"would remove\"\n"
            "  why     a sentence\n",
    .examples = "  dcp prune --dry-run --last 3 --every 10000 run\n"
                "      What would go if the last three and every ten thousandth step are kept.\n"
                "  dcp prune --best 2 --metric loss run\n"
                "      Keeps the two with the least loss, and the newest.\n"
                "  dcp prune --dry-run --layout torchtitan --last 2 outputs\n"
                "      What would go of a run that torchtitan keeps.\n",
    .see_also = "pin list",
    .run = run_prune};

/* ---- dcp pin ---- */

struct pin_options {
    bool remove;
    bool json;
};

static void print_pin(const char *run, const char *name, bool pinned)
{
    fputs("{\"run\": ", stdout);
    print_json_string(stdout, run);
    fputs(", \"path\": ", stdout);
    print_json_string(stdout, name);
    printf(", \"pinned\": %s}\n", pinned ? "true" : "false");
}

static int run_pin(struct command_line *line)
{
    const struct pin_options *options = line->options;
    char *path = line->paths[0];
    if (!*path)
        return option_usage(line, "RUN/STEP is empty");
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0';
    char *slash = strrchr(path, '/');
    const char *run = !slash ? "." : slash == path ? "/" : path;
    const char *name = slash ? slash + 1 : path;
    if (slash)
        *slash = '\0';
    if (dcp_run_pin(run, name, !options->remove,
                    &(dcp_run_pin_options){.storage = command_storage()}) != DCP_OK)
        return command_fail("pin");
    if (options->json)
        print_pin(run, name, !options->remove);
    return EXIT_FINE;
}

static const struct option pin_table[] = {{.name = "remove",
                                           .set = option_flag,
                                           .field = offsetof(struct pin_options, remove),
                                           .help = "It may be pruned again."},
                                          {.name = "json",
                                           .letter = 'j',
                                           .set = option_flag,
                                           .field = offsetof(struct pin_options, json),
                                           .help = "What was done, as JSON."},
                                          {.name = NULL}};

const struct command command_pin = {
    .name = "pin",
    .operands = "RUN/STEP",
    .least = 1,
    .most = 1,
    .purpose = "keep a checkpoint of a run from being pruned",
    .description = "RUN/STEP is a checkpoint of a run that dcp/run.h keeps, as run/step_1000.\n",
    .options = pin_table,
    .size = sizeof(struct pin_options),
    .json = "An object, if it was done: run, path (the name of the checkpoint in it), and pinned, "
            "true or false.\n",
    .examples = "  dcp pin run/step_1000\n"
                "      No dcp prune removes it.\n"
                "  dcp pin --remove run/step_1000\n"
                "      It may go again.\n",
    .see_also = "prune list",
    .run = run_pin};
