/* SPDX-License-Identifier: BSD-3-Clause */
/* A run that is open: saved (run_save), timed (run_step), resumed (run_resume), pruned behind
 * training (run_background). */
#ifndef RUN_RUN_MANAGER_H
#define RUN_RUN_MANAGER_H

#include "dcp/run.h"
#include "run/run_background.h"
#include "run/run_mirrors.h"
#include "run/run_own.h"
#include "run/run_schedule.h"

enum { RUN_NOTES_MAX = 64, RUN_NOTE_MAX = 64 };

struct run_note {
    char name[RUN_NOTE_MAX];
    double value;
};

/* Why training is to end; of several the first. */
enum run_stop { RUN_STOP_NONE, RUN_STOP_SIGNAL, RUN_STOP_HALT_FILE, RUN_STOP_DEADLINE };

/* What a rank tells the others. */
struct run_look {
    uint8_t stop;   /* of enum run_stop */
    uint8_t saving; /* a save is under way */
    uint8_t due;    /* rank 0: the clock wants a save */
    uint8_t unused;
    uint32_t calls; /* rank 0: calls until the next exchange */
};

/* Where ranks save by themselves: the local place, then that of the copy. */
struct run_emergency {
    struct run_place places[2];
    char *roots[2]; /* of this run in them; NULL: there is none */
    uint64_t job;
    int64_t step;   /* the last one that was saved so; -1: none */
    int steps_left; /* that are saved after a signal was seen */
};

struct dcp_run {
    dcp_run_options options;
    dcp_save_options save;
    dcp_save_chain_options chain_options;
    dcp_load_options load;
    dcp_run_keep keep;
    char *root; /* absolute */
    struct run_place place;
    struct run_own own;
    int rank, size;
    bool watches_signals;

    struct run_schedule schedule;
    struct run_look *looks; /* of all ranks */
    uint32_t calls_left;    /* until ranks exchange looks */
    uint32_t calls_since;
    double last_look;
    double stop_at; /* on the monotonic clock; HUGE_VAL: never */
    enum run_stop stop;
    bool due;   /* all ranks know that a save is */
    bool asked; /* of that step, and what rules of steps want */
    int64_t asked_step;
    bool asked_wants;
    bool save_ended; /* all ranks know that of the one under way */
    bool stop_saved; /* for the sake of the stop */

    dcp_save_chain *chain; /* NULL: it saves blocking */
    dcp_save_plan_cache *plans;
    dcp_future *saving; /* NULL: none is under way */
    char saving_name[RUN_NAME_MAX];
    int64_t saving_step;
    double saving_begun;
    double stall; /* of the trainer's thread for this save so far */
    double longest_save;
    int64_t step;       /* the last one that was reported; -1: none */
    int64_t saved_step; /* -1: none */
    int32_t failures;   /* in a row */

    struct run_note notes[RUN_NOTES_MAX];
    size_t note_count;
    dcp_extra_file *files; /* of the next save: the run's own, the options', added ones */
    size_t file_count, file_capacity;
    struct arena added; /* names and bytes of added ones */
    size_t added_count;

    char *resumed_path; /* an id; NULL: nothing was resumed */
    char *reason;
    struct run_background background;
    uint64_t removed_before; /* by it, when the last attempt to save began */
    struct run_mirrors mirrors;
    struct run_emergency emergency;
    bool resumed_locally; /* resumed_path is in the file system, whatever the run's storage */
};

/* Seconds of the monotonic clock. */
double run_now(void);
/* The options' key, or the usual one. */
const char *run_key(const char *key, const char *usual);

/* Waits for the save that is under way, if any; says how it ended, unless that is only logged. */
dcp_status run_settle(dcp_run *run);
/* Begins to save, after the save before; collective. */
dcp_status run_save_begin(dcp_run *run, int64_t step);
/* A save has ended: counts, figures, log. Returns the failure that is to be told. */
dcp_status run_save_ended(dcp_run *run, dcp_status status, const dcp_figures *figures);
/* Takes note of a line of figures, at rank 0. */
void run_figures_append(const dcp_run *run, dcp_status status, const char *message,
                        const dcp_figures *figures);
/* Likewise of a copy at a mirror. By any thread. */
void run_figures_mirror(const dcp_run *run, const char *mirror, const dcp_run_copied *copied);
/* What goes into a save beside the state: the run's identity and numbers with the caller's own
 * fields (NULL: no memory), and all extra files of this rank, as run->files. */
dcp_state *run_save_info(const dcp_run *run);
dcp_status run_save_files(dcp_run *run, int64_t step, bool with_identity);
/* Files of a layout in the checkpoint's folder, before the save; at rank 0. */
dcp_status run_side_write(dcp_run *run, int64_t step, const char *name);
/* One of the options' files, whatever version of the struct it is. */
dcp_extra_file run_option_file(const dcp_run *run, size_t index);
/* Whether the layout wants an extra file under its own name. */
bool run_side_takes(const dcp_run *run, const dcp_extra_file *file);
/* What follows a commit, at rank 0: the layout's marks, notes that no longer hold, pruning. The
 * context is the run. */
dcp_status run_committed(void *context, const char *path, const char *save_id);

#endif
