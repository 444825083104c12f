/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks what a function of a storage's table returned: a custom storage may return any int. */
#ifndef STORAGE_CALL_STATUS_H
#define STORAGE_CALL_STATUS_H

#include "dcp/status.h"

/* Call error_clear() before the function. what: the directory or file, for the message if the
 * storage set none. A value that is not a dcp_status becomes DCP_ERR_CALLBACK. */
dcp_status call_status(dcp_status returned, const char *function, const char *what);

#endif
