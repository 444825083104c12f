/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests that run over every storage. A program that links tests_every_storage saves and loads over
 * the one that the environment names:
 *
 *     DCP_TEST_STORAGE=files    the file system, as without the variable
 *     DCP_TEST_STORAGE=memory   dcp_storage_memory_new()
 *     DCP_TEST_STORAGE=awkward  awkward_storage.h over that, late and far, with alignment
 *     DCP_TEST_STORAGE=bare     the same without any optional function
 *     DCP_TEST_STORAGE=objects  objects in memory: examples/storages/memory.c
 *     DCP_TEST_STORAGE=tar      tar archives: examples/storages/tar.c
 *
 * The linker leads the calls of the public interface here (--wrap), which fills in the storage
 * where their options have none. So the sources of tests say nothing of storages, but for those
 * that look at files: these call needs_files(). */
#ifndef STORAGES_EVERY_STORAGE_H
#define STORAGES_EVERY_STORAGE_H

#include "dcp.h"

/* NULL: the file system. Takes what is in directories that tests have made, so that the reference
 * checkpoints are still read from files. Made when it is first asked for, and freed with the
 * process. */
const dcp_storage *every_storage(void);
/* What is open in it, where that is known. */
long every_storage_open_count(void);

#endif
