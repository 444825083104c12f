/* SPDX-License-Identifier: BSD-3-Clause */
/* What the checkpoints of DeepSpeed have in common: files of ranks, the model's, and the lists of
 * parameters in it. How fp32 weights and the optimizer's state are stored, by the stages of ZeRO or
 * in a universal checkpoint, is a table of functions. */
#ifndef CONVERT_SOURCE_DEEPSPEED_H
#define CONVERT_SOURCE_DEEPSPEED_H

#include "convert/source_training.h"
#include "convert/source_values.h"

enum deepspeed_file {
    DEEPSPEED_MODEL,      /* mp_rank_00_model_states.pt */
    DEEPSPEED_RANK_MODEL, /* zero_pp_rank_R_mp_rank_00_model_states.pt: ZeRO-3 */
    DEEPSPEED_OPTIMIZER,  /* [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt */
    DEEPSPEED_FILE_KINDS
};

/* The names of a directory's files by rank; NULL: there is none. */
struct deepspeed_files {
    const char **names[DEEPSPEED_FILE_KINDS];
    size_t counts[DEEPSPEED_FILE_KINDS]; /* one more than the highest rank */
    bool has_zero;                       /* a directory "zero" */
};

/* A parameter: a trained one, in the order of the flat data, or a frozen one. */
struct deepspeed_param {
    const char *name;
    bool frozen;
    size_t group; /* ZeRO-3: sub-group */
    int32_t ndim;
    const int64_t *shape;
    int64_t elements;
    int64_t start; /* of trained ones, in the group; ZeRO-3: in the data of each rank */
};

struct deepspeed;

struct deepspeed_stage {
    /* Adds the parts of a parameter's fp32 weights to the tensor that was begun. */
    dcp_status (*add_master)(struct deepspeed *from, const struct deepspeed_param *param);
    /* Describes the rest of the optimizer's state of a parameter. */
    dcp_status (*add_state)(struct deepspeed *from, const struct deepspeed_param *param);
    /* And what belongs to no parameter. */
    dcp_status (*add_rest)(struct deepspeed *from);
};

struct deepspeed {
    struct convert_source *source;
    struct source_parts *parts;
    struct arena *arena;
    struct deepspeed_files files;
    const struct deepspeed_stage *stage; /* NULL: no optimizer's state can be read */
    void *state;                         /* the stage's */
    bool is_cut;       /* ZeRO-3: the model's files have parameters in pieces, or not at all */
    size_t ranks;      /* of the pieces */
    size_t model;      /* the model's file of rank 0; ZeRO-3: of the others behind it */
    size_t optimizers; /* the optimizer's file of rank 0, and behind it those of the others */
    struct deepspeed_param *params;
    size_t param_count, param_capacity, group_count;
    struct name_table by_name; /* -> index of params */
    struct name_table tied;    /* -> index of holders */
    const char **holders;
    size_t holder_count;
};

/* Lists the files. Those of pipelines, experts and tensor parallelism are DCP_ERR_UNSUPPORTED. */
dcp_status deepspeed_list(const struct convert_source *source, struct arena *arena,
                          struct deepspeed_files *files);
/* Reads the lists in the model's file. deepspeed_end() also after a failure. */
dcp_status deepspeed_begin(struct deepspeed *from, struct convert_source *source);
void deepspeed_end(struct deepspeed *from);
/* Describes everything that the options take. */
dcp_status deepspeed_describe(struct deepspeed *from);
/* Adds the files of a kind of ranks 0 to count - 1, one after another. A missing one is
 * DCP_ERR_NOT_FOUND, one of a higher rank DCP_ERR_FORMAT. */
dcp_status deepspeed_add_files(struct deepspeed *from, enum deepspeed_file kind, size_t count,
                               size_t *first);
/* ZeRO-3: elements of a parameter that each rank has, padding counted. */
int64_t deepspeed_piece(const struct deepspeed *from, const struct deepspeed_param *param);
/* "optim", the parameter's name, key. */
void deepspeed_path(const struct deepspeed_param *param, const char *key, dcp_path_part path[3]);

/* ZeRO-1 to 3: finds the optimizer's data of all ranks. */
dcp_status zero_begin(struct deepspeed *from);

#endif
