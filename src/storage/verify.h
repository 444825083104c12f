/* SPDX-License-Identifier: BSD-3-Clause */
/* Checking a whole checkpoint, fault by fault. */
#ifndef STORAGE_VERIFY_H
#define STORAGE_VERIFY_H

#include "base/file.h"
#include "dcp/checkpoint.h"
#include "storage/shard_reader.h"

dcp_status storage_verify(const struct file_ops *ops, struct storage_location location,
                          dcp_fault_function report, void *context, uint64_t *faults);

#endif
