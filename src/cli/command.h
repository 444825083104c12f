/* SPDX-License-Identifier: BSD-3-Clause */
/* The sub-commands of dcp. Each gets its own arguments (argv[0] is its name) and returns the exit
 * status: 0 for success, 1 for a failure or a fault found, 2 for wrong usage. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdio.h>

#include "dcp.h"

/* EXIT_UNABLE: the checkpoint could not be checked, for lack of memory or open files. */
enum exit_status { EXIT_FINE = 0, EXIT_FAULT = 1, EXIT_USAGE = 2, EXIT_UNABLE = 3 };

int command_bench(int argc, char **argv);
int command_convert(int argc, char **argv);
int command_ls(int argc, char **argv);
int command_latest(int argc, char **argv);
int command_list(int argc, char **argv);
int command_cat(int argc, char **argv);
int command_mirror(int argc, char **argv);
int command_pin(int argc, char **argv);
int command_prune(int argc, char **argv);
int command_repair(int argc, char **argv);
int command_verify(int argc, char **argv);

/* Where checkpoints are: the storage that --storage names; NULL: the file system. */
const dcp_storage *command_storage(void);
/* "FILE" or "FILE,ARGUMENT": a module of dcp/storage.h. False, after a message on standard error,
 * if it gives no storage. */
bool command_use_storage(const char *text);

/* Opens one checkpoint, or several as their union. */
dcp_status command_open(char **paths, int count, dcp_checkpoint **checkpoint);
/* Prints "dcp ls: MESSAGE" on standard error, with the library's message of the last failure. */
int command_fail(const char *command);
/* Flushes and checks standard output: a full disk or a closed pipe is a failure. */
int command_finish(const char *command, int status);
/* A JSON string with quotes; bytes from 0x80 on are passed through as UTF-8. */
void print_json_string(FILE *out, const char *text);
/* The same text with control characters made visible, so that a name cannot command a terminal. */
void print_plain(FILE *out, const char *text);

#endif
