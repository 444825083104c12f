/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of save_plan_merge(): the streams of one rank in its files. */
#ifndef PLAN_SAVE_SAVE_LAYOUT_H
#define PLAN_SAVE_SAVE_LAYOUT_H

#include "dcp/types.h"
#include "plan/save/save_merge.h"

struct layout_stream {
    struct merge_piece piece; /* a copy: a rank's pieces lie far apart */
    uint32_t number;          /* of the piece */
    uint32_t file;
    uint64_t offset;
    bool is_tensor;
};

struct rank_layout {
    struct layout_stream *streams;
    size_t count;
    uint32_t file_count;
    uint32_t *sequence; /* of the streams, by file and offset */
};

/* Fills in file and offset of each stream, and the rest of the layout; sequence is the caller's, of
 * count numbers. */
dcp_status layout_assign(struct rank_layout *layout, const struct save_plan_options *options);

#endif
