/* SPDX-License-Identifier: BSD-3-Clause */
/* Which names a load is about: patterns that include and patterns that exclude. */
#ifndef PLAN_NAMES_NAME_FILTER_H
#define PLAN_NAMES_NAME_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#include "dcp/status.h"

/* All zero passes everything. Patterns are borrowed. */
struct name_filter {
    const char *const *include; /* none: all names */
    size_t include_count;
    const char *const *exclude;
    size_t exclude_count;
};

/* DCP_ERR_ARGUMENT for arrays and patterns that are NULL or malformed; the message names which. */
dcp_status name_filter_check(const struct name_filter *filter);
/* Whether some include pattern matches and no exclude pattern does. A pattern without wildcards
 * stands for what is below it, too: "model" for "model.w". used: one for each pattern, include
 * first; set for each that matches. */
bool name_filter_passes(const struct name_filter *filter, const char *name, bool *used);

#endif
