/* SPDX-License-Identifier: BSD-3-Clause */
/* A small checkpoint of which a number tells every byte, by the public interface alone. */
#ifndef PRELOAD_CHECKPOINTS_H
#define PRELOAD_CHECKPOINTS_H

#include "dcp.h"

/* Elements of int32: of a tensor of several transfers, and of one of a part of a block. */
#define LARGE_COUNT 300000
#define SMALL_COUNT 300

/* The memory of its tensors. */
struct contents {
    int32_t large[LARGE_COUNT];
    int32_t small[SMALL_COUNT];
};

/* How one of the operations below ended. */
struct outcome {
    dcp_status status;
    char message[1024];
    uint64_t faults; /* that a check found */
};

/* What is to be done with the checkpoint at a path. Those that save write the version; those that
 * read compare what they read, and fail with DCP_ERR_STATE if that is not the version. */
struct operation {
    const char *name;
    void (*run)(const struct operation *operation, const char *path, int version,
                struct contents *contents, struct outcome *outcome);
    bool saves;
    bool fresh; /* where there is nothing yet */
    dcp_save_options save;
    dcp_load_options load;
};

extern const struct operation operations[];
extern const size_t operation_count;

/* The version that is stored; 0: there is no checkpoint; -1: something that is no version. */
int checkpoint_version(const char *path, struct contents *contents, struct outcome *outcome);

#endif
