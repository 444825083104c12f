/* SPDX-License-Identifier: BSD-3-Clause */
/* One save, on one rank, from the first step to the last; hooks know it as a dcp_saving.
 *
 * The steps, each of which leaves what the next one needs and no state anywhere else:
 *
 *   saving_begin   the options are checked, and the table of steps is chosen
 *   saving_take    the state is taken: flattened, objects encoded
 *   saving_plan    what this rank holds; and with all ranks: who writes what (save_planning.h)
 *   replica_check  what ranks hold in common is compared, if that is asked for (replica_check.h)
 *   saving_write   the orders are carried out
 *   saving_finish  the checkpoint becomes visible, or what was written goes
 *
 * An asynchronous save stops after that, copies what the orders are about, and takes the last
 * two steps on another thread (async.h).
 *
 * What differs between saves at these steps is in their table (save_steps.h). */
#ifndef CHECKPOINT_SAVE_SAVING_H
#define CHECKPOINT_SAVE_SAVING_H

#include "checkpoint/async/save_staging.h"
#include "checkpoint/operation/operation.h"
#include "checkpoint/save/plan_extras.h"
#include "checkpoint/save/save_beside.h"
#include "checkpoint/save/save_coordinator.h"
#include "checkpoint/save/save_extra_files.h"
#include "checkpoint/save/save_local.h"
#include "checkpoint/save/save_planning.h"
#include "checkpoint/save/save_steps.h"
#include "dcp/save.h"

struct dcp_saving {
    dcp_storage storage; /* of the options */
    const char *path;
    const char *id;     /* the path in a form that means the same later; NULL: the path itself */
    bool may_fall_back; /* to another path, which may be another storage writer's */
    dcp_save_options options;
    int rank;
    int file_rank; /* in the names of this rank's files */
    bool coordinates;
    struct operation operation;
    struct save_steps steps;
    struct save_hooks *hooks; /* of steps that call hooks */
    struct save_ranks *ranks; /* of steps that are taken for several ranks */
    struct hooks_kind kind;
    bool as_planned;      /* bytes are written at the planned places and lengths */
    bool gathers_results; /* ranks report the places to the coordinator after writing */
    struct save_local local;
    struct save_extra_files extra_files;
    struct save_beside beginning; /* of the session, at the coordinator */
    struct save_session session;
    struct write_orders orders;
    struct write_results results; /* the places of this rank's items, if they are gathered */
    struct save_coordinator coordinator;
    struct save_planning planning;
    struct plan_extras extras;
    struct shard_write_options how;
    bool was_visible;     /* at the coordinator: an earlier attempt was visible */
    bool limit_too_small; /* the memory limit is too small on this rank, as found before writing */
    bool replicas_checked;
    bool together;             /* all ranks have come to plan */
    bool assigned;             /* all ranks know the session, which the coordinator has begun */
    bool visible;              /* at the coordinator: the checkpoint is */
    bool in_place;             /* the commit failed, but all ranks know that it is visible */
    dcp_checkpoint *committed; /* at the coordinator: metadata that the caller gets */
    dcp_state *
        *copied; /* the state that a planner sets up with is copied to here; NULL: it stays */
    struct save_staging staging;        /* of asynchronous saves: what will be copied, and how */
    const struct staged_orders *staged; /* where the data of the orders is; NULL: in the state */
};

/* Copies of the orders' items: item i is source i here. */
struct staged_orders {
    struct shard_source *sources;
    struct staging *staging; /* NULL: the orders are only for objects */
};

/* Takes the options; the group is usable even after a failure. */
dcp_status saving_begin(struct dcp_saving *saving, const dcp_save_options *given);
/* A tree of the save's own. On failure *copy is NULL. */
dcp_status saving_copy_state(const dcp_state *state, dcp_state **copy);
/* Up to where all ranks may write: if `assigned` is set then, saving_finish() must follow on all
 * ranks, whatever this returned. */
dcp_status saving_take(struct dcp_saving *saving, dcp_state *state, dcp_status status);
dcp_status saving_plan(struct dcp_saving *saving, dcp_state *state, dcp_status status);
/* Collective; the orders of each rank, from what it has planned to write. */
dcp_status saving_plan_global(struct dcp_saving *saving, dcp_status status);
/* The save begins again as a dry run, without a limit, from the state on. */
dcp_status saving_start_over_dry(struct dcp_saving *saving);
/* After a failure that all ranks share: plans another attempt, at the same place or another one. */
dcp_status saving_plan_again(struct dcp_saving *saving, const char *path, const char *id);
/* After a failure of the place: the same plan without a place, so that it is known what each rank
 * has to copy for an attempt to come. */
dcp_status saving_plan_nowhere(struct dcp_saving *saving);
/* Whether a failure is one of the place: then the same save may succeed in another one. */
bool saving_failed_place(dcp_status status);
dcp_status saving_write(struct dcp_saving *saving);
dcp_status saving_finish(struct dcp_saving *saving, dcp_status status);
/* Everything but the options, the extra files and the operation. */
void saving_free(struct dcp_saving *saving);
/* Writes shard files, as the orders say. */
dcp_status saving_write_files(struct dcp_saving *saving, struct write_results *results);
dcp_status saving_agree(const struct dcp_saving *saving, const char *phase, dcp_status status);

#endif
