/* SPDX-License-Identifier: BSD-3-Clause */
/* What --help prints, from the tables of commands. */
#include <string.h>

#include "command.h"
#include "help.h"

enum { COLUMNS = 79, OPTION_COLUMN = 24 };

/* ---- text ---- */

/* Words of a line, broken to fit; the first one stands at column `at`, others begin at `indent`. */
static void print_wrapped(FILE *out, const char *text, size_t length, size_t at, size_t indent)
{
    size_t begin = 0;
    bool first = true;
    while (begin < length) {
        size_t end = begin;
        while (end < length && text[end] != ' ')
            end++;
        if (!first && at + 1 + (end - begin) > COLUMNS) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', out);
            at++;
        }
        fwrite(text + begin, 1, end - begin, out);
        at += end - begin;
        first = false;
        begin = end + 1;
    }
    fputc('\n', out);
}

/* Paragraphs, each a line of the source; lines that begin with a blank are kept as they are. */
static void print_text(FILE *out, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        if (*text == ' ' || length == 0)
            fprintf(out, "%.*s\n", (int)length, text);
        else
            print_wrapped(out, text, length, 0, 0);
        text += length + (text[length] == '\n');
    }
}

static void print_heading(FILE *out, const char *text)
{
    fputc('\n', out);
    print_color(out, COLOR_BOLD);
    fprintf(out, "%s:", text);
    print_color(out, COLOR_PLAIN);
    fputc('\n', out);
}

/* ---- options ---- */

static void print_option(FILE *out, const struct option *option)
{
    int at = option->letter ? fprintf(out, "  -%c, --%s", option->letter, option->name)
                            : fprintf(out, "      --%s", option->name);
    if (option->argument)
        at += fprintf(out, " %s", option->argument);
    if (at > OPTION_COLUMN - 2) {
        fputc('\n', out);
        at = 0;
    }
    fprintf(out, "%*s", OPTION_COLUMN - at, "");
    print_wrapped(out, option->help, strlen(option->help), OPTION_COLUMN, OPTION_COLUMN);
}

static void print_options(FILE *out, const struct option *table)
{
    for (; table && table->name; table++)
        print_option(out, table);
}

/* ---- exit statuses ---- */

const char *help_exit_text(const struct command *command, int status)
{
    static const char *const usual[] = {"Success.", "A failure.", "Wrong usage."};
    for (const struct exit_text *exit = command->exits; exit && exit->text; exit++)
        if (exit->status == status)
            return exit->text;
    return status <= EXIT_USAGE ? usual[status] : NULL;
}

const char help_checkpoints[] =
    "CHECKPOINT is a directory of PyTorch Distributed Checkpoint or of safetensors files, a .pt "
    "file "
    "of torch.save, or a training checkpoint of DeepSpeed, Megatron-Core or torch_checkpointing. "
    "Several directories are taken for parts of one checkpoint, as are the "
    "directories pp0, pp1 and so on of one, or pytorch_model_fsdp_0 and optimizer_0.\n";

static void print_exits(FILE *out, const struct command *command)
{
    print_heading(out, "Exit status");
    for (int status = 0; status <= EXIT_UNABLE; status++) {
        const char *text = help_exit_text(command, status);
        if (text) {
            fprintf(out, "  %d  ", status);
            print_wrapped(out, text, strlen(text), 5, 5);
        }
    }
}

void help_print(const struct command *command)
{
    FILE *out = stdout;
    fprintf(out, "usage: dcp %s %s%s\n\n", command->name, command->options ? "[OPTION...] " : "",
            command->operands);
    print_text(out, command->description);
    if (strstr(command->operands, "CHECKPOINT")) {
        fputc('\n', out);
        print_text(out, help_checkpoints);
    }
    print_heading(out, "Options");
    print_options(out, command->options);
    print_options(out, command_common_options);
    if (command->json) {
        print_heading(out, "With --json");
        print_text(out, command->json);
    }
    print_heading(out, "Examples");
    print_text(out, command->examples);
    print_exits(out, command);
}

void help_print_all(FILE *out)
{
    fputs("usage: dcp COMMAND [OPTION...] ...\n", out);
    print_heading(out, "Commands");
    for (const struct command *const *command = command_table; *command; command++) {
        fprintf(out, "  dcp %-12s ", (*command)->name);
        print_wrapped(out, (*command)->purpose, strlen((*command)->purpose), 19, 19);
    }
    fputc('\n', out);
    print_text(out, help_checkpoints);
    print_heading(out, "Options of all commands");
    print_options(out, command_common_options);
    fputs("\ndcp COMMAND --help has the options of a command, and examples.\n", out);
}
