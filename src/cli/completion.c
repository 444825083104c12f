/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp completion: what shells complete, from the tables of commands. */
#include <string.h>

#include "command.h"

static void print_words(const struct option *option)
{
    const char *space = "";
    for (const struct option_word *word = option->words; word->text; word++, space = " ")
        printf("%s%s", space, word->text);
}

static bool takes_file(const struct option *option)
{
    return strncmp(option->argument, "FILE", 4) == 0 || strncmp(option->argument, "MODULE", 6) == 0;
}

static void print_commands(void)
{
    const char *space = "";
    for (const struct command *const *command = command_table; *command; command++, space = " ")
        printf("%s%s", space, (*command)->name);
}

/* What an operand can be, which is no file. */
static void print_operands(const struct command *command)
{
    if (strcmp(command->words, "COMMAND") == 0)
        print_commands();
    else
        fputs(command->words, stdout);
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

/* Behind options that take a value: its words, files, or nothing. */
static void bash_values(const struct option *table)
{
    for (; table && table->name; table++) {
        if (!table->argument)
            continue;
        printf("        --%s", table->name);
        if (table->letter)
            printf(" | -%c", table->letter);
        fputs(") ", stdout);
        if (table->words) {
            fputs("_dcp_words \"", stdout);
            print_words(table);
            fputs("\"; return ;;\n", stdout);
        } else {
            fputs(takes_file(table) ? "_dcp_files; return ;;\n" : "return ;;\n", stdout);
        }
    }
}

static void bash_command(const struct command *command)
{
    printf("    %s)\n        options=\"", command->name);
    bash_options(command_common_options);
    bash_options(command->options);
    fputs("\"", stdout);
    if (command->words) {
        fputs(" words=\"", stdout);
        print_operands(command);
        fputs("\"", stdout);
    }
    puts("\n        case $before in");
    bash_values(command_common_options);
    bash_values(command->options);
    puts("        esac\n        ;;");
}

static const char bash_begin[] =
    "# Completion of dcp for bash; dcp completion bash prints it.\n"
    "_dcp_words() { COMPREPLY=($(compgen -W \"$1\" -- \"$word\")); }\n"
    "_dcp_files() {\n"
    "    local IFS=$'\\n'\n"
    "    compopt -o default 2>/dev/null || COMPREPLY=($(compgen -f -- \"$word\"))\n"
    "}\n"
    "_dcp() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= at\n"
    "    local options=\" --help -h --storage --version -V\" words= only=\n"
    "    COMPREPLY=()\n"
    "    [ \"$word\" != = ] || word=\n" /* --name=value is three words */
    "    [ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    for ((at = 1; at < COMP_CWORD; at++)); do\n"
    "        case ${COMP_WORDS[at]} in\n"
    "        --) only=1 ;;\n"
    "        --storage) [ \"${COMP_WORDS[at+1]}\" = = ] && ((at += 2)) || ((at += 1)) ;;\n"
    "        -*) ;;\n"
    "        *) command=${COMP_WORDS[at]}; break ;;\n"
    "        esac\n"
    "    done\n"
    "    for ((; at < COMP_CWORD; at++)); do [ \"${COMP_WORDS[at]}\" != -- ] || only=1; done\n"
    "    case $command in\n"
    "    \"\") case $before in --storage) _dcp_files; return ;; esac\n"
    "        words=\"";

static void print_bash(void)
{
    fputs(bash_begin, stdout);
    print_commands();
    puts("\" ;;");
    for (const struct command *const *command = command_table; *command; command++)
        bash_command(*command);
    fputs("    esac\n"
          "    case $only$word in\n"
          "    -*) _dcp_words \"$options\" ;;\n"
          "    *) if [ \"$words\" ]; then _dcp_words \"$words\"; else _dcp_files; fi ;;\n"
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

/* end: what says that a value may follow in the same word. */
static void zsh_option(const struct option *option, const char *dashes, const char *name,
                       const char *end)
{
    printf("            '*%s%s%s[", dashes, name, option->argument ? end : "");
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
            fputs(takes_file(option) ? "_files" : " ", stdout);
        }
    }
    puts("' \\");
}

static void zsh_options(const struct option *table)
{
    for (; table && table->name; table++) {
        const char letter[] = {table->letter, '\0'};
        zsh_option(table, "--", table->name, "=");
        if (table->letter)
            zsh_option(table, "-", letter, "+");
    }
}

static void zsh_command(const struct command *command)
{
    printf("    %s)\n        _arguments -s -S \\\n", command->name);
    zsh_options(command->options);
    zsh_options(command_common_options);
    fputs("            '*:argument:", stdout);
    if (command->words) {
        putchar('(');
        print_operands(command);
        putchar(')');
    } else {
        fputs("_files", stdout);
    }
    fputs("'\n        ;;\n", stdout);
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
          "    local line state\n"
          "    _arguments -S \\\n",
          stdout);
    zsh_options(command_common_options);
    fputs("            '1: :->command' '*:: :->rest'\n"
          "    [[ $state != command ]] || _describe command commands\n"
          "    [[ $state = rest ]] || return\n"
          "    case $line[1] in\n",
          stdout);
    for (const struct command *const *command = command_table; *command; command++)
        zsh_command(*command);
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
            fputs(takes_file(table) ? " -r -F" : " -x", stdout);
        }
        fputs(" -d ", stdout);
        fish_text(table->help);
        putchar('\n');
    }
}

static void fish_operands(const struct command *command)
{
    printf("complete -c dcp -n '__fish_seen_subcommand_from %s' -f -a '", command->name);
    print_operands(command);
    puts("'");
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
        if ((*command)->words)
            fish_operands(*command);
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
    .words = "bash zsh fish",
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
