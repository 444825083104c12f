/* SPDX-License-Identifier: BSD-3-Clause */
/* Random bytes of the system. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>

#include "dcp/status.h"

/* what: what the bytes are for, for the message. */
dcp_status random_bytes(void *bytes, size_t size, const char *what);

#endif
