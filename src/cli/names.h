/* SPDX-License-Identifier: BSD-3-Clause */
/* Which names of a checkpoint a command works on. */
#ifndef CLI_NAMES_H
#define CLI_NAMES_H

#include "command.h"

struct selected {
    size_t index; /* in the checkpoint */
    dcp_entry entry;
};

struct selection {
    struct selected *items; /* in the checkpoint's order */
    size_t count;
};

/* Whether a name is one of the patterns: *, ? and [...], or a name that it is or is below of. */
bool names_match(const struct text_list *patterns, const char *name);

/* Takes names that match one of `include` (NULL or empty: all) and none of `exclude` (or NULL).
 * Returns EXIT_FINE, or another status after a message, also if a pattern of `include` matches
 * nothing. The selection is to be freed in any case. */
int selection_make(const dcp_checkpoint *checkpoint, const char *command,
                   const struct text_list *include, const struct text_list *exclude,
                   struct selection *selection);
void selection_free(struct selection *selection);

/* The length of a name's first `depth` parts, which dots divide, without the dot behind them. Dots,
 * as the forms that do not nest have no other parts. */
size_t name_prefix(const char *name, int depth);

#endif
