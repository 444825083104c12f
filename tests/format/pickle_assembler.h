/* SPDX-License-Identifier: BSD-3-Clause */
/* Pickles from text, for tests: "PROTO 4 BININT1 7 TUPLE1 STOP".
 *
 * Words are opcodes by name, each followed by its argument: a number (BINFLOAT: a double), a text
 * in quotes with \xNN, or for GLOBAL two texts. Lengths are filled in. A word of # and hexadecimal
 * digits stands for those bytes, for what no opcode would give. */
#ifndef TESTS_FORMAT_PICKLE_ASSEMBLER_H
#define TESTS_FORMAT_PICKLE_ASSEMBLER_H

#include "base/buffer.h"

/* Initializes out. Anything that is no such text fails the test. */
void pickle_assemble(struct buffer *out, const char *script);

#endif
