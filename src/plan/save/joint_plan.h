/* SPDX-License-Identifier: BSD-3-Clause */
/* The plans of several ranks in one: each name once, with the ranks that hold boxes of it. Boxes of
 * consecutive ranks mostly lie in even steps; such holders are one run, so that a joint plan grows
 * with the number of tensors and not of ranks.
 *
 * Made from ranks' plans one by one, by uniting two joint plans, or from the tensors' meshes; sent
 * up the tree of ranks as a message. */
#ifndef PLAN_SAVE_JOINT_PLAN_H
#define PLAN_SAVE_JOINT_PLAN_H

#include "base/buffer.h"
#include "base/name_table.h"
#include "state/write_plan.h"

/* Holders of boxes of one size in even steps: number i is item `item + i * item_step` of rank
 * `rank + i * rank_step`, at `offsets + i * steps`. */
struct joint_run {
    uint32_t count;
    uint32_t rank;
    uint32_t rank_step; /* 0: several boxes of one rank */
    uint32_t item;
    int32_t item_step;
    const int64_t *offsets; /* ndim values each; objects: NULL */
    const int64_t *sizes;
    const int64_t *steps; /* NULL: all at the same place */
};

/* A tensor or an object, as all ranks agree. */
struct joint_entry {
    const char *name;
    const dcp_path_part *path;
    size_t path_length;
    bool is_tensor;
    bool requires_grad; /* on any rank */
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *global_shape;
    uint64_t object_length; /* on the lowest rank, which saves its object */
    struct joint_run *runs; /* by rank; objects have one, of the lowest rank */
    size_t run_count;
    size_t run_capacity;
};

struct joint_plan {
    struct joint_entry *entries; /* in the order of the ranks' plans */
    size_t count;
    size_t capacity;
    uint32_t rank_count;     /* ranks are 0 to rank_count - 1 */
    bool is_local;           /* of the plan of a flat state, where no name comes twice */
    struct name_table names; /* -> entry; empty in a local one */
    struct arena arena;
};

void joint_plan_init(struct joint_plan *joint, uint32_t rank_count);
void joint_plan_free(struct joint_plan *joint);
/* Adds the plan of one rank, whose number must be higher than those added before. Names, paths,
 * shapes and boxes are borrowed from the plan. DCP_ERR_KIND, DCP_ERR_DTYPE and DCP_ERR_SHAPE name
 * the tensor, two ranks that disagree about it, and both values. DCP_ERR_DUPLICATE: two objects of
 * the same name on one rank. */
dcp_status joint_plan_add(struct joint_plan *joint, const struct save_plan *plan, uint32_t rank);
/* Whether this rank's plan implies what all ranks hold: each tensor is whole on all of them, or has
 * a mesh of all ranks in order, and placements. *digest: equal on ranks whose plans imply the same,
 * apart from lengths of objects; *lengths: the digest of these. */
dcp_status save_plan_implies_all(const struct save_plan *plan, uint32_t rank, uint32_t rank_count,
                                 bool *implies, uint64_t *digest, uint64_t *lengths);
/* Adds to an empty plan what all ranks hold, from the plan of one rank that implies it. Borrows
 * from that plan. */
dcp_status joint_plan_add_all(struct joint_plan *joint, const struct save_plan *plan);
/* Adds what all ranks hold if the tensors of a plan, which are whole, are divided by rows of the
 * first dimension: consecutive parts, as torch.chunk makes them. Objects are the lowest rank's.
 * Borrows from the plan, whose items are those of every rank. */
dcp_status joint_plan_add_rows(struct joint_plan *joint, const struct save_plan *plan);
/* With DCP_ERR_COVERAGE, puts the size of the plan's largest mesh in front of the message. */
dcp_status save_plan_name_mesh(const struct save_plan *plan, uint32_t rank_count,
                               dcp_status status);
/* Room for so many names; there are no more. */
dcp_status joint_plan_reserve(struct joint_plan *joint, size_t capacity);
/* Adds the joint plan of higher ranks, with the same errors. Borrows from it. */
dcp_status joint_plan_unite(struct joint_plan *joint, const struct joint_plan *higher);
/* Adds holders for an item's name; their ranks must be higher than those before. *place: in, the
 * previous entry's index, or SIZE_MAX; out, this entry's. */
dcp_status joint_plan_add_runs(struct joint_plan *joint, const struct write_item *item,
                               const struct joint_run *runs, size_t run_count, size_t *place);
/* The same for one run, and for an entry that need not be in the plan. Runs are in the plan's
 * arena. */
dcp_status joint_entry_add_run(struct joint_plan *joint, struct joint_entry *entry,
                               const struct joint_run *run);
/* How many boxes and objects all ranks hold. */
size_t joint_plan_items(const struct joint_plan *joint);

dcp_status joint_plan_encode(const struct joint_plan *joint, struct buffer *out);
/* The decoded plan owns all that it points to. Malformed bytes are DCP_ERR_FORMAT. To be freed in
 * either case. */
dcp_status joint_plan_decode(const void *bytes, size_t size, uint32_t rank_count,
                             struct joint_plan *joint);

#endif
