/* SPDX-License-Identifier: BSD-3-Clause */
/* Many tensors of one shape whose elements are known, saved and loaded again in parts. */
#ifndef TESTS_CHECKPOINT_PARTS_H
#define TESTS_CHECKPOINT_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp.h"

/* The same part of tensors from first to end - 1, which are named t0, t1 and so on. */
struct part {
    int64_t shape[2]; /* of each */
    int64_t offsets[2];
    int64_t sizes[2];
    dcp_dtype dtype;
    int first, end;
};

/* What an element is, as a number. */
double parts_value(const struct part *part, int tensor, int64_t row, int64_t column);
/* Saves tensors from 0 to end - 1 as a whole, in single precision. False: the library was built
 * without that compression. */
bool parts_save(const char *path, const struct part *part, const dcp_save_options *options);
/* Loads the part, and compares values if it succeeds. */
dcp_status parts_load(const char *path, const struct part *part, const dcp_load_options *how,
                      dcp_figures *figures);
/* Where the first two elements of a row are in a file of the directory. */
uint64_t parts_find(const char *directory, const char *file, const struct part *part, int tensor,
                    int64_t row);
uint64_t parts_bytes(const struct part *part);
/* Loads each, and compares what was moved and is unchecked as well. */
void parts_check_loads(const char *path, const struct part *const *parts, size_t count,
                       const dcp_load_options *how);

#endif
