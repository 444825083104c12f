/* SPDX-License-Identifier: BSD-3-Clause */
/* Structs of callers that were compiled against another version: they travel with their size. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <stddef.h>

#include "dcp/status.h"

/* Copies a caller's struct into ours: a shorter one is zero-extended; of a longer one the bytes
 * that we do not know must be zero, else DCP_ERR_ARGUMENT. NULL gives all zeros. what names the
 * struct in the story. */
dcp_status sized_read(void *ours, size_t our_size, const void *theirs, size_t their_size,
                      const char *what);

/* Copies a struct of ours into a caller's: cut if the caller's is shorter, the rest zeroed if it is
 * longer. */
void sized_write(void *theirs, size_t their_size, const void *ours, size_t our_size);

#endif
