/* SPDX-License-Identifier: BSD-3-Clause */
/* Save plans made by hand, and the other things that tests of planning share. */
#ifndef PLAN_SAMPLES_H
#define PLAN_SAMPLES_H

#include "plan/save/save_plan.h"

/* Plans of several ranks. */
#define SAMPLE_RANKS_MAX 16
struct samples {
    struct save_plan plans[SAMPLE_RANKS_MAX];
    int count;
};

void samples_init(struct samples *samples, int count);
void samples_free(struct samples *samples);
/* Adds an item; the path is the name cut at its dots. */
void sample_tensor(struct samples *samples, int rank, const char *name, dcp_dtype dtype,
                   struct box box, const int64_t *shape);
void sample_object(struct samples *samples, int rank, const char *name, uint64_t length);
/* Boxes and shapes on the spot: DIMS(4, 3), BOX(2, DIMS(0, 0), DIMS(4, 3)). */
#define DIMS(...)                 ((const int64_t[]){__VA_ARGS__})
#define BOX(ndim, offsets, sizes) ((struct box){ndim, offsets, sizes})

/* A stream layout like that of torch.save. */
dcp_status sample_layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes, uint64_t *data_offset,
                         uint64_t *length);

/* The merge of the samples, with default options but for replicas. */
enum { SAMPLE_GENERATION = 2 };
struct merged {
    struct write_orders orders[SAMPLE_RANKS_MAX];
    struct metadata metadata;
    int count;
};
dcp_status samples_merge(const struct samples *samples, const struct save_plan_options *options,
                         struct merged *merged);
struct save_plan_options sample_options(dcp_replicas replicas);
void merged_free(struct merged *merged);

/* All bytes that a rank is ordered to write. */
uint64_t orders_bytes(const struct write_orders *orders);
/* What must hold for the result of any merge; fails the test where it does not. */
void check_merged(const struct samples *samples, const struct merged *merged);

/* Numbers that are the same in every run. */
uint64_t random_next(uint64_t *seed);
uint64_t random_below(uint64_t *seed, uint64_t bound);

/* That two joint plans say the same. */
void sample_same_joint_plan(const struct joint_plan *a, const struct joint_plan *b);

#endif
