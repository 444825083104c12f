/* SPDX-License-Identifier: BSD-3-Clause */
/* Rebuilding a .metadata, for dcp repair and dcp verify --repair. */
#ifndef CLI_REPAIR_H
#define CLI_REPAIR_H

#include "command.h"

/* Of --like, which both commands have. */
#define REPAIR_LIKE_HELP                                                                           \
    "For files that PyTorch wrote, which say no names: another checkpoint of the same job, saved " \
    "by as many ranks. Streams that agree with it in place, length, dtype and shape get its "      \
    "names; what does not is listed and left out, and the exit status is 1."

struct repair {
    dcp_rebuild_options options; /* without report */
    const char *like;            /* a checkpoint of the same job, for PyTorch's files; or NULL */
    bool dry;                    /* publish nothing */
    bool json;
    bool replace;    /* a .metadata that is there is damaged */
    size_t left_out; /* result: faults of what was not recovered, beside what was */
};

/* Rebuilds and publishes; prints which files were used, what is missing and what was recovered: on
 * lines, or as one JSON object without a line break behind it. The result of the library's. */
dcp_status repair_directory(struct repair *repair, const char *directory);

#endif
