/* SPDX-License-Identifier: BSD-3-Clause */
/* Identities of processes, by which saves recognize each other: by pid and start time on the same
 * machine; on other machines nothing is known. */
#ifndef STORAGE_COMMIT_SAVE_PROCESS_H
#define STORAGE_COMMIT_SAVE_PROCESS_H

#include <stdint.h>

#include "base/machine.h"

enum { SAVE_PROCESS_TEXT = MACHINE_TEXT };

/* Texts without spaces; "": unknown. */
struct save_process {
    char host[SAVE_PROCESS_TEXT];
    char boot[SAVE_PROCESS_TEXT];  /* the machine's, since it was started last */
    char space[SAVE_PROCESS_TEXT]; /* its pid namespace */
    uint64_t pid;
    uint64_t started; /* clock ticks after the boot; 0: unknown */
    uint64_t library; /* distinguishes copies of this library in one process */
};

enum save_process_fate {
    SAVE_PROCESS_THIS, /* it is this process, with the same copy of the library */
    SAVE_PROCESS_RUNS,
    SAVE_PROCESS_GONE,
    SAVE_PROCESS_ELSEWHERE /* it is on another machine: nothing is known */
};

void save_process_find(struct save_process *self);
enum save_process_fate save_process_look(const struct save_process *process);

#endif
