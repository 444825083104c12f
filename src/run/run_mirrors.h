/* SPDX-License-Identifier: BSD-3-Clause */
/* The mirrors of an open run, at rank 0: each has a thread that copies behind training. */
#ifndef RUN_RUN_MIRRORS_H
#define RUN_RUN_MIRRORS_H

#include "base/clock.h"
#include "base/thread.h"
#include "dcp/run.h"
#include "run/run_mirror.h"

/* What is known of a checkpoint's copy. */
enum run_copy_state {
    RUN_COPY_PENDING,
    RUN_COPY_DONE,
    RUN_COPY_UNWANTED, /* there is to be none */
    RUN_COPY_FAILED
};

struct run_copy_entry {
    char name[RUN_NAME_MAX];
    enum run_copy_state state;
    uint64_t posted;       /* the number of the commit that made it; 0: it was there before */
    struct deadline until; /* retention waits */
};

struct run_mirror_worker {
    dcp_run *run;
    dcp_run_mirror mirror;
    dcp_run_keep keep; /* its own, if `has_keep` */
    bool has_keep;
    struct deadline begun_until; /* of checkpoints that were there before */
    struct thread thread;
    bool made, started;
    pthread_mutex_t mutex; /* over what follows */
    pthread_cond_t changed;
    bool wanted, busy, ending;
    bool spares; /* retention has left a checkpoint that it would remove */
    bool looked; /* every checkpoint in the run has been dealt with once */
    uint64_t posts, round_posts;
    struct run_copy_entry *entries;
    size_t count, capacity;
    int64_t newest, failures;
    char why[256];
    char spared[320]; /* the reason that was given last */
};

struct run_mirrors {
    struct run_mirror_worker *workers;
    size_t count;
};

/* The options' mirrors, whatever version of the struct they are. DCP_ERR_ARGUMENT. */
dcp_status run_mirrors_read(const dcp_run_options *options, size_t index, dcp_run_mirror *mirror);
dcp_status run_mirrors_init(struct run_mirrors *mirrors, dcp_run *run);
/* Something may have to be copied. name: was just committed; NULL: what is there. Returns at
 * once. */
void run_mirrors_post(struct run_mirrors *mirrors, const char *name);
/* dcp_run_prune_options::spared, with the mirrors as its context. */
const char *run_mirrors_spare(void *mirrors, const char *name);
/* Waits until nothing is pending, as long as the mirrors' options say. */
void run_mirrors_wait(struct run_mirrors *mirrors);
/* Nobody waits any more, copies that are under way are left, and the threads end. */
void run_mirrors_stop(struct run_mirrors *mirrors);
void run_mirrors_free(struct run_mirrors *mirrors);

#endif
