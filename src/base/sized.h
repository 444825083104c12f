/* SPDX-License-Identifier: BSD-3-Clause */
/* Structs whose size the caller passes, because it may have been compiled against another
 * version. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <stddef.h>

#include "dcp/status.h"

/* Copies a caller's struct into ours. A shorter one is extended by zeros. In a longer one, the
 * bytes beyond ours must be zero, else DCP_ERR_ARGUMENT. NULL gives all zeros. what: names the
 * struct for the message. */
dcp_status sized_read(void *ours, size_t our_size, const void *theirs, size_t their_size,
                      const char *what);

/* Copies a struct of ours into a caller's: cut if the caller's is shorter, the rest zeroed if it is
 * longer. */
void sized_write(void *theirs, size_t their_size, const void *ours, size_t our_size);

#endif
