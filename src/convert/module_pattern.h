/* SPDX-License-Identifier: BSD-3-Clause */
/* Which modules compressed-tensors' targets name. */
#ifndef CONVERT_MODULE_PATTERN_H
#define CONVERT_MODULE_PATTERN_H

#include <stdbool.h>

#include "dcp/status.h"

/* How a target fits a module: what compressed-tensors prefers comes first. */
enum module_match {
    MODULE_NAMED,     /* its name */
    MODULE_EXPRESSED, /* "re:" and an expression that Python's re.match() finds at its beginning */
    MODULE_OF_CLASS,  /* Linear, or Embedding for names that say so */
    MODULE_OF_OTHER_CLASS, /* which only the model's definition could tell */
    MODULE_NO_MATCH
};

/* DCP_ERR_UNSUPPORTED for expressions that POSIX has no equal of. */
dcp_status module_pattern_match(const char *target, const char *module, enum module_match *match);

#endif
