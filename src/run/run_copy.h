/* SPDX-License-Identifier: BSD-3-Clause */
/* A copy of one checkpoint on its way: what belongs to it (run_copy_list), one file after the other
 * (run_copy_file), and what makes a checkpoint of them (run_copy). */
#ifndef RUN_RUN_COPY_H
#define RUN_RUN_COPY_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/progress.h"
#include "base/rate.h"
#include "dcp/checkpoint.h"
#include "dcp/checkpoint_copy.h"
#include "run/run_place.h"

/* Paths are relative to the checkpoint, and shorter than this. */
enum { COPY_PATH_MAX = 2048 };

struct copy_file {
    const char *path;
    uint64_t size;
    bool there;            /* at the destination, as far as its size tells */
    bool commits;          /* makes a checkpoint of the others: metadata */
    struct buffer content; /* then */
};

/* Parts of a file that are under way at a time, and the memory that they go through. */
enum { COPY_LANES = 4 };

struct copy_lanes {
    unsigned char *memory; /* part_size bytes for each */
    size_t part_size;
    atomic_flag taken[COPY_LANES];
};

dcp_status copy_lanes_new(struct copy_lanes *lanes, uint64_t bytes_per_second);
void copy_lanes_free(struct copy_lanes *lanes);

struct copying {
    dcp_copy_options options;
    struct run_place from, to;
    struct copy_file *files; /* those that commit last, the checkpoint's own at the end */
    size_t count, capacity;
    struct arena arena;
    struct rate rate;
    dcp_owner *owner; /* of the destination; NULL in a dry run */
    struct copy_lanes lanes;
    struct progress progress; /* of what is copied and compared */
    uint64_t to_move;         /* its total */
    bool withdrawn;           /* what was at the destination is no checkpoint any more */
    dcp_copied done;
};

/* Finds the source's files, and reads those that commit. DCP_ERR_NOT_FOUND: it is no checkpoint. */
dcp_status run_copy_list(struct copying *copying);
/* "folder/name" apart: the folder is in a buffer of the caller's. */
const char *run_copy_split(const char *path, char folder[COPY_PATH_MAX]);
/* Whether a name is one that only saves give: a shard or an extra file. */
bool run_copy_is_shard(const char *name);

/* DCP_ERR_BUSY if the destination has another owner by now. */
dcp_status run_copy_check_owner(const struct copying *copying);
/* Brings one file that does not commit to the destination, unless it is whole there. */
dcp_status run_copy_file(struct copying *copying, const struct copy_file *file);
/* Publishes one that does. */
dcp_status run_copy_publish(struct copying *copying, const struct copy_file *file);
/* Whether the file is at the destination; if it commits, with these bytes, else of this size. */
dcp_status run_copy_is_there(struct copying *copying, const struct copy_file *file, bool *there);
/* Takes away what makes a checkpoint of what is at the destination. */
dcp_status run_copy_withdraw(struct copying *copying);

#endif
