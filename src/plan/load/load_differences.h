/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to load planning: collects differences. */
#ifndef PLAN_LOAD_LOAD_DIFFERENCES_H
#define PLAN_LOAD_LOAD_DIFFERENCES_H

#include "plan/load/load_plan.h"

/* Starts without differences: none of entry_count entries is wanted, none of used_count rules and
 * patterns is used. */
dcp_status differences_init(struct load_differences *differences, size_t entry_count,
                            size_t used_count);
void differences_want(struct load_differences *differences, size_t entry);
bool differences_is_wanted(const struct load_differences *differences, size_t entry);
/* Copies both texts. The stored name is set to the name. */
dcp_status differences_add(struct load_differences *differences, dcp_difference difference,
                           const char *name, size_t name_length, const char *detail,
                           size_t detail_length);
/* Sets the stored name of the last line: the name that was looked for. */
dcp_status differences_set_stored(struct load_differences *differences, const char *stored_name,
                                  size_t length);
/* A mismatch; the status of the first one becomes the failure. */
dcp_status differences_add_mismatch(struct load_differences *differences, dcp_status failure,
                                    const char *name, const char *detail);

/* The number of rules and patterns; names may be NULL. */
size_t load_names_count(const struct load_names *names);
/* Adds a line for each rule and pattern that is unused by differences->used, and suggests names of
 * this rank's tree and of the checkpoint. */
dcp_status load_names_add_unused(const struct load_names *names, const struct metadata *metadata,
                                 struct load_differences *differences);

#endif
