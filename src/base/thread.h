/* SPDX-License-Identifier: BSD-3-Clause */
/* Running a piece of work on several threads and waiting for all. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "base/memory_account.h"
#include "dcp/status.h"

typedef dcp_status (*thread_work)(void *context, size_t index);

/* Calls work(context, 0 .. count-1), on at most thread_count threads, the calling one among them.
 * Returns the failure with the lowest index, with its story, after all work that was started has
 * ended; after a failure no new work starts. */
dcp_status thread_run(size_t count, size_t thread_count, thread_work work, void *context);

/* Processors that the calling thread may run on; at least 1. */
size_t thread_processor_count(void);

/* Enough for what runs here, progress functions and device copies of the caller included. */
#define THREAD_STACK_SIZE ((size_t)512 << 10)

struct thread {
    pthread_t id;
    void *(*run)(void *);
    void *argument;
    struct memory_account *account; /* that it works for, and that pays for its stack */
};

/* Starts a thread that takes none of the process's signals and has a small stack. *thread must stay
 * where it is. Returns 0 or an errno value. */
int thread_start(struct thread *thread, void *(*run)(void *), void *argument);
void thread_join(struct thread *thread);
/* In the place of joining, by the thread itself, which ends soon. */
void thread_leave(struct thread *thread);

#endif
