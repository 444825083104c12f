/* SPDX-License-Identifier: BSD-3-Clause */
/* Trying limits of memory: the smallest that is named works and is used, one byte less names it
 * again, and the process needs no more address space than the limit. */
#ifndef TESTS_LIMIT_TRIAL_H
#define TESTS_LIMIT_TRIAL_H

#include "checkpoint/ranks.h"

/* One operation, again and again; the beginning of a rank's context. */
struct limit_trial {
    rank_body body; /* does it once within the limit, and has the outcome judged */
    void *context;  /* for it: what this is the beginning of */
    uint64_t limit;
    bool too_small;
    _Atomic uint64_t smallest; /* that was named */
    _Atomic uint64_t used;     /* by the rank that used most, within the smallest */
    uint64_t unused;           /* that must be there in case, and that this one may leave */
};

/* The smallest limit, as the calling thread's last failure names it; 0: it does not. */
uint64_t limit_named(void);
/* Judges what a rank has come to, right after it has: the operation, or the naming of the same
 * limit by all ranks and every time, without anything moved. */
void limit_trial_judge(struct limit_trial *trial, const struct rank *self, dcp_status status,
                       const dcp_figures *figures);
/* With limits that are too small; finds the smallest. */
void limit_trial_refuse(struct limit_trial *trial, int size, const char *path);
/* With the smallest, which must be within 1.2 times what is then used, and a fixed part for stacks
 * and the largest small streams; and with up to so much more. */
#define LIMIT_FIXED_PART ((uint64_t)1 << 20)
void limit_trial_accept(struct limit_trial *trial, int size, const char *path, uint64_t most_more);

/* Whether a process's address space can be little: sanitizers take some of their own. */
bool limit_space_is_ours(void);
/* Does work in a process of its own that has `room` bytes of address space beside what it has at
 * the beginning. Work returns whether it succeeded, as it must. */
void limit_in_little_space(uint64_t room, bool (*work)(void *context), void *context);
/* Bytes by which a limit grows from one try to the next, up to about 20 MiB. */
uint64_t limit_step(uint64_t more);

#endif
