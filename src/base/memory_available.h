/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory there is to take. */
#ifndef BASE_MEMORY_AVAILABLE_H
#define BASE_MEMORY_AVAILABLE_H

#include <stdint.h>

/* Bytes that this process may still take without pushing out what others need: what the machine has
 * available, as Linux estimates it, or what the limits of its control groups leave, if that is
 * less. 0: not known. root: where /proc and /sys are looked for, "" but in tests. */
uint64_t memory_available(const char *root);

#endif
