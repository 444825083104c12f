/* SPDX-License-Identifier: BSD-3-Clause */
/* A check of one checkpoint of a run on its way. */
#ifndef RUN_RUN_CHECK_H
#define RUN_RUN_CHECK_H

#include "run/run_contents.h"
#include "run/run_list.h"

enum { RUN_WHY_MAX = 512 };

struct run_check {
    dcp_run_list *list;
    const struct run_place *place;
    struct run_entry *entry;
    struct run_contents contents; /* of the checkpoint; empty if it is a file */
    int64_t ranks;                /* that wrote shards, as the names of these say; 0: unknown */
    uint64_t bytes;               /* of what was looked at */
    int64_t unix_time;            /* by the save's word; 0: unknown */
    char why[RUN_WHY_MAX];        /* the first thing that is wrong; "": nothing so far */
};

/* Functions below return a failure only if the check cannot be made; what they find wrong is in
 * `why`. Paths are relative to the run. */

/* Says what is wrong, unless something was said before. DCP_OK. */
dcp_status run_check_fault(struct run_check *check, const char *format, ...) DCP_PRINTF(2, 3);
/* What a status means for the check: DCP_OK, or a fault told by its message, or a failure. */
dcp_status run_check_judge(struct run_check *check, dcp_status status);
/* A path as the reasons show it: without the checkpoint's own. */
const char *run_check_shown(const struct run_check *check, const char *path);

/* A DCP directory: .metadata, and every file that it names. */
dcp_status run_check_dcp(struct run_check *check, const char *path);
/* A directory of safetensors files, or of DCP. */
dcp_status run_check_weights(struct run_check *check, const char *path);
/* A file of torch.save: it ends as its zip archive must; one without an archive is not empty. */
dcp_status run_check_torch(struct run_check *check, const char *path);
dcp_status run_check_file(struct run_check *check, const char *path);
/* The folders of Megatron's model-parallel ranks. */
dcp_status run_check_model_parallel(struct run_check *check);
/* A folder of DeepSpeed's files. */
dcp_status run_check_zero(struct run_check *check, const char *path);

#endif
