/* SPDX-License-Identifier: BSD-3-Clause */
/* Which modules compressed-tensors' targets name. */
#ifndef CONVERT_MODULE_PATTERN_H
#define CONVERT_MODULE_PATTERN_H

#include <stdbool.h>

#include "dcp/status.h"

/* Whether a target is for a module: "re:" and an expression that Python's re.match() finds at the
 * beginning of its name, its name, or the name of a class, which every module with a scale is of.
 * DCP_ERR_UNSUPPORTED for expressions that POSIX has no equal of. */
dcp_status module_pattern_matches(const char *target, const char *module, bool *matches);

#endif
