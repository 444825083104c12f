/* SPDX-License-Identifier: BSD-3-Clause */
/* Verifies a whole checkpoint and reports every fault. */
#ifndef STORAGE_VERIFY_VERIFY_H
#define STORAGE_VERIFY_VERIFY_H

#include "dcp/progress.h"
#include "dcp/types.h"
#include "storage/shard/shard_reader.h"

/* Who is told how far it is; NULL, or a progress of NULL: nobody. */
struct verify_watch {
    dcp_progress_function progress;
    void *context;
};

dcp_status storage_verify(const dcp_storage *storage, struct storage_location location,
                          dcp_fault_function report, void *context,
                          const struct verify_watch *watch, uint64_t *faults);

#endif
