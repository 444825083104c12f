/* SPDX-License-Identifier: BSD-3-Clause */
/* Taking apart the names of a checkpoint's files. */
#ifndef STATE_NAME_PART_H
#define STATE_NAME_PART_H

#include <stdbool.h>
#include <stdint.h>

/* Takes a decimal number without leading zeros off the front of text. */
bool name_take_number(const char **text, uint64_t maximum, uint64_t *number);
bool name_take_text(const char **text, const char *expected);

#endif
