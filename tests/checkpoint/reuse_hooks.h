/* SPDX-License-Identifier: BSD-3-Clause */
/* Planners and storage writers that do what the library does, and see to it that they are called
 * with what is this save's. */
#ifndef TESTS_REUSE_HOOKS_H
#define TESTS_REUSE_HOOKS_H

#include "checkpoint/ranks.h"

enum reuse_hooks {
    NO_HOOKS,
    DATA_HOOKS,   /* what is written goes through one */
    LOCAL_HOOKS,  /* plans of ranks as well, with data that travels; and the metadata's */
    GLOBAL_HOOKS, /* and the plan of all */
    STEADY_HOOKS, /* the same, but data that travels is alike each time, and changed for all ranks
                   */
    WRITER_HOOKS, /* a storage writer that looks at plans */
    RESULT_HOOKS, /* and one that has files written itself, and looks at the results */
    FILES_HOOKS   /* and one that writes files of its own, in another order */
};

/* Of one save, on one rank. */
struct hooking {
    enum reuse_hooks hooks;
    int values; /* what travels with plans, and goes to the metadata */
    bool coordinates;
    int rank;
    char directory[1100]; /* as reset() was given it */
    int transformed;      /* items that went through transform_object, by any thread */
    dcp_save_planner planner;
    dcp_storage_writer writer;
};

/* Stays where it is. */
void hooking_init(struct hooking *hooking, enum reuse_hooks hooks, int values, int rank,
                  bool coordinates);
void hooking_set_options(const struct hooking *hooking, dcp_save_options *options);
/* Whether the data hooks, if there are any, have been called. */
bool hooking_was_called(const struct hooking *hooking);
/* Fails the test unless the metadata has what the planner of this save said. */
void check_planner_data(enum reuse_hooks hooks, int values, const char *path);

#endif
