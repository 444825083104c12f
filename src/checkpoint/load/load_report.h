/* SPDX-License-Identifier: BSD-3-Clause */
/* The public form of load_differences. */
#ifndef CHECKPOINT_LOAD_LOAD_REPORT_H
#define CHECKPOINT_LOAD_LOAD_REPORT_H

#include "dcp/load.h"
#include "plan/load/load_plan.h"

/* Copies what the report shows. */
/* Sets which bytes were checked; the report may be NULL. */
void load_report_note(dcp_load_report *report, uint64_t checked, uint64_t unchecked);
dcp_status load_report_new(const struct load_differences *differences, dcp_load_report **report);

#endif
