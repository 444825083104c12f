/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals that ask a job to end: handlers on request alone, that set a flag. */
#ifndef RUN_RUN_SIGNAL_H
#define RUN_RUN_SIGNAL_H

#include "dcp/status.h"

/* Installs handlers of SIGTERM and SIGUSR1, unless another run has. */
dcp_status run_signal_watch(void);
/* Once for each run_signal_watch(): the last one brings back the handlers before. */
void run_signal_leave(void);
/* The number of the last signal that came since the first watch; 0: none. */
int run_signal_seen(void);

#endif
