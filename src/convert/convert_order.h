/* SPDX-License-Identifier: BSD-3-Clause */
/* In which order a conversion reads: ranges of one compressed stream as they lie in it, so that it
 * is decompressed once, and not from its beginning for each. */
#ifndef CONVERT_CONVERT_ORDER_H
#define CONVERT_CONVERT_ORDER_H

#include "convert/convert_copy.h"

/* Fills in order: all runs, those that are of no compressed stream first and as they are. The same
 * for the same source and runs. */
dcp_status convert_order(const struct convert_source *source, struct convert_run *runs,
                         size_t count, struct convert_run **order);

#endif
