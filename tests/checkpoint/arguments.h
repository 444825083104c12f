/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of wrong arguments share: a check of the status and the words of a failure. */
#ifndef TEST_ARGUMENTS_H
#define TEST_ARGUMENTS_H

#include "dcp.h"

void check_refused(int line, dcp_status status, dcp_status expected, const char *part);

#define REFUSED(call, expected, part) check_refused(__LINE__, (call), (expected), (part))

/* A call that returns a pointer: NULL, and the root keeps the failure. */
#define NOT_BUILT(call, root, expected, part)                                                      \
    do {                                                                                           \
        assert_null(call);                                                                         \
        REFUSED(dcp_state_status(root), (expected), (part));                                       \
        dcp_state_free(root);                                                                      \
        (root) = dcp_state_new();                                                                  \
    } while (0)

/* What every matrix() has for its elements. */
extern float matrix_memory[64];

/* A tensor of float of this process alone, of at most 64 elements. */
dcp_tensor matrix(int64_t rows, int64_t columns);
/* Rows of an 8 x 2 matrix that is sharded. */
dcp_tensor piece(int64_t first, int64_t rows);

#endif
