/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of a checkpoint against its manifest. Failures are printed and counted. */
#ifndef INTEROP_CHECK_H
#define INTEROP_CHECK_H

#include "manifest.h"

/* Counts a failure and prints what it is about. Any thread may call it. */
void check_failed(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
int check_failures(void);

/* Names, paths, shapes, chunks, contents, through dcp_checkpoint_open(). */
void check_view(const struct manifest *manifest);
/* The checkpoint loaded by dcp_load() at several topologies, each rank a thread. */
void check_loads(const struct manifest *manifest);

#endif
