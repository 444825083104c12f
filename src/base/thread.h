/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs work on several threads and waits for all of them. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "base/memory_account.h"
#include "dcp/status.h"

typedef dcp_status (*thread_work)(void *context, size_t index);

/* Calls work(context, 0 .. count-1) on at most thread_count threads, including the calling one.
 * After a failure no new work starts. Returns after all started work has ended: the failure with
 * the lowest index, with its message. */
dcp_status thread_run(size_t count, size_t thread_count, thread_work work, void *context);

/* The same for work that prepares for the next index before it has ended. */
struct thread_turn;
typedef dcp_status (*thread_turn_work)(void *context, size_t index, struct thread_turn *turn);
dcp_status thread_run_turns(size_t count, size_t thread_count, thread_turn_work work,
                            void *context);
/* Takes the next index for the calling thread, once in a turn. The count if there is none, or if
 * another thread would have none to do. */
size_t thread_turn_take_next(struct thread_turn *turn);

/* Processors that the calling thread may run on; at least 1. */
size_t thread_processor_count(void);

/* Enough for the work here, including the caller's progress functions and device copies. */
#define THREAD_STACK_SIZE ((size_t)512 << 10)

struct thread {
    pthread_t id;
    void *(*run)(void *);
    void *argument;
    struct memory_account *account; /* the account that it works for; its stack is charged there */
};

/* Starts a thread that takes none of the process's signals and has a small stack. *thread must stay
 * where it is. Returns 0 or an errno value. */
int thread_start(struct thread *thread, void *(*run)(void *), void *argument);
void thread_join(struct thread *thread);
/* Instead of joining: called by the thread itself, shortly before it ends. */
void thread_leave(struct thread *thread);

#endif
