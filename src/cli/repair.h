/* SPDX-License-Identifier: BSD-3-Clause */
/* Rebuilding a .metadata, for dcp repair and dcp verify --repair. */
#ifndef CLI_REPAIR_H
#define CLI_REPAIR_H

#include "command.h"

struct repair {
    dcp_rebuild_options options; /* without report */
    bool dry;                    /* publish nothing */
    bool json;
    bool replace; /* a .metadata that is there is damaged */
};

/* Rebuilds and publishes; prints which files were used, what is missing and what was recovered: on
 * lines, or as one JSON object without a line break behind it. The result of the library's. */
dcp_status repair_directory(const struct repair *repair, const char *directory);

#endif
