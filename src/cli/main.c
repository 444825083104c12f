/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "command.h"
#include "help.h"

/* A command is a line. */
/* clang-format off */
const struct command *const command_table[] = {
    &command_ls,
    &command_cat,
    &command_stat,
    &command_diff,
    &command_convert,
    &command_verify,
    &command_repair,
    &command_list,
    &command_latest,
    &command_prune,
    &command_pin,
    &command_mirror,
    &command_watch,
    &command_report,
    &command_bench,
    &command_help,
    &command_completion,
    NULL,
};
/* clang-format on */

static bool ask_for_help(struct command_line *line, const struct option *option, const char *value)
{
    (void)option, (void)value;
    line->help = true;
    return true;
}

static bool ask_for_version(struct command_line *line, const struct option *option,
                            const char *value)
{
    (void)option, (void)value;
    line->version = true;
    return true;
}

const struct option command_common_options[] = {
    {.name = "help", .letter = 'h', .set = ask_for_help, .help = "Print this help."},
    {.name = "storage",
     .argument = "MODULE[,ARGUMENT]",
     .set = command_use_storage,
     .help = "Work in the storage that MODULE, a shared object, brings: it exports the function "
             "dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a "
             "trusted author is safe to load: its code is run."},
    {.name = "version", .letter = 'V', .set = ask_for_version, .help = "Print the version."},
    {.name = NULL}};

const struct command *command_find(const char *name)
{
    for (const struct command *const *command = command_table; *command; command++)
        if (strcmp((*command)->name, name) == 0)
            return *command;
    fputs("dcp: no such command: ", stderr);
    print_plain(stderr, name);
    fputs("; see dcp --help\n", stderr);
    return NULL;
}

/* ---- dcp help ---- */

struct help_options {
    bool man;
};

static int run_help(struct command_line *line)
{
    const struct help_options *options = line->options;
    const struct command *command = NULL;
    if (line->path_count > 0) {
        command = command_find(line->paths[0]);
        if (!command)
            return EXIT_USAGE;
    }
    if (options->man)
        help_page(stdout, command);
    else if (command)
        help_print(command);
    else
        help_print_all(stdout);
    return EXIT_FINE;
}

static const struct option help_table[] = {{.name = "man",
                                            .set = option_flag,
                                            .field = offsetof(struct help_options, man),
                                            .help = "The manual page, as roff."},
                                           {.name = NULL}};

const struct command command_help = {
    .name = "help",
    .operands = "[COMMAND]",
    .words = "COMMAND",
    .most = 1,
    .purpose = "print the commands, or the options of one",
    .description = "Prints what dcp --help prints, or of a COMMAND what its --help prints.\n",
    .options = help_table,
    .size = sizeof(struct help_options),
    .examples = "  dcp help ls\n"
                "      The options of dcp ls, and examples.\n"
                "  dcp help --man ls | man -l -\n"
                "      Its manual page, where it is not installed.\n",
    .see_also = "completion",
    .run = run_help};

/* ---- the whole command ---- */

static int print_version(void)
{
    printf("dcp %s\n", dcp_version_string());
    return command_finish("--version", EXIT_FINE);
}

static int run_command(const struct command *command, int argc, char **argv)
{
    struct command_line line;
    int status = option_parse(&line, command, argc, argv, NULL);
    if (status == EXIT_FINE && line.help)
        help_print(command);
    else if (status == EXIT_FINE && line.version)
        status = print_version();
    else if (status == EXIT_FINE)
        status = command->run(&line);
    option_free(&line);
    status = command_finish(command->name, status);
    if (status == EXIT_INTERRUPTED)
        command_die();
    return status;
}

int main(int argc, char **argv)
{
    static const struct command none = {0}; /* only the options that all commands take */
    struct command_line line;
    int at = argc, status = option_parse(&line, &none, argc, argv, &at);
    bool version = line.version, help = line.help;
    option_free(&line);
    if (status != EXIT_FINE)
        return status;
    if (version)
        return print_version();
    if (help || at >= argc)
        help_print_all(help ? stdout : stderr);
    if (help)
        return command_finish("--help", EXIT_FINE);
    const struct command *command = at < argc ? command_find(argv[at]) : NULL;
    return command ? run_command(command, argc - at, argv + at) : EXIT_USAGE;
}
