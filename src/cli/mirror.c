/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying the checkpoints of a run that another place lacks. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

struct arguments {
    dcp_run_copy_options copy;
    const char *run, *destination;
    bool json;
    size_t told; /* so far */
};

/* "100", "64K", "10M" or "1G". */
static bool parse_rate(const char *text, uint64_t *rate)
{
    static const char units[] = "KMG";
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    *rate = (uint64_t)value << shift;
    return *text >= '0' && *text <= '9' && value > 0 && (!*end || (unit && !end[1])) &&
           *rate >> shift == value;
}

/* False: wrong usage. */
static bool read_arguments(int argc, char **argv, struct arguments *arguments)
{
    static const struct option names[] = {{"dry-run", no_argument, NULL, 'd'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"rate", required_argument, NULL, 'r'},
                                          {"identity", required_argument, NULL, 'i'},
                                          {NULL, 0, NULL, 0}};
    bool good = true;
    int name;
    opterr = 0;
    optind = 1;
    while (good && (name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (name == 'd')
            arguments->copy.dry_run = true;
        else if (name == 'j')
            arguments->json = true;
        else if (name == 'i')
            arguments->copy.identity = optarg;
        else
            good = name == 'r' && parse_rate(optarg, &arguments->copy.bytes_per_second);
    }
    if (!good || optind + 2 != argc)
        return false;
    arguments->run = argv[optind];
    arguments->destination = argv[optind + 1];
    return true;
}

static const char *word_of(const dcp_run_copied *copied, bool dry_run)
{
    return copied->verdict == DCP_RUN_COPY_THERE    ? "there"
           : copied->verdict == DCP_RUN_COPY_LEFT   ? "left"
           : copied->verdict == DCP_RUN_COPY_FAILED ? "failed"
           : dry_run                                ? "would copy"
                                                    : "copied";
}

static void print_object(struct arguments *arguments, const dcp_run_copied *copied)
{
    fputs(arguments->told > 0 ? ",\n {\"path\": " : "\n {\"path\": ", stdout);
    print_json_string(stdout, copied->name);
    printf(", \"step\": %" PRId64 ", \"result\": \"%s\"", copied->step,
           word_of(copied, arguments->copy.dry_run));
    if (*copied->why) {
        fputs(", \"why\": ", stdout);
        print_json_string(stdout, copied->why);
    }
    printf(", \"bytes\": %" PRIu64 ", \"kept_bytes\": %" PRIu64 ", \"seconds\": %.3f}",
           copied->bytes, copied->kept_bytes, copied->seconds);
}

static void tell(void *context, const dcp_run_copied *copied)
{
    struct arguments *arguments = context;
    if (arguments->json) {
        print_object(arguments, copied);
    } else {
        printf("%-11s ", word_of(copied, arguments->copy.dry_run));
        print_plain(stdout, copied->name);
        fputs(": ", stdout);
        if (*copied->why)
            print_plain(stdout, copied->why);
        else if (copied->verdict == DCP_RUN_COPY_THERE)
            printf("%" PRIu64 " bytes", copied->kept_bytes);
        else
            printf("%" PRIu64 " bytes, %" PRIu64 " were there already", copied->bytes,
                   copied->kept_bytes);
        putchar('\n');
    }
    fflush(stdout);
    arguments->told++;
}

int command_mirror(int argc, char **argv)
{
    struct arguments arguments = {.json = false};
    if (!read_arguments(argc, argv, &arguments))
        return EXIT_USAGE;
    arguments.copy.source = arguments.copy.destination = command_storage();
    arguments.copy.told = tell;
    arguments.copy.told_context = &arguments;
    if (arguments.json)
        putchar('[');
    dcp_status status = dcp_run_copy(arguments.run, arguments.destination, &arguments.copy, NULL);
    if (arguments.json)
        fputs("\n]\n", stdout);
    return status == DCP_OK ? EXIT_FINE : command_fail("mirror");
}
