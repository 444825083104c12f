/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp completion: what shells complete, from the tables of commands. */
#include <string.h>

#include "command.h"

/* What is completed behind an option: "words", or files. */
static void print_words(const struct option *option)
{
    const char *space = "";
    for (const struct option_word *word = option->words; word->text; word++, space = " ")
        printf("%s%s", space, word->text);
}

/* ---- bash ---- */

static void bash_options(const struct option *table)
{
    for (; table && table->name; table++) {
        printf(" --%s", table->name);
        if (table->letter)
            printf(" -%c", table->letter);
    }
}

static void bash_values(const struct option *table)
{
    for (; table && table->name; table++) {
        if (!table->words)
            continue;
        printf("        --%s) COMPREPLY=($(compgen -W \"", table->name);
        print_words(table);
        puts("\" -- \"$word\")); return ;;");
    }
}

static void print_bash(void)
{
    fputs("# Completion of dcp for bash; dcp completion bash prints it.\n"
          "_dcp() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} "
          "command=${COMP_WORDS[1]}\n"
          "    local commands=\"",
          stdout);
    const char *space = "";
    for (const struct command *const *command = command_table; *command; command++, space = " ")
        printf("%s%s", space, (*command)->name);
    fputs("\" options=\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        COMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$word\"))\n"
          "        return\n"
          "    fi\n"
          "    case $command in\n",
          stdout);
    for (const struct command *const *command = command_table; *command; command++) {
        printf("    %s)\n        options=\"", (*command)->name);
        bash_options(command_common_options);
        bash_options((*command)->options);
        puts("\"\n        case $before in");
        bash_values((*command)->options);
        puts("        esac\n        ;;");
    }
    fputs("    esac\n"
          "    case $word in\n"
          "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
          "    *) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
          "    esac\n"
          "}\n"
          "complete -F _dcp dcp\n",
          stdout);
}

/* ---- zsh ---- */

/* Text in single quotes, without what _arguments takes for its own. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void zsh_option(const struct option *option, const char *dashes, const char *name)
{
    printf("            '*%s%s[", dashes, name);
    zsh_text(option->help);
    putchar(']');
    if (option->argument) {
        putchar(':');
        zsh_text(option->argument);
        putchar(':');
        if (option->words) {
            putchar('(');
            print_words(option);
            putchar(')');
        } else {
            fputs("_files", stdout);
        }
    }
    puts("' \\");
}

static void zsh_options(const struct option *table)
{
    for (; table && table->name; table++) {
        const char letter[] = {table->letter, '\0'};
        zsh_option(table, "--", table->name);
        if (table->letter)
            zsh_option(table, "-", letter);
    }
}

static void print_zsh(void)
{
    fputs("#compdef dcp\n"
          "# Completion of dcp for zsh; dcp completion zsh prints it.\n"
          "_dcp() {\n"
          "    local -a commands\n"
          "    commands=(\n",
          stdout);
    for (const struct command *const *command = command_table; *command; command++) {
        printf("        '%s:", (*command)->name);
        zsh_text((*command)->purpose);
        puts("'");
    }
    fputs("    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    case $command in\n",
          stdout);
    for (const struct command *const *command = command_table; *command; command++) {
        printf("    %s)\n        _arguments -s -S \\\n", (*command)->name);
        zsh_options((*command)->options);
        zsh_options(command_common_options);
        fputs("            '*:argument:_files'\n        ;;\n", stdout);
    }
    fputs("    esac\n}\n_dcp \"$@\"\n", stdout);
}

/* ---- fish ---- */

static void fish_text(const char *text)
{
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

static void fish_options(const char *command, const struct option *table)
{
    for (; table && table->name; table++) {
        fputs("complete -c dcp", stdout);
        if (command)
            printf(" -n '__fish_seen_subcommand_from %s'", command);
        printf(" -l %s", table->name);
        if (table->letter)
            printf(" -s %c", table->letter);
        if (table->words) {
            fputs(" -x -a '", stdout);
            print_words(table);
            putchar('\'');
        } else if (table->argument) {
            fputs(" -r", stdout);
        }
        fputs(" -d ", stdout);
        fish_text(table->help);
        putchar('\n');
    }
}

static void print_fish(void)
{
    puts("# Completion of dcp for fish; dcp completion fish prints it.");
    fish_options(NULL, command_common_options);
    for (const struct command *const *command = command_table; *command; command++) {
        printf("complete -c dcp -n __fish_use_subcommand -f -a %s -d ", (*command)->name);
        fish_text((*command)->purpose);
        putchar('\n');
        fish_options((*command)->name, (*command)->options);
    }
}

static int run_completion(struct command_line *line)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(line->paths[0], shells[i].name) != 0)
            continue;
        shells[i].print();
        return EXIT_FINE;
    }
    return option_usage(line, "SHELL is bash, zsh or fish");
}

const struct command command_completion = {
    .name = "completion",
    .operands = "SHELL",
    .least = 1,
    .most = 1,
    .purpose = "print what completes command lines in a shell",
    .description =
        "Prints the completion of dcp for SHELL, which is bash, zsh or fish. An installed dcp has "
        "brought it to where shells find it.\n",
    .examples = "  dcp completion bash >~/.local/share/bash-completion/completions/dcp\n"
                "      For one user.\n"
                "  . <(dcp completion bash)\n"
                "      For this shell.\n",
    .see_also = "help",
    .run = run_completion};
