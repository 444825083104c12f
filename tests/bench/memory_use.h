/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that this process has in use, as the system sees it: pages, not allocations. */
#ifndef BENCH_MEMORY_USE_H
#define BENCH_MEMORY_USE_H

/* Gives freed memory back to the system: it would hide what is taken next. */
void memory_trim(void);
/* Bytes now, from where memory_peak() counts anew. */
unsigned long long memory_restart(void);
/* The most bytes since then. */
unsigned long long memory_peak(void);

#endif
