/* SPDX-License-Identifier: BSD-3-Clause */
/* A clock by which everything takes long: between two looks at it a millisecond passes. What waits
 * for a disk does so on threads of its own then. Installed and removed while no thread looks. */
#ifndef FAULT_SLOW_CLOCK_H
#define FAULT_SLOW_CLOCK_H

void slow_clock_install(void);
void slow_clock_remove(void);

#endif
