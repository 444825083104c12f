/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of load planning: how differences are collected. */
#ifndef PLAN_LOAD_DIFFERENCES_H
#define PLAN_LOAD_DIFFERENCES_H

#include "plan/load_plan.h"

/* Without differences; nothing of entry_count entries is wanted yet. */
dcp_status differences_init(struct load_differences *differences, size_t entry_count);
void differences_want(struct load_differences *differences, size_t entry);
bool differences_is_wanted(const struct load_differences *differences, size_t entry);
/* Copies both texts. */
dcp_status differences_add(struct load_differences *differences, dcp_difference difference,
                           const char *name, size_t name_length, const char *detail,
                           size_t detail_length);
/* A mismatch; the status of the first one becomes the failure. */
dcp_status differences_add_mismatch(struct load_differences *differences, dcp_status failure,
                                    const char *name, const char *detail);

#endif
