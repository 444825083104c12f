/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading a scene on two ranks with hooks. */
#ifndef TESTS_LOAD_HOOKS_H
#define TESTS_LOAD_HOOKS_H

#include "checkpoint/load_scene.h"

#define RETURN_UNLESS_OK(call)                                                                     \
    do {                                                                                           \
        dcp_status called = (call);                                                                \
        if (called != DCP_OK)                                                                      \
            return called;                                                                         \
    } while (0)

/* A planner in a rank's own memory. */
struct job {
    struct rank *self;
    struct scene *scene;
    char calls[4096];
    void *memory[4];
    int used;
    const void *choice; /* the test's own */
};

/* What a test does on each rank. */
struct test {
    dcp_load_planner planner; /* without context */
    dcp_storage_reader reader;
    dcp_load_options options;
    bool no_memory;
    dcp_status (*check)(struct job *job);
    const void *choice;
};

/* Adds a word to the job's calls. */
void note(struct job *job, const char *call);

/* Hooks that note that they were called and do what the library does; for a context that is a job.
 */
extern const struct test noting;
/* A create_local_plan that says in planner data which rank it is, and a create_global_plan that
 * looks whether it came, reverses all plans, and answers. */
dcp_status tagging_local(void *context, dcp_loading *loading, dcp_load_plan *plan);
dcp_status reversing_global(void *context, dcp_loading *loading, dcp_load_plan *const *plans,
                            int count);
/* A create_local_plan of nothing. */
dcp_status forgetful_local(void *context, dcp_loading *loading, dcp_load_plan *plan);

/* The load of what scene_setup() saved, on two ranks. */
void load_must(void **state, struct test test);
/* Every rank must hear the message. */
void load_must_fail(void **state, const struct test *test, dcp_status expected,
                    const char *message);

/* For CMocka: a directory with the checkpoint "c" of two ranks. */
int scene_setup(void **state);

#endif
