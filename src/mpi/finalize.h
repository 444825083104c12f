/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of MPI: saves that are under way come first, and threads that are still about to call MPI
 * afterwards are held off, as calls after MPI_Finalize() end the program. */
#ifndef MPI_FINALIZE_H
#define MPI_FINALIZE_H

#include <stdbool.h>

#include "dcp/status.h"

/* Has MPI_Finalize() call dcp_finish_saves(). Once is enough; to be called while MPI is there. */
dcp_status finalize_attach(void);

/* Between these two MPI stays. Whoever is told false must not call it any more, and does not leave.
 * Not to be held while waiting for other threads. */
bool finalize_hold_off(void);
void finalize_let_go(void);

#endif
