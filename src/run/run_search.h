/* SPDX-License-Identifier: BSD-3-Clause */
/* Which names of a folder are checkpoints, and by which layout. */
#ifndef RUN_RUN_SEARCH_H
#define RUN_RUN_SEARCH_H

#include "run/run_list.h"

/* A folder that is searched for steps. */
struct run_search {
    dcp_run_list *list;
    const struct run_place *place;
    const char *folder;
    const char *base; /* its own name */
    bool inner;
    struct run_names names;
    const struct run_layout *own; /* of a run of ours that the folder is; NULL: it is none */
    bool *beside;                 /* by layout: what it wants beside checkpoints is there */
};

/* Adds what has a name to the list, if it is a checkpoint. */
dcp_status run_search_take(const struct run_search *search, const char *name);
/* When all names are taken: entries from `first` on that show no sign of their layout take that of
 * their neighbours. */
void run_search_settle(const struct run_search *search, size_t first);

#endif
