/* SPDX-License-Identifier: BSD-3-Clause */
/* Lowers the I/O priority of the calling thread while it works for an operation that asked for
 * that. */
#ifndef BASE_IO_PRIORITY_H
#define BASE_IO_PRIORITY_H

#include <stdint.h>

#include "dcp/environment.h"

/* Linux's number for a priority; 0: leave the thread's priority as it is. */
uint16_t io_priority_number(dcp_io_priority priority);
/* Lowers the thread's priority, and returns the old one for io_priority_leave(). Threads started in
 * between inherit the low priority. If the priority cannot be lowered, or could not be raised
 * again, it is left unchanged and a line is logged once. */
int io_priority_enter(dcp_io_priority priority);
void io_priority_leave(int before);

#endif
