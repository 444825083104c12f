/* SPDX-License-Identifier: BSD-3-Clause */
/* Removing old checkpoints of a run, and keeping some from that. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

struct arguments {
    dcp_run_keep keep;
    dcp_run_prune_options prune;
    const char *run;
};

static bool parse_number(const char *text, int64_t most, int64_t *number)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    *number = value;
    return *text >= '0' && *text <= '9' && !*end && value > 0 && value <= most;
}

static bool take_rule(struct arguments *arguments, int name, const char *text)
{
    dcp_run_keep *keep = &arguments->keep;
    int64_t number;
    if (!parse_number(text, name == 'e' || name == 'y' ? INT64_MAX : INT32_MAX, &number))
        return false;
    if (name == 'l')
        keep->last = (int32_t)number;
    else if (name == 'e')
        keep->every_steps = number;
    else if (name == 'b')
        keep->best = (int32_t)number;
    else
        keep->younger_seconds = (double)number;
    return true;
}

/* False: wrong usage. */
static bool read_arguments(int argc, char **argv, struct arguments *arguments)
{
    static const struct option names[] = {{"last", required_argument, NULL, 'l'},
                                          {"every", required_argument, NULL, 'e'},
                                          {"best", required_argument, NULL, 'b'},
                                          {"younger", required_argument, NULL, 'y'},
                                          {"metric", required_argument, NULL, 'm'},
                                          {"higher", no_argument, NULL, 'h'},
                                          {"identity", required_argument, NULL, 'i'},
                                          {"dry-run", no_argument, NULL, 'd'},
                                          {NULL, 0, NULL, 0}};
    bool good = true;
    int name;
    opterr = 0;
    optind = 1;
    while (good && (name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (name == 'm')
            arguments->keep.metric = optarg;
        else if (name == 'h')
            arguments->keep.higher_is_better = true;
        else if (name == 'i')
            arguments->prune.identity = optarg;
        else if (name == 'd')
            arguments->prune.dry_run = true;
        else
            good = name != '?' && take_rule(arguments, name, optarg);
    }
    arguments->run = optind + 1 == argc ? argv[optind] : NULL;
    return good && arguments->run && !(arguments->keep.best > 0 && !arguments->keep.metric);
}

static void print_verdict(void *context, const char *name, dcp_run_verdict verdict, const char *why)
{
    const dcp_run_prune_options *options = context;
    const char *word = verdict == DCP_RUN_KEPT   ? "keep"
                       : verdict == DCP_RUN_LEFT ? "leave"
                       : options->dry_run        ? "would remove"
                                                 : "removed";
    printf("%-12s ", word);
    print_plain(stdout, name);
    fputs(": ", stdout);
    print_plain(stdout, why);
    putchar('\n');
}

int command_prune(int argc, char **argv)
{
    struct arguments arguments = {.keep = {.size_of = sizeof arguments.keep}};
    if (!read_arguments(argc, argv, &arguments))
        return EXIT_USAGE;
    arguments.prune.storage = command_storage();
    arguments.prune.keep = &arguments.keep;
    arguments.prune.verdict = print_verdict;
    arguments.prune.verdict_context = &arguments.prune;
    dcp_status status = dcp_run_prune(arguments.run, &arguments.prune, NULL);
    return status == DCP_OK ? EXIT_FINE : command_fail("prune");
}

int command_pin(int argc, char **argv)
{
    bool pinned = true;
    char *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--remove") == 0)
            pinned = false;
        else if (argv[i][0] == '-' || path)
            return EXIT_USAGE;
        else
            path = argv[i];
    }
    if (!path || !*path)
        return EXIT_USAGE;
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0';
    char *slash = strrchr(path, '/');
    const char *run = !slash ? "." : slash == path ? "/" : path;
    const char *name = slash ? slash + 1 : path;
    if (slash)
        *slash = '\0';
    return dcp_run_pin(run, name, pinned, &(dcp_run_pin_options){.storage = command_storage()}) ==
                   DCP_OK
               ? EXIT_FINE
               : command_fail("pin");
}
