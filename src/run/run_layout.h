/* SPDX-License-Identifier: BSD-3-Clause */
/* How frameworks lay out and mark checkpoints: one table of layouts, a row each, and one of marks.
 * What runs over them knows no framework. Patterns are those of run_name.h; lists of them have
 * spaces between. */
#ifndef RUN_RUN_LAYOUT_H
#define RUN_RUN_LAYOUT_H

#include "dcp/run_list.h"

enum run_need_kind {
    RUN_NEED_NONE,    /* the end of a row's needs */
    RUN_NEED_DCP,     /* DCP directories; where "" has no .metadata, its pp0, pp1 and so on */
    RUN_NEED_WEIGHTS, /* safetensors, as their index says if there is one */
    RUN_NEED_TORCH,   /* files of torch.save */
    RUN_NEED_FILE,    /* files that are not empty */
    RUN_NEED_JSON,    /* a JSON object; with a key, if `key` says which */
    RUN_NEED_RANKS,   /* files numbered from 0, for as many ranks as wrote shards */
    RUN_NEED_ABSENT,  /* nothing of that name */
    RUN_NEED_MODEL_PARALLEL, /* Megatron's mp_rank_T_P_E folders: a full grid, each with the same */
    RUN_NEED_ZERO /* folders of DeepSpeed's files: model-parallel by data-parallel ranks */
};

/* Something without which a checkpoint is not whole. */
struct run_need {
    enum run_need_kind kind;
    /* In the checkpoint: "" is itself, else a pattern of names in it, all of which must be well and
     * one of which there must be, or a path. */
    const char *path;
    const char *key;  /* JSON */
    const char *when; /* only if "FILE:KEY": that file of the checkpoint has that key */
    bool or_next;     /* an alternative follows; the first one of which there is anything counts */
    bool optional;    /* only if it is there */
    bool as_next;     /* only if a checkpoint next to this one has it */
    bool beside;      /* beside the checkpoint: $ stands for the step's digits, & for its name */
    bool far;         /* only in a storage that is far */
};

struct run_layout {
    const char *framework;
    dcp_run_kind kind;
    const char *names;
    const char *not_names; /* NULL: none */
    const char *folder;    /* of the folder that it must lie in; NULL: any */
    bool is_file;          /* else a folder */
    /* Of layouts with the same names: what in a checkpoint shows that it is of this one; a path
     * (pattern/file) or "FILE:KEY" of JSON, too. */
    const char *signs;
    /* And what in the folder of the run shows that those that have no sign are of this one; signs
     * of other checkpoints do that, too. NULL: nothing does. */
    const char *beside;
    /* What shows that it is one at all, without a sign. An empty folder is one as well. */
    const char *traces;
    bool shares;       /* checkpoints without signs take this layout from their neighbours */
    bool marks_itself; /* the name is the framework's mark */
    bool never_latest;
    bool free_names;    /* what surrounds the numbers is free: two of one step are no error */
    int64_t first_step; /* that the name's 0 stands for */
    struct run_need needs[12]; /* up to one of RUN_NEED_NONE */
};

extern const struct run_layout run_layouts[];
extern const size_t run_layout_count;

/* How a mark says what it marks. */
enum run_mark_kind {
    RUN_MARK_NAME, /* a link to it or a text with its name */
    RUN_MARK_PATH, /* a text whose last part is its name */
    RUN_MARK_STEP, /* a text with its step's number, or its name */
    RUN_MARK_TORCH /* a file of torch.save: the tensor "step" */
};

struct run_mark_layout {
    const char *name;
    enum run_mark_kind kind;
};

extern const struct run_mark_layout run_mark_layouts[];
extern const size_t run_mark_layout_count;

/* Folders of a run that hold steps, before any other. */
#define RUN_FOLDERS "checkpoint checkpoints"
/* Folders beside the steps that hold steps as well. */
#define RUN_INNER_FOLDERS "non_persistent ft-replicat-*"
/* Folders that hold none, whatever they look like: what is about to be removed. */
#define RUN_NO_FOLDERS ".* to_delete* todelete* *-tmp *.tmp"

#endif
