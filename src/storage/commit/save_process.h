/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes, as saves name themselves to each other: known on their machine by pid and start, on
 * others not at all. */
#ifndef STORAGE_COMMIT_SAVE_PROCESS_H
#define STORAGE_COMMIT_SAVE_PROCESS_H

#include <stdint.h>

enum { SAVE_PROCESS_TEXT = 72 };

/* Texts without spaces; "": not known. */
struct save_process {
    char host[SAVE_PROCESS_TEXT];
    char boot[SAVE_PROCESS_TEXT];  /* the machine's, since it was started last */
    char space[SAVE_PROCESS_TEXT]; /* in which its pid counts */
    uint64_t pid;
    uint64_t started; /* clock ticks after the boot; 0: not known */
    uint64_t library; /* tells the copies of this library in one process apart */
};

enum save_process_fate {
    SAVE_PROCESS_THIS, /* it is the one that asks, by the same copy of the library */
    SAVE_PROCESS_RUNS,
    SAVE_PROCESS_GONE,
    SAVE_PROCESS_ELSEWHERE /* nothing is known of it from here */
};

void save_process_find(struct save_process *self);
enum save_process_fate save_process_look(const struct save_process *process);

#endif
