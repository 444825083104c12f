/* SPDX-License-Identifier: BSD-3-Clause */
/* Running a test body on several ranks, each a thread of this process, and places to save to. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include "dcp.h"

/* What one rank sees, and the outcome that it leaves. */
struct rank {
    dcp_group *group;
    int rank;
    int size;
    const char *path;
    void *context;
    dcp_status status;
    char message[1024];
};

typedef dcp_status (*rank_body)(struct rank *self);

#define RANKS_MAX 8

/* Runs body on size ranks and waits for all; outcomes are in ranks. The group is freed. Ranks whose
 * bits are set in the environment variable RANKS_APART share no memory with others, as on another
 * host. */
void ranks_run(struct rank ranks[RANKS_MAX], int size, const char *path, rank_body body,
               void *context);
/* As above; a failure to make the group, for want of memory, is returned. */
dcp_status ranks_try(struct rank ranks[RANKS_MAX], int size, const char *path, rank_body body,
                     void *context);
/* As ranks_run(), and fails the test unless every rank succeeds. */
void ranks_must(int size, const char *path, rank_body body, void *context);

/* Whether the calling thread is a rank that shares no memory with others. */
void rank_set_apart(bool apart);
/* Puts the calling thread on a host with those of the same number, of 1 and more. */
void rank_set_host(int number);

/* A fresh directory under TMPDIR or /tmp, for CMocka's setup and teardown: *state is its path. */
int directory_setup(void **state);
int directory_teardown(void **state);
/* "directory/name" in a static ring of buffers. */
const char *path_in(void *const *state, const char *name);

/* At the beginning of a test that looks at files itself: it is skipped where the program runs over
 * another storage (storages/every_storage.h). */
void needs_files(void);

/* Fails the test, with the library's message, unless the call succeeds. */
#define must(call) must_succeed((call), #call, __FILE__, __LINE__)
void must_succeed(dcp_status status, const char *call, const char *file, int line);
/* Fails the test unless the call ends as expected and the message contains the text. */
#define must_fail(call, expected, text)                                                            \
    must_end((call), (expected), (text), #call, __FILE__, __LINE__)
void must_end(dcp_status status, dcp_status expected, const char *text, const char *call,
              const char *file, int line);

#endif
