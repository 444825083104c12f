/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of plans that are kept from load to load store and want: rows of a matrix, a replica,
 * an int and a text of each rank, with one thing or another changed. */
#ifndef TESTS_LOAD_REUSE_SCENE_H
#define TESTS_LOAD_REUSE_SCENE_H

#include "checkpoint/ranks.h"

enum { SCENE_RANKS = 3 };

/* One load, and what is stored before it. All zero is the plain one. */
struct reuse_scene { /* NOLINT(clang-analyzer-optin.performance.Padding): in the order of reading */
    /* What is stored. */
    int values;                /* what is in the tensors */
    int rows;                  /* more than 12, of the last rank */
    bool again;                /* the checkpoint before, as it is */
    bool same_path;            /* over the checkpoint before: files of another generation */
    bool uneven;               /* rows move from rank 1 to rank 0 */
    const char *checkpoint_id; /* that .metadata says */
    bool other_dtype;          /* of the replica */
    bool grad;                 /* requires_grad of the replica */
    bool stores_extra;         /* one more object */
    bool other_name;           /* of the replica: "model.copy" */
    int64_t step;              /* an object that all ranks have */
    size_t note;               /* length of a text that each rank has for itself */
    int32_t save_files;        /* of each rank */
    bool chained;              /* by the plan of the save before */

    /* What is wanted. */
    int odd_rank;       /* who does the following alone */
    bool wants_more;    /* one more name, which is not stored */
    bool takes_less;    /* the replica is not wanted */
    bool narrow;        /* a row less */
    bool wants_double;  /* of the replica, converted; everybody */
    bool fresh_cache;   /* the odd rank has lost its cache */
    bool swapped_cache; /* the odd rank takes the cache of another chain */
    bool alone;         /* each rank loads by itself (no_dist) */
    const char *include, *exclude, *wanted, *stored; /* patterns and a rule of the options */
    dcp_strictness strictness;
    dcp_verification verification;
    dcp_reading reading;
    int32_t coordinator;
    uint64_t memory_limit;
    dcp_status fails; /* how it ends */

    bool reused; /* is expected */
};

/* Saves what the scene stores. Collective. cache: of the saves before. */
dcp_status reuse_scene_store(struct rank *self, const struct reuse_scene *scene, const char *path,
                             dcp_save_plan_cache *cache);

/* A rank's tree, and the memory in it, which is of its own for each load. */
struct wish {
    dcp_state *root;
    float *rows;
    void *replica;
    dcp_tensor box; /* of the rows */
    bool has_replica;
};

void wish_new(const struct reuse_scene *scene, int rank, struct wish *wish);
void wish_free(struct wish *wish);
/* DCP_OK, or DCP_ERR_STATE that says what is not as it was stored. */
dcp_status wish_check(const struct reuse_scene *scene, const struct wish *wish, int rank);

#endif
