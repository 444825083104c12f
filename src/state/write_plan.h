/* SPDX-License-Identifier: BSD-3-Clause */
/* What save plans are made of: planning makes them, storage carries them out. They live in this
 * room because both share them. */
#ifndef STATE_WRITE_PLAN_H
#define STATE_WRITE_PLAN_H

#include "base/arena.h"
#include "state/box.h"
#include "state/flatten.h"

/* One thing that a rank holds and could write: a chunk of a tensor, or an object. */
struct write_item {
    const char *name;
    const dcp_path_part *path;
    size_t path_length;
    bool is_tensor;
    bool requires_grad;
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *global_shape;
    struct box box;           /* tensors */
    const dcp_layout *layout; /* of tensors of one chunk that say so; NULL: unknown; does not travel
                               */
    uint64_t object_length;   /* objects: bytes of the whole stream */
    uint32_t entry;           /* source on its own rank: entry of the flat state */
    uint32_t chunk;           /* and chunk of the tensor's node; neither travels */
};

struct save_plan {
    struct write_item *items; /* in flattening order, chunk by chunk */
    size_t count;
    bool is_local; /* made of a flat state: names differ where entries do, and those of one follow
                    * each other */
    struct arena arena;
};

/* Where an item of a rank's plan is written. */
struct write_order {
    uint32_t item;   /* index into the rank's plan */
    uint32_t file;   /* n of __{rank}_{n} */
    bool is_part;    /* the box is only a part of the item's box */
    struct box box;  /* tensors: the part of the item's box to write, in the tensor's coordinates */
    uint64_t offset; /* of the stream in the file */
    uint64_t data_offset; /* of the data in the stream; 0 for objects */
    uint64_t length;      /* of the stream */
    uint64_t room; /* that is kept for the stream: more than its length for objects that may grow */
};

struct write_orders {
    struct write_order *orders; /* by file, then offset */
    size_t count;
    uint32_t file_count; /* files the rank makes, empty ones included */
    struct arena arena;
};

/* Where an item was actually written, which is not known beforehand with compression or a custom
 * storage writer. */
struct write_result {
    const char *path; /* relative to the checkpoint's directory */
    uint64_t offset;
    uint64_t length; /* as stored */
    bool zstd;
};

/* Of a rank: result i is that of order i. */
struct write_results {
    struct write_result *results;
    size_t count;
    struct arena arena;
};

void save_plan_free(struct save_plan *plan);
void write_orders_free(struct write_orders *orders);
void write_results_free(struct write_results *results);
/* Copies the orders of a rank. Boxes of whole items are those of its plan, which must outlive the
 * copy. copy: to be freed, also on failure. */
dcp_status write_orders_copy(const struct write_orders *orders, const struct save_plan *plan,
                             struct write_orders *copy);

/* "__0_0.distcp"; in a later generation of the same directory "__0_0.g2.distcp". */
#define SHARD_NAME_MAX 64
void shard_name(char name[SHARD_NAME_MAX], int rank, uint32_t file, uint32_t generation);
/* Whether a name is one of ours (or PyTorch's), and its generation (0 for the plain form). */
bool shard_name_parse(const char *name, int *rank, uint32_t *file, uint32_t *generation);

#endif
