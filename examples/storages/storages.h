/* SPDX-License-Identifier: BSD-3-Clause */
/* Storages of one's own (dcp/storage.h), each a table of functions. They have no state beside what
 * is stored, so that one table serves all saves and loads. */
#ifndef STORAGES_H
#define STORAGES_H

#include <dcp.h>

/* Not every storage needs all that the functions of a table are given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Takes ids that begin with "memory://". What is stored is gone with the process. */
extern const dcp_storage memory_storage;
/* "tar://run/step_1000" is the archive run/step_1000.tar. */
extern const dcp_storage tar_storage;

#endif
