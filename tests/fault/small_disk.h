/* SPDX-License-Identifier: BSD-3-Clause */
/* A file system of a few megabytes for this process alone, which can be full and read-only. */
#ifndef TESTS_FAULT_SMALL_DISK_H
#define TESTS_FAULT_SMALL_DISK_H

#include <stdbool.h>

enum { SMALL_DISK_WHY = 256 };

/* Mounts a tmpfs ("size=16m") on a directory, in a mount namespace of the process; before it has
 * threads. false: the system does not let it, and why. */
bool small_disk_mount(const char *directory, const char *options, char why_not[SMALL_DISK_WHY]);
bool small_disk_read_only(const char *directory, bool read_only);

#endif
