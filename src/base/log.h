/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines for the caller's log function. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "dcp/environment.h"

void log_line(dcp_log_level level, const char *format, ...) DCP_PRINTF(2, 3);

/* The seconds given to the last dcp_set_log_waits(); 0: waits are not logged. */
double log_waits_after(void);

#endif
