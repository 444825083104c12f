/* SPDX-License-Identifier: BSD-3-Clause */
/* A clock by which everything takes long: between two looks at it, on whatever thread, 10 ms pass.
 * A disk is slow by it, and no report of progress comes too soon. Installed and removed while no
 * thread looks. */
#ifndef FAULT_SLOW_CLOCK_H
#define FAULT_SLOW_CLOCK_H

void slow_clock_install(void);
void slow_clock_remove(void);

#endif
