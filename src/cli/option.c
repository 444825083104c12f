/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a command's line by its table of options: --name VALUE, --name=VALUE, -n VALUE, -nVALUE,
 * -abc; options anywhere between operands, up to "--". */
#include <stdlib.h>
#include <string.h>

#include "command.h"

struct kept_memory {
    struct kept_memory *next;
    max_align_t memory[];
};

void *option_keep(struct command_line *line, size_t size)
{
    struct kept_memory *kept = calloc(1, sizeof *kept + size);
    if (!kept) {
        line->no_memory = true;
        return NULL;
    }
    kept->next = line->kept;
    line->kept = kept;
    return kept->memory;
}

void option_free(struct command_line *line)
{
    while (line->kept) {
        struct kept_memory *kept = line->kept;
        line->kept = kept->next;
        free(kept);
    }
}

/* ---- messages ---- */

static void print_begin(const struct command_line *line)
{
    fputs("dcp", stderr);
    if (line->command->name)
        fprintf(stderr, " %s", line->command->name);
    fputs(": ", stderr);
}

static const char *summary_options(const struct command *command)
{
    return command->options ? "[OPTION...] " : "";
}

int option_usage(const struct command_line *line, const char *text)
{
    print_begin(line);
    fputs(text, stderr);
    fprintf(stderr, "; usage: dcp %s %s%s\n", line->command->name, summary_options(line->command),
            line->command->operands);
    return EXIT_USAGE;
}

/* Letters that differ, in their places or shifted by one: enough for slips of the hand. */
static size_t distance(const char *given, size_t length, const char *known)
{
    size_t same = 0, tail = 0, whole = strlen(known);
    while (same < length && same < whole && given[same] == known[same])
        same++;
    while (tail < length - same && tail < whole - same &&
           given[length - 1 - tail] == known[whole - 1 - tail])
        tail++;
    return (length > whole ? length : whole) - same - tail;
}

static void suggest(const struct option *table, const char *name, size_t length,
                    const char **nearest, size_t *least)
{
    for (; table && table->name; table++) {
        bool begins = length >= 2 && strncmp(table->name, name, length) == 0;
        size_t far = begins ? 0 : distance(name, length, table->name);
        if (far < *least) {
            *least = far;
            *nearest = table->name;
        }
    }
}

static int fail_unknown(const struct command_line *line, const char *given, const char *name,
                        size_t length)
{
    const char *nearest = NULL;
    size_t least = 3; /* further away is another word */
    suggest(line->command->options, name, length, &nearest, &least);
    suggest(command_common_options, name, length, &nearest, &least);
    print_begin(line);
    fputs("no such option: ", stderr);
    print_plain(stderr, given);
    if (nearest && length > 1)
        fprintf(stderr, "; did you mean --%s?\n", nearest);
    else
        fprintf(stderr, "; see dcp %s%s--help%s\n", line->command->name ? line->command->name : "",
                line->command->name ? " " : "",
                given[1] == '-' ? "" : "; a name that begins with - goes behind --");
    return EXIT_USAGE;
}

static int fail_value(const struct command_line *line, const struct option *option,
                      const char *value)
{
    const char *between = "it can be ";
    if (line->told)
        return EXIT_USAGE;
    print_begin(line);
    if (line->no_memory) {
        fputs("not enough memory\n", stderr);
        return EXIT_FAULT;
    }
    fprintf(stderr, "--%s cannot be ", option->name);
    print_plain(stderr, *value ? value : "empty");
    fputs(": ", stderr);
    if (option->words)
        for (const struct option_word *word = option->words; word->text; word++, between = ", ")
            fprintf(stderr, "%s%s", between, word->text);
    else if (option->expected)
        fprintf(stderr, "expected %s", option->expected);
    else if (option->most > 0)
        fprintf(stderr, "expected a number from %lld to %lld", (long long)option->least,
                (long long)option->most);
    else
        fprintf(stderr, "expected %s", option->argument ? option->argument : "nothing");
    fputc('\n', stderr);
    return EXIT_USAGE;
}

/* ---- options ---- */

static const struct option *find_name(const struct option *table, const char *name, size_t length)
{
    for (; table && table->name; table++)
        if (strlen(table->name) == length && memcmp(table->name, name, length) == 0)
            return table;
    return NULL;
}

static const struct option *find_letter(const struct option *table, char letter)
{
    for (; table && table->name; table++)
        if (table->letter == letter)
            return table;
    return NULL;
}

static int take(struct command_line *line, const struct option *option, const char *value)
{
    if (option->argument && !value) {
        print_begin(line);
        fprintf(stderr, "a value is missing behind --%s: --%s %s\n", option->name, option->name,
                option->argument);
        return EXIT_USAGE;
    }
    return option->set(line, option, value) ? EXIT_FINE
                                            : fail_value(line, option, value ? value : "");
}

/* argv[*at] is "--name" or "--name=value". */
static int take_long(struct command_line *line, int argc, char **argv, int *at)
{
    const char *name = argv[*at] + 2;
    size_t length = strcspn(name, "=");
    const struct option *option = find_name(line->command->options, name, length);
    if (!option)
        option = find_name(command_common_options, name, length);
    if (!option)
        return fail_unknown(line, argv[*at], name, length);
    if (name[length] == '=') {
        if (option->argument)
            return take(line, option, name + length + 1);
        print_begin(line);
        fprintf(stderr, "--%s takes no value\n", option->name);
        return EXIT_USAGE;
    }
    if (!option->argument)
        return take(line, option, NULL);
    *at += 1;
    return take(line, option, *at < argc ? argv[*at] : NULL);
}

/* argv[*at] is "-abc": options without values, or one whose value is what follows. */
static int take_letters(struct command_line *line, int argc, char **argv, int *at)
{
    for (const char *letter = argv[*at] + 1; *letter; letter++) {
        const struct option *option = find_letter(line->command->options, *letter);
        if (!option)
            option = find_letter(command_common_options, *letter);
        if (!option)
            return fail_unknown(line, argv[*at], letter, 1);
        if (option->argument) {
            if (letter[1])
                return take(line, option, letter + 1);
            *at += 1;
            return take(line, option, *at < argc ? argv[*at] : NULL);
        }
        int status = take(line, option, NULL);
        if (status != EXIT_FINE)
            return status;
    }
    return EXIT_FINE;
}

/* ---- lines ---- */

static int start(struct command_line *line, const struct command *command, int argc)
{
    *line = (struct command_line){.command = command, .argc = argc};
    line->options = option_keep(line, command->size);
    line->paths = option_keep(line, (size_t)argc * sizeof *line->paths);
    if (!line->options || !line->paths) {
        print_begin(line);
        fputs("not enough memory\n", stderr);
        return EXIT_FAULT;
    }
    if (command->defaults)
        memcpy(line->options, command->defaults, command->size);
    return EXIT_FINE;
}

static int check_operands(const struct command_line *line)
{
    const struct command *command = line->command;
    if (line->help || line->version)
        return EXIT_FINE;
    if (line->path_count < command->least)
        return option_usage(line, line->path_count == 0 ? "nothing to work on is given"
                                                        : "an argument is missing");
    if (command->most > 0 && line->path_count > command->most)
        return option_usage(line, "too many arguments");
    return EXIT_FINE;
}

int option_parse(struct command_line *line, const struct command *command, int argc, char **argv,
                 int *stop)
{
    bool operands_only = false;
    int status = start(line, command, argc), at = 1;
    for (; at < argc && status == EXIT_FINE; at++) {
        char *text = argv[at];
        bool is_option = !operands_only && text[0] == '-' && text[1];
        if (is_option && strcmp(text, "--") == 0)
            operands_only = true;
        else if (is_option)
            status = text[1] == '-' ? take_long(line, argc, argv, &at)
                                    : take_letters(line, argc, argv, &at);
        else if (stop)
            break;
        else
            line->paths[line->path_count++] = text;
    }
    if (stop)
        *stop = at;
    return status == EXIT_FINE && !stop ? check_operands(line) : status;
}
