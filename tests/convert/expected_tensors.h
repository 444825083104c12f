/* SPDX-License-Identifier: BSD-3-Clause */
/* What fixtures of models hold, by their expected.txt: lines of a kind, a name, a dtype, the number
 * of dimensions, these, and the SHA-256 of the bytes. */
#ifndef TESTS_CONVERT_EXPECTED_TENSORS_H
#define TESTS_CONVERT_EXPECTED_TENSORS_H

#include <stdbool.h>
#include <stddef.h>

/* That a checkpoint holds the tensors of the lines of a kind, and no other names. */
void expect_tensors(const char *checkpoint, const char *expected, const char *kind);

#endif
