/* SPDX-License-Identifier: BSD-3-Clause */
/* Patterns of names in transform files: "*" is a part of a name without dots, "**" (once at most)
 * any part, "#" a number. None of them is empty. */
#ifndef CONVERT_TRANSFORM_PATTERN_H
#define CONVERT_TRANSFORM_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "dcp/status.h"

enum { TRANSFORM_STARS_MAX = 8 };

/* What stars stood for, borrowed from the name. */
struct transform_match {
    const char *begin[TRANSFORM_STARS_MAX];
    size_t length[TRANSFORM_STARS_MAX];
    int64_t number; /* of "#" */
};

/* How many stars and numbers a pattern has; DCP_ERR_ARGUMENT: too many. */
dcp_status transform_pattern_count(const char *pattern, size_t *stars, size_t *numbers);
bool transform_pattern_matches(const char *pattern, const char *name,
                               struct transform_match *match);
/* The name that a pattern with as many stars stands for; NULL: no memory. */
char *transform_pattern_fill(const char *pattern, const struct transform_match *match,
                             struct arena *arena);

#endif
