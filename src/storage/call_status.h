/* SPDX-License-Identifier: BSD-3-Clause */
/* What a function of a storage's table returned, which may be anything. */
#ifndef STORAGE_CALL_STATUS_H
#define STORAGE_CALL_STATUS_H

#include "dcp/status.h"

/* error_clear() comes before the call. what: the directory or file, for a message where the storage
 * left none. A value that is no status is DCP_ERR_CALLBACK. */
dcp_status call_status(dcp_status returned, const char *function, const char *what);

#endif
