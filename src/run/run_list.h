/* SPDX-License-Identifier: BSD-3-Clause */
/* The checkpoints of a run on their way: found (run_find), put in order, checked (run_check), and
 * explained (run_latest). */
#ifndef RUN_RUN_LIST_H
#define RUN_RUN_LIST_H

#include "base/arena.h"
#include "base/buffer.h"
#include "run/run_layout.h"
#include "run/run_name.h"
#include "run/run_place.h"

struct run_entry {
    const char *path; /* relative to the run */
    const char *name; /* its last part */
    const char *folder;
    const struct run_layout *layout;
    struct run_numbers numbers; /* of the name; the step is that of dcp_run_checkpoint */
    dcp_run_kind kind;
    bool certain;       /* of its layout: it has a sign */
    bool inner;         /* in one of RUN_INNER_FOLDERS */
    const char *target; /* of a link, as a name in the same folder; NULL: none */
    int64_t
        ranks; /* for which there are files of RUN_NEED_RANKS, or stages; 0: the layout has none */
    bool checked, complete, latest, marked;
    const char *why;
    uint64_t bytes;
    int64_t unix_time;
    bool has_saved_step; /* by the save's word, which a copy under another name keeps */
    int64_t saved_step;
    bool pinned, best;
    uint32_t mirrored;
};

struct run_mark {
    const char *path;
    const char *folder;
    const char *text;
    const struct run_mark_layout *layout;
    bool found;
    size_t checkpoint;
};

struct dcp_run_list {
    struct run_entry *entries;
    size_t count, capacity;
    struct run_mark *marks;
    size_t mark_count, mark_capacity;
    const char *folders[2]; /* that hold steps, the first two; NULL: none */
    dcp_status latest_status;
    size_t latest;
    const char *reason;
    struct arena arena;
};

/* Fills the list with what is there, unchecked. */
dcp_status run_find(dcp_run_list *list, const struct run_place *place);
/* Which marks there are in a folder whose names are given, and what they say. */
dcp_status run_mark_find(dcp_run_list *list, const struct run_place *place, const char *folder,
                         const struct run_names *names);
/* When the list is in order: which checkpoints the marks name. */
void run_mark_resolve(dcp_run_list *list, const struct run_place *place);
/* Whether a checkpoint is whole, and why not. */
dcp_status run_check(dcp_run_list *list, const struct run_place *place, size_t index);
/* Sorts, oldest first. */
void run_sort(dcp_run_list *list);
/* Checks all, or back to the latest; finds that, and writes the reason. */
dcp_status run_latest_find(dcp_run_list *list, const struct run_place *place, bool latest_only);

/* Of -1: it has none. */
int64_t run_entry_step(const struct run_entry *entry);
/* Whether it may be the latest: no link, dump or part. */
bool run_is_candidate(const struct run_entry *entry);
/* Whether it says itself that it is of another step: by hand it was given another name. */
bool run_entry_is_copy(const struct run_entry *entry);
/* Another whole one of the same age and layout, whose name says nothing else: SIZE_MAX if there is
 * none. */
dcp_status run_latest_twin(dcp_run_list *list, const struct run_place *place, size_t index,
                           size_t *twin);
/* Appends what marks say of a checkpoint, or of none. */
void run_latest_explain_marks(const dcp_run_list *list, size_t latest, struct buffer *line);

/* "folder/name" in the list's arena; name alone for "". NULL: no memory, said. */
/* Ranks beyond are no ranks. */
enum { RUN_RANKS_MAX = 1 << 24 };

const char *run_list_path(dcp_run_list *list, const char *folder, const char *name);
/* A copy in the list's arena. NULL: no memory, said. */
const char *run_list_text(dcp_run_list *list, const char *text);
/* An entry by its name in a folder; SIZE_MAX: none. */
size_t run_list_find(const dcp_run_list *list, const char *folder, const char *name);

#endif
