/* SPDX-License-Identifier: BSD-3-Clause */
/* From a name in the tree to the name that it is stored under: renaming rules given as data. */
#ifndef PLAN_NAMES_NAME_RULES_H
#define PLAN_NAMES_NAME_RULES_H

#include "base/buffer.h"
#include "base/name_table.h"
#include "dcp/types.h"
#include "plan/names/name_glob.h"

/* Rules made ready to be applied to many names. */
struct name_rules {
    const dcp_rename *rules; /* borrowed */
    size_t count;
    struct name_table exact; /* name in the tree -> the first exact rule for it */
    size_t *others;          /* the other rules, in order */
    size_t other_count;
    struct glob_capture *captures; /* as many as the pattern with most stars needs */
    struct buffer stored;          /* the last name made */
};

/* DCP_ERR_ARGUMENT for rules that are malformed; the message names which. Free in either case. */
dcp_status name_rules_init(struct name_rules *rules, const dcp_rename *given, size_t count);
void name_rules_free(struct name_rules *rules);
/* The name that the first rule that matches makes, valid until the next call; the name itself if
 * none does. *rule: which one; count: none. */
dcp_status name_rules_apply(struct name_rules *rules, const char *name, const char **stored,
                            size_t *rule);

#endif
