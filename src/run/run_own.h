/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run of ours keeps in its directory beside its checkpoints: whose it is and how its
 * checkpoints are named (`.dcp_run`), and files that say something of one of them. */
#ifndef RUN_RUN_OWN_H
#define RUN_RUN_OWN_H

#include "dcp/run.h"
#include "run/run_list.h"

enum { RUN_IDENTITY_MAX = 64, RUN_PATTERN_MAX = 64, RUN_NAME_MAX = 128 };

/* The run's file, and the extra file of each checkpoint that holds the identity. */
#define RUN_OWN_FILE  ".dcp_run"
#define RUN_OWN_EXTRA "dcp_run"
#define RUN_OWN_SIGN  "__%.g%.extra." RUN_OWN_EXTRA
/* What a save puts there before the identity: its owner mark, and metadata that is to appear. */
#define RUN_OWN_BEGUN ".dcp_owner .dcp_owner.* .metadata.*.tmp metadata.json.*.tmp"
/* What ranks write meanwhile: rank 0, which begins with the identity, and the others. */
#define RUN_OWN_FIRST  "__0_%*.distcp __0.g%.extra.*"
#define RUN_OWN_OTHERS "__%_%*.distcp __%.g%.extra.*"
/* What layouts have beside the files of a save, before it begins. */
#define RUN_OWN_SIDE "train_state.pt train_state.pt.*.tmp run_config.yaml run_config.yaml.*.tmp"
/* Before a checkpoint's name: it is pinned, it did not load, its removal was begun. */
#define RUN_PIN      ".dcp_pin."
#define RUN_FAILED   ".dcp_failed."
#define RUN_REMOVING ".dcp_removing."

struct run_own {
    char identity[RUN_IDENTITY_MAX];
    char pattern[RUN_PATTERN_MAX]; /* as dcp_run_options::pattern */
    dcp_run_layout layout;
    /* Of the pattern. */
    char before[RUN_PATTERN_MAX], after[RUN_PATTERN_MAX];
    int digits; /* at least */
};

bool run_own_identity_is_valid(const char *identity);
/* Takes a pattern apart; pattern and layout of the run are set. DCP_ERR_ARGUMENT. */
dcp_status run_own_set_pattern(struct run_own *own, const char *pattern, dcp_run_layout layout);

/* *found: there is a file of a run; one that cannot be understood is DCP_ERR_FORMAT. */
dcp_status run_own_read(const struct run_place *place, const char *folder, struct run_own *own,
                        bool *found);
dcp_status run_own_write(const struct run_place *place, const struct run_own *own,
                         dcp_storage_condition condition);

void run_own_name(const struct run_own *own, int64_t step, char name[RUN_NAME_MAX]);
/* Whether the whole name is that of a step. */
bool run_own_step(const struct run_own *own, const char *name, int64_t *step);

/* Whose a checkpoint is, by the extra file that each of ours begins with. */
enum run_owner { RUN_OWNER_NONE, RUN_OWNER_US, RUN_OWNER_OTHER };
dcp_status run_own_owner(const struct run_place *place, const char *name, const char *identity,
                         enum run_owner *owner);
/* Whether a directory holds nothing, or only what saves and copies begin with: one died before rank
 * 0 wrote any data, so that what others wrote is of no use. */
dcp_status run_own_is_only_begun(const struct run_place *place, const struct run_own *own,
                                 const char *name, bool *begun);

/* The row by which a run of ours is recognized; names: for its pattern. */
void run_own_layout(const struct run_own *own, char names[RUN_NAME_MAX], struct run_layout *layout);

/* "PREFIX" and "NAME" joined. */
void run_own_note_name(const char *prefix, const char *name, char joined[2 * RUN_NAME_MAX]);

#endif
