/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of MPI: finishes saves under way first, and keeps threads from calling MPI afterwards, as
 * calls after MPI_Finalize() end the program. */
#ifndef MPI_FINALIZE_H
#define MPI_FINALIZE_H

#include <stdbool.h>

#include "dcp/status.h"

/* Has MPI_Finalize() call dcp_finish_saves(). Call it between MPI_Init() and MPI_Finalize();
 * further calls do nothing. */
dcp_status finalize_attach(void);

/* MPI is not finalized between these two calls. After false, MPI must not be called any more, nor
 * the second function. Do not wait for other threads in between. */
bool finalize_hold_off(void);
void finalize_let_go(void);

#endif
