/* SPDX-License-Identifier: BSD-3-Clause */
/* What a checkpoint says of itself, beside being whole. */
#ifndef RUN_RUN_STAMP_H
#define RUN_RUN_STAMP_H

#include "run/run_optimizers.h"
#include "run/run_place.h"

struct run_stamp {
    char save_id[64]; /* "": none */
    bool has_model;   /* some name is the model's, or lies under no key that was asked for */
    bool has_optimizer, has_rng, has_main_params;
    uint32_t optimizers; /* a bit for each of several that is there */
    bool has_metric;
    double metric;
};

/* Keys at the top, and the metric among the numbers of metadata.json's info; NULL: not looked for.
 * members: directories in the checkpoint that are it together; of none itself is. */
struct run_stamp_keys {
    const char *optimizer, *rng, *main_params;
    const struct run_optimizers *optimizers;
    const char *metric;
};

dcp_status run_stamp_read(const struct run_place *place, const char *path,
                          const char *const *members, size_t member_count,
                          const struct run_stamp_keys *keys, struct run_stamp *stamp);

#endif
