/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of dcp ls. Those that can fail say so on standard error, and return the exit status. */
#ifndef CLI_LS_H
#define CLI_LS_H

#include "dcp.h"

/* Most bytes of one object's value: a small pickle can stand for more text than there is memory. */
#define VALUE_LIMIT ((size_t)64 << 20)

/* Two blanks and the text, cut to a line, never inside a UTF-8 sequence. */
void print_value(char *text);

/* What metadata.json says of the save, on lines of their own; nothing if there is none. */
int print_save(const dcp_checkpoint *checkpoint);
/* As a member "save" of an object, after a comma. */
int print_save_json(const dcp_checkpoint *checkpoint);

#endif
