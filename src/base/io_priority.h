/* SPDX-License-Identifier: BSD-3-Clause */
/* The I/O priority of the calling thread, for as long as it works for somebody who asked for a low
 * one. */
#ifndef BASE_IO_PRIORITY_H
#define BASE_IO_PRIORITY_H

#include <stdint.h>

#include "dcp/environment.h"

/* Linux's number for a priority; 0: the thread's own. */
uint16_t io_priority_number(dcp_io_priority priority);
/* Lowers the thread's priority; what was it goes back in at the end. Threads that are started in
 * between inherit it. Where it cannot be lowered, or could not be raised again, it stays as it is,
 * and a log line says so once. */
int io_priority_enter(dcp_io_priority priority);
void io_priority_leave(int before);

#endif
