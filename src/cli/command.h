/* SPDX-License-Identifier: BSD-3-Clause */
/* The sub-commands of dcp. A command is one `struct command`, which main.c lists; from it come the
 * parsing of its line, --help, its manual page and the completions of shells. A new option is a
 * row of the command's table. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stddef.h>
#include <stdio.h>

#include "dcp.h"

/* EXIT_UNABLE: what was asked could not be found out, for lack of memory or open files, say.
 * EXIT_INTERRUPTED is what a command returns that a signal has ended; the process ends by it. */
enum exit_status {
    EXIT_FINE = 0,
    EXIT_FAULT = 1,
    EXIT_USAGE = 2,
    EXIT_UNABLE = 3,
    EXIT_INTERRUPTED = 128
};

struct command_line;
struct option;

/* Takes a value, NULL for an option without one. False: it cannot be that. */
typedef bool option_setter(struct command_line *line, const struct option *option,
                           const char *value);

/* A word that an option may be, and the value that stands for it. */
struct option_word {
    const char *text; /* NULL ends a list */
    int value;
};

struct option {
    const char *name;     /* without "--"; NULL ends a table */
    char letter;          /* as in -j; 0: none */
    const char *argument; /* "N", say; NULL: takes no value */
    const char *help;     /* a sentence or two, without line breaks */
    option_setter *set;
    size_t field;         /* of the command's options, for the setters below: offsetof() */
    const char *expected; /* what a value can be, for the message that it is none */
    int64_t least, most;  /* of option_int and option_int64, both inclusive */
    const struct option_word *words; /* of option_choice */
};

/* A status other than 0, 1 and 2, or one of these with another meaning. NULL ends a list. */
struct exit_text {
    int status;
    const char *text;
};

struct command {
    const char *name;
    const char *operands;    /* "CHECKPOINT... DST" */
    int least, most;         /* number of operands; most 0: any number */
    const char *words;       /* that an operand can be; "COMMAND": names of commands; NULL: files */
    const char *purpose;     /* half a line, without a capital or a full stop */
    const char *description; /* paragraphs; lines that begin with a blank are kept as they are */
    const struct option *options;  /* NULL: none of its own */
    size_t size;                   /* of the struct that they fill in */
    const void *defaults;          /* of that struct; NULL: all zero */
    const char *json;              /* what --json prints; lines as in description; NULL: none */
    const char *examples;          /* two lines each: a command, and what it does */
    const struct exit_text *exits; /* NULL: 0, 1 and 2 as usual */
    const char *see_also;          /* "ls cat" */
    int (*run)(struct command_line *line);
};

/* What was given to a command. */
struct command_line {
    const struct command *command;
    void *options;            /* command->size bytes */
    char **paths;             /* operands, in their order */
    int path_count;           /* of these */
    int argc;                 /* most values that there can be */
    bool help, version;       /* asked for */
    bool no_memory;           /* why a setter failed */
    bool told;                /* a setter that failed has said why */
    struct kept_memory *kept; /* option_keep() */
};

/* A list of values, in the order in which they were given. */
struct text_list {
    const char **items;
    size_t count;
};

/* A command is a line. */
/* clang-format off */
extern const struct command command_bench;
extern const struct command command_cat;
extern const struct command command_completion;
extern const struct command command_convert;
extern const struct command command_diff;
extern const struct command command_help;
extern const struct command command_latest;
extern const struct command command_list;
extern const struct command command_ls;
extern const struct command command_mirror;
extern const struct command command_pin;
extern const struct command command_prune;
extern const struct command command_repair;
extern const struct command command_report;
extern const struct command command_stat;
extern const struct command command_verify;
extern const struct command command_watch;
/* clang-format on */

/* All commands, as --help lists them, NULL behind the last; and the options that all take. */
extern const struct command *const command_table[];
extern const struct option command_common_options[];
/* NULL, after a message, if there is none of that name. */
const struct command *command_find(const char *name);

/* ---- options (option.c, option_value.c) ---- */

/* Reads a line; argv[0] is not looked at. At `stop`, it ends before the first operand, whose
 * position is *at. Returns EXIT_FINE, or EXIT_USAGE or EXIT_FAULT after a message. In any case the
 * line is to be given back. */
int option_parse(struct command_line *line, const struct command *command, int argc, char **argv,
                 int *stop);
void option_free(struct command_line *line);
/* Zeroed memory that lives as long as the line; NULL, and line->no_memory, if there is none. */
void *option_keep(struct command_line *line, size_t size);
/* Something is wrong with the line: prints "dcp NAME: TEXT; usage: ..." and returns EXIT_USAGE. */
int option_usage(const struct command_line *line, const char *text);

option_setter option_flag;   /* bool */
option_setter option_text;   /* const char * */
option_setter option_list;   /* struct text_list */
option_setter option_int;    /* int32_t */
option_setter option_int64;  /* int64_t */
option_setter option_bytes;  /* uint64_t: 64K, 1.5G, 5GB; without a B, units are powers of 1024 */
option_setter option_real;   /* double, not negative */
option_setter option_choice; /* int or an enum, by option->words */
option_setter option_dtype;  /* dcp_dtype, by its name or a usual short one */

/* ---- help (help.c, help_page.c, completion.c) ---- */

void help_print(const struct command *command);
void help_print_all(FILE *out);

/* ---- the library (command_storage.c) ---- */

/* Where checkpoints are: the storage that --storage names; NULL: the file system. */
const dcp_storage *command_storage(void);
/* The row of --take, for commands that open checkpoints with command_open() or by themselves; and
 * what it says. */
#define COMMAND_TAKE_OPTION                                                                        \
    {                                                                                              \
        .name = "take", .argument = "WHAT", .set = command_set_take, .words = command_take_words,  \
        .help =                                                                                    \
            "Of a training checkpoint of DeepSpeed, Megatron-Core or torch_checkpointing: model, " \
            "the weights as trained, under the model's names; masters, the optimizer's fp32 "      \
            "weights under the same names; or all."                                                \
    }
extern const struct option_word command_take_words[];
bool command_set_take(struct command_line *line, const struct option *option, const char *value);
dcp_take command_take(void);
/* --storage FILE[,ARGUMENT]: a module of dcp/storage.h. */
option_setter command_use_storage;
/* The status, of a checkpoint that was to be opened. If the path is a run's, the message says where
 * the latest one is. */
dcp_status command_explain(const char *path, dcp_status status);
/* Opens one checkpoint, or several as their union. in_order: its tensors are read whole, in order
 * (dcp_open_options::check_last). */
dcp_status command_open(char **paths, int count, bool in_order, dcp_checkpoint **checkpoint);

/* ---- messages and output (print.c) ---- */

/* Prints "dcp NAME: MESSAGE" on standard error, with the library's message of the last failure.
 * Returns EXIT_FAULT. */
int command_fail(const char *command);
/* The same; EXIT_UNABLE for want of memory or open files, EXIT_INTERRUPTED after a signal. */
int command_fail_with(const char *command, dcp_status status);
/* Flushes and checks standard output: a full disk is a failure with a message, a closed pipe one
 * without. */
int command_finish(const char *command, int status);
/* Bytes of the UTF-8 sequence at the beginning of a text; 0: it is none. */
size_t utf8_sequence(const char *text);
/* A JSON string with quotes, in UTF-8; U+FFFD stands for a byte that is none. */
void print_json_string(FILE *out, const char *text);
/* A fault as an object, for a dcp_fault_function: file, offset, name, fault. */
void print_json_fault(FILE *out, const char *file, uint64_t offset, const char *name,
                      const char *fault);
/* Whether a text begins with a character that is UTF-8 and commands no terminal; *length: its
 * bytes. */
bool is_visible(const char *text, size_t *length);
/* The same text, with \xNN for the bytes of all others. */
void print_plain(FILE *out, const char *text);
/* The first `size` bytes of it, which end where a character does. */
void print_plain_part(FILE *out, const char *text, size_t size);
/* Columns that it takes; wide characters count as one. */
int plain_columns(const char *text);
/* "1.5 GiB", right-aligned in so many columns at least. */
void print_size(FILE *out, uint64_t bytes, int width);
/* "1 tensor, 128 bytes, 2 objects", without a line break. */
void print_sum(uint64_t tensors, uint64_t bytes, uint64_t objects);
/* "s" unless it is one. */
const char *plural(uint64_t count);

/* Colours, where the stream is a terminal that has them and NO_COLOR is not set. */
enum color { COLOR_PLAIN, COLOR_BOLD, COLOR_DIM, COLOR_RED, COLOR_GREEN, COLOR_YELLOW };
void print_color(FILE *out, enum color color);

/* ---- long work (progress_line.c) ---- */

/* From now on SIGINT, SIGTERM and SIGHUP end the command where it looks, after it has cleaned up.
 * Signals that were ignored (nohup) stay so. writes: also if they come again; a command that only
 * reads is ended by the second one at once. */
void command_catch_signals(bool writes);
bool command_interrupted(void);
/* The same, for options that ask whether to stop; the context is not looked at. */
bool command_stopped(void *context);
/* Ends the process by the signal that was caught, so that a shell's loop ends as well. */
void command_die(void);

/* Replaces the line of a terminal that the cursor is on, by as much of a text as it has room for.
 */
void line_draw(FILE *out, const char *text);

/* How far the work has come, in a line on standard error, if that is a terminal. */
struct progress_line {
    bool hidden;       /* asked for by --quiet */
    const char *label; /* what it is of, as "copying step_10"; NULL: goes without saying */
    bool shown;        /* set by progress_begin() */
    bool drawn;
    double begin, last; /* seconds */
};
void progress_begin(struct progress_line *progress);
/* A dcp_progress_function; its context is the progress_line. False if interrupted. */
bool progress_draw(void *context, const dcp_progress *progress);
/* Clears the line, so that results can be printed. */
void progress_end(struct progress_line *progress);

#endif
