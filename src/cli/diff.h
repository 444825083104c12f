/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of dcp diff. */
#ifndef CLI_DIFF_H
#define CLI_DIFF_H

#include <pthread.h>

#include "names.h"
#include "walk.h"

/* Exit statuses are those of diff. */
enum diff_status { DIFF_SAME = 0, DIFF_DIFFERENT = 1, DIFF_TROUBLE = 2 };

struct diff_options {
    struct text_list include, exclude;
    const char *prefix[2]; /* that names of a side begin with; NULL: none */
    double absolute, relative;
    bool any_dtype, names_only, quiet, json;
    int32_t threads;
};

enum diff_kind {
    DIFF_NONE,
    DIFF_ONLY_A,
    DIFF_ONLY_B,
    DIFF_TYPE,
    DIFF_DTYPE,
    DIFF_SHAPE,
    DIFF_OBJECT,
    DIFF_VALUES
};

/* A name that one or both sides have. */
struct pair {
    const char *name;               /* without its side's prefix */
    const struct selected *side[2]; /* NULL: the side lacks it */
    enum diff_kind kind;
    struct walk walk; /* of tensors whose values are compared; its count is 0 otherwise */
    /* What was found in the values, under the mutex of the comparison. */
    uint64_t different;  /* elements */
    long double largest; /* difference of two finite elements */
    bool placed;         /* where it is known, and `a` and `b` */
    int64_t at[DCP_MAX_DIMS];
    long double a[2], b[2]; /* the elements there, with their imaginary parts */
};

struct diff {
    const struct diff_options *options;
    dcp_checkpoint *checkpoints[2];
    struct pair *pairs; /* by name */
    size_t count;
    size_t differences; /* pairs that differ */
};

/* Compares the values of all tensors whose pair has a walk. */
dcp_status diff_values(struct diff *diff);
/* As what elements of a pair are compared where they are numbers; DCP_DTYPE_NONE: as bytes. */
dcp_dtype diff_dtype(const struct pair *pair);
/* Prints a line, or an element of a JSON array, for each pair that differs, and a summary. */
dcp_status diff_print(const struct diff *diff);

#endif
