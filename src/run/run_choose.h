/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run is resumed from, as rank 0 finds it: one checkpoint after the other, each with the
 * reasons why those before it are not it. */
#ifndef RUN_RUN_CHOOSE_H
#define RUN_RUN_CHOOSE_H

#include "run/run_manager.h"
#include "run/run_stamp.h"

/* A choice, in a form that travels to the other ranks. */
struct run_choice {
    bool found;
    bool named;                  /* by the reference: nothing else is tried */
    bool own;                    /* of this run, under its usual name */
    bool no_optimizer;           /* though the state has one */
    uint32_t missing_optimizers; /* of several that the state has: a bit for each */
    bool pretrained;
    bool local; /* in the file system, whatever the run's storage */
    int32_t kind;
    int64_t step;
    char name[RUN_NAME_MAX]; /* in the run; "": it lies elsewhere */
    char save_id[64];
    char path[4096]; /* an id */
    char reason[4096];
};

struct run_chooser {
    dcp_run *run;
    dcp_run_list *list;  /* of the run */
    dcp_run_list *other; /* of what the reference names elsewhere */
    size_t left;         /* entries of the list that were not looked at */
    size_t tried;
    bool model_only; /* is what is looked for */
    struct buffer reasons;
    struct run_choice next; /* of the run, while emergency saves are tried that are newer */
    bool has_next;
    int64_t
        emergency_step; /* of emergency saves, those before it have been tried: place and step */
    uint64_t emergency_job;
    size_t emergency_place;
};

void run_chooser_init(struct run_chooser *chooser, dcp_run *run);
void run_chooser_free(struct run_chooser *chooser);
/* The first, or the next after one that did not load. */
dcp_status run_chooser_next(struct run_chooser *chooser, struct run_choice *choice);
/* What a reference other than "latest" names, and what a path does. */
dcp_status run_reference_take(struct run_chooser *chooser, const char *reference,
                              struct run_choice *choice);
dcp_status run_reference_path(struct run_chooser *chooser, const char *reference,
                              struct run_choice *choice);
/* One that did not load is remembered, and says why in the next reasons. */
void run_chooser_remember(struct run_chooser *chooser, const struct run_choice *choice,
                          const char *why);

/* Counts as a reason why a checkpoint is not taken. */
void run_chooser_pass_over(struct run_chooser *chooser, const char *format, ...) DCP_PRINTF(2, 3);

/* ---- of one checkpoint ---- */

/* Whether it is a direct child of its run, with a step. */
bool run_entry_is_step(const struct run_entry *entry);
bool run_chooser_wants(const struct run_chooser *chooser, dcp_run_kind kind);
/* Whether it is of this run, or of none and that may be taken; if not, that is a reason. */
dcp_status run_chooser_check_owner(struct run_chooser *chooser, const struct run_entry *entry,
                                   bool *fits, bool *own);
/* Fills in all but the reason and the name. */
dcp_status run_chooser_fill(const struct run_chooser *chooser, const struct run_place *place,
                            const struct run_entry *entry, struct run_choice *choice);
/* Of it: whose save it is, and what it lacks. */
dcp_status run_chooser_stamp(const struct run_chooser *chooser, const struct run_place *place,
                             const char *path, struct run_choice *choice);
/* The line: what the choice is, and the reasons so far. */
void run_chooser_explain(const struct run_chooser *chooser, struct run_choice *choice,
                         const char *what, const char *is);

#endif
