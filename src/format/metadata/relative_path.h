/* SPDX-License-Identifier: BSD-3-Clause */
/* File names in a checkpoint: relative to its directory, which they cannot leave. */
#ifndef FORMAT_METADATA_RELATIVE_PATH_H
#define FORMAT_METADATA_RELATIVE_PATH_H

#include <stddef.h>

#include "dcp/status.h"

/* DCP_ERR_FORMAT, with the path and the reason, for anything but components of valid UTF-8
 * separated by single slashes: no absolute path, "..", ".", empty component, NUL, backslash or
 * drive letter. */
dcp_status relative_path_check(const char *path, size_t length);

#endif
