/* SPDX-License-Identifier: BSD-3-Clause */
/* What dcp stat finds out of tensors' elements. */
#ifndef CLI_STAT_H
#define CLI_STAT_H

#include "command.h"

/* Of finite elements, but for the counts. long double holds ints of 64 bits as they are. */
struct summary {
    uint64_t count; /* of all elements */
    uint64_t nans, infinities, zeros;
    long double least, most; /* of complex elements, their absolute values */
    long double sum, squares;
};

/* Of no elements. */
void summary_init(struct summary *summary);
/* Adds numbers of a dtype of element_dtype(). */
void summary_add(struct summary *summary, dcp_dtype read, const void *data, int64_t count);
void summary_join(struct summary *summary, const struct summary *other);
/* Those that the rest speaks of. */
uint64_t summary_finite(const struct summary *summary);

/* A tensor, or all that are below a prefix. */
struct stat_row {
    const char *name;
    size_t name_length;
    dcp_dtype dtype; /* DCP_DTYPE_NONE: several */
    size_t tensors;
    struct summary summary;
};

/* Joins those of one prefix, and prints them: sorted, if there are prefixes. */
void stat_print(struct stat_row *rows, size_t count, bool grouped, bool json);

#endif
