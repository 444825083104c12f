/* SPDX-License-Identifier: BSD-3-Clause */
/* Manual pages, from the tables of commands. */
#include <ctype.h>
#include <string.h>

#include "help.h"

/* ---- text ---- */

static void print_escaped(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else if (text[i] == '\'')
            fputs("\\(aq", out);
        else
            fputc(text[i], out);
    }
}

static void print_upper(FILE *out, const char *text)
{
    for (; *text; text++)
        fputc(toupper((unsigned char)*text), out);
}

static bool is_operand(const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (word[i] < 'A' || word[i] > 'Z')
            return false;
    return length > 2;
}

/* Whether a word in capitals is one of the operands or values that the command names. */
static bool is_named(const struct command *command, const char *word, size_t length)
{
    char text[32];
    if (!command || !is_operand(word, length) || length >= sizeof text)
        return false;
    memcpy(text, word, length);
    text[length] = '\0';
    if (strstr(command->operands, text))
        return true;
    for (const struct option *option = command->options; option && option->name; option++)
        if (option->argument && strstr(option->argument, text))
            return true;
    return false;
}

/* A line of text; options in bold, and in italics what stands for something else. */
static void print_line(FILE *out, const struct command *command, const char *text, size_t length)
{
    if (length > 0 && (*text == '.' || *text == '\''))
        fputs("\\&", out);
    for (size_t at = 0; at < length;) {
        size_t end = at;
        bool option = text[at] == '-' && text[at + 1] == '-' && (at == 0 || text[at - 1] != '-');
        if (isalpha((unsigned char)text[at]) || option) {
            while (end < length &&
                   (isalpha((unsigned char)text[end]) || (option && text[end] == '-')))
                end++;
        } else {
            end++;
        }
        bool named = !option && is_named(command, text + at, end - at);
        if (option || named)
            fputs(option ? "\\fB" : "\\fI", out);
        print_escaped(out, text + at, end - at);
        if (option || named)
            fputs("\\fR", out);
        at = end;
    }
    fputc('\n', out);
}

static void print_text(FILE *out, const struct command *command, const char *text)
{
    bool kept = false;
    while (*text) {
        size_t length = strcspn(text, "\n");
        bool keep = *text == ' ';
        if (keep != kept)
            fputs(keep ? ".nf\n" : ".fi\n", out);
        kept = keep;
        if (length == 0)
            fputs(".PP\n", out);
        else
            print_line(out, keep ? NULL : command, text, length);
        text += length + (text[length] == '\n');
    }
    if (kept)
        fputs(".fi\n", out);
}

/* ---- sections ---- */

static void print_option(FILE *out, const struct command *command, const struct option *option)
{
    fputs(".TP\n\\fB", out);
    if (option->letter)
        fprintf(out, "\\-%c\\fR, \\fB", option->letter);
    fputs("\\-\\-", out);
    print_escaped(out, option->name, strlen(option->name));
    fputs("\\fR", out);
    if (option->argument) {
        fputs(" \\fI", out);
        print_escaped(out, option->argument, strlen(option->argument));
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_line(out, command, option->help, strlen(option->help));
}

static void print_options(FILE *out, const struct command *command, const struct option *table)
{
    for (; table && table->name; table++)
        print_option(out, command, table);
}

static void print_exits(FILE *out, const struct command *command)
{
    fputs(".SH EXIT STATUS\n", out);
    for (int status = 0; status <= EXIT_UNABLE; status++) {
        const char *text = help_exit_text(command, status);
        if (!text)
            continue;
        fprintf(out, ".TP\n.B %d\n", status);
        print_line(out, command, text, strlen(text));
    }
}

static void print_see_also(FILE *out, const char *names)
{
    fputs(".SH SEE ALSO\n.BR dcp (1)", out);
    while (names && *names) {
        size_t length = strcspn(names, " ");
        fprintf(out, ",\n.BR dcp\\-%.*s (1)", (int)length, names);
        names += length + (names[length] == ' ');
    }
    fputc('\n', out);
}

static void page_of_command(FILE *out, const struct command *command)
{
    fputs(".TH DCP\\-", out);
    print_upper(out, command->name);
    fprintf(out,
            " 1 \"\" \"dcp\" \"User Commands\"\n.SH NAME\ndcp\\-%s \\- %s\n"
            ".SH SYNOPSIS\n.B dcp %s\n",
            command->name, command->purpose, command->name);
    print_line(out, command, command->operands, strlen(command->operands));
    fputs(".SH DESCRIPTION\n", out);
    print_text(out, command, command->description);
    if (strstr(command->operands, "CHECKPOINT")) {
        fputs(".PP\n", out);
        print_text(out, command, help_checkpoints);
    }
    fputs(".SH OPTIONS\n", out);
    print_options(out, command, command->options);
    print_options(out, command, command_common_options);
    if (command->json) {
        fputs(".SH JSON\n", out);
        print_text(out, command, command->json);
    }
    fputs(".SH EXAMPLES\n", out);
    print_text(out, command, command->examples);
    print_exits(out, command);
    print_see_also(out, command->see_also);
}

static void page_of_all(FILE *out)
{
    fputs(".TH DCP 1 \"\" \"dcp\" \"User Commands\"\n.SH NAME\n"
          "dcp \\- work with checkpoints of training jobs\n.SH SYNOPSIS\n"
          ".B dcp\n.I COMMAND\n.RI [ OPTION ...]\n\\&...\n.br\n"
          ".B dcp\n.I COMMAND\n.B \\-\\-help\n.SH DESCRIPTION\n.B dcp\n"
          "looks into, checks, compares and converts checkpoints, and keeps order among those of a "
          "run. No Python is needed, and no more memory than for a part of a tensor.\n",
          out);
    for (const struct command *const *command = command_table; *command; command++)
        fprintf(out, ".TP\n.BR dcp\\-%s (1)\n%s\n", (*command)->name, (*command)->purpose);
    fputs(".PP\n", out);
    print_text(out, NULL, help_checkpoints);
    fputs(".PP\nOptions may stand anywhere; what follows \\fB\\-\\-\\fR is none. A value stands "
          "behind its option or\nbehind an equals sign.\n.SH OPTIONS\n",
          out);
    print_options(out, NULL, command_common_options);
    fputs(".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nIf it is set and not empty, nothing is printed in "
          "colours. There are none either where the output is no terminal.\n"
          ".SH EXIT STATUS\n.TP\n.B 0\nSuccess.\n.TP\n.B 1\nA failure, or something that was "
          "looked for: a fault, a difference.\n.TP\n.B 2\nWrong usage.\n.TP\n.B 3\nIt could not "
          "be found out or done, for want of memory or open files.\n.PP\nA command that SIGINT, "
          "SIGTERM "
          "or SIGHUP ends removes what it has made, and dies of the signal.\n.SH JSON\nWhat "
          "\\fB\\-\\-json\\fR prints is JSON also where names are no UTF-8 (U+FFFD stands for such "
          "bytes), and after a failure that comes late. Before anything is known, standard output "
          "stays empty, and the message of the failure is on standard error.\n.SH SEE ALSO\n",
          out);
    const char *comma = "";
    for (const struct command *const *command = command_table; *command; command++, comma = ",\n")
        fprintf(out, "%s.BR dcp\\-%s (1)", comma, (*command)->name);
    fputc('\n', out);
}

void help_page(FILE *out, const struct command *command)
{
    if (command)
        page_of_command(out, command);
    else
        page_of_all(out);
}
