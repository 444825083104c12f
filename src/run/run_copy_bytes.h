/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes of one file that is copied or compared. */
#ifndef RUN_RUN_COPY_BYTES_H
#define RUN_RUN_COPY_BYTES_H

#include "run/run_copy.h"

/* Reads all bytes of a file, several parts at a time, and writes them to an open file of a place if
 * there is one. *sum: their checksum, which equals that of other bytes of this copying only if
 * these are the same. limited: they cross what the rate is for. */
dcp_status run_copy_bytes(struct copying *copying, struct run_file *from,
                          const struct run_place *to, dcp_storage_file *file, bool limited,
                          uint64_t *sum);

#endif
