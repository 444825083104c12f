/* SPDX-License-Identifier: BSD-3-Clause */
/* What is known of a run from outside of it: by its directory, and by what its trainer printed. */
#ifndef TESTS_RUN_TORTURE_ORACLE_H
#define TESTS_RUN_TORTURE_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

/* A run's directory at one moment. Steps are -1 where there is none. */
struct sight {
    int64_t newest;    /* directory */
    int64_t committed; /* the newest with `.metadata` */
    int64_t marked;    /* by "latest" */
    bool has_data;     /* the newest has some, and no `.metadata` */
    bool commits;      /* in the newest `.metadata` has another name still */
    bool removes;      /* the removal of one was begun */
    int steps;         /* directories */
};

void sight_take(const char *run, struct sight *sight);

enum { ORACLE_STEPS_MAX = 10000 };

struct oracle {
    int64_t committed;              /* the last step that was: resumes are to be no older */
    char *losses[ORACLE_STEPS_MAX]; /* as they are printed; NULL: not known */
    uint64_t compared;
};

/* Of a trainer's life. */
struct life {
    int64_t resumed; /* -1: it began anew */
    int64_t first;   /* step that it trained; -1: none */
    int64_t last;    /* step that it trained */
    int64_t saved;   /* the last step that it says is saved */
    char wrong[512]; /* "": nothing is */
};

/* Reads what a trainer printed, up to the last whole line. Its losses must be those that are known;
 * with `learn` they become known. */
void oracle_read(struct oracle *oracle, const char *log, bool learn, struct life *life);
void oracle_free(struct oracle *oracle);

#endif
