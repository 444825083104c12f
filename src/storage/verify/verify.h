/* SPDX-License-Identifier: BSD-3-Clause */
/* Verifies a whole checkpoint and reports every fault. */
#ifndef STORAGE_VERIFY_VERIFY_H
#define STORAGE_VERIFY_VERIFY_H

#include "dcp/types.h"
#include "storage/shard/shard_reader.h"

dcp_status storage_verify(const dcp_storage *storage, struct storage_location location,
                          dcp_fault_function report, void *context, uint64_t *faults);

#endif
