/* SPDX-License-Identifier: BSD-3-Clause */
/* What --help, manual pages and completions have in common. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "command.h"

/* What a CHECKPOINT is: a paragraph. */
extern const char help_checkpoints[];

/* What an exit status of a command means; NULL: it does not occur. */
const char *help_exit_text(const struct command *command, int status);

/* The manual page of a command; NULL: that of dcp. */
void help_page(FILE *out, const struct command *command);

#endif
