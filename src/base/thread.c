/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/memory.h"

struct crew {
    thread_work work; /* or */
    thread_turn_work turn_work;
    void *context;
    size_t count;
    size_t threads;
    pthread_mutex_t mutex;
    size_t next;   /* guarded, as all below */
    size_t failed; /* lowest index that failed; count: none */
    struct saved_error error;
};

struct thread_turn {
    struct crew *crew;
    size_t next; /* that was taken; count: none */
};

/* The count if fewer than `leave` indices are left, or if something failed. */
static size_t take_index(struct crew *crew, size_t leave)
{
    size_t index = crew->count;
    pthread_mutex_lock(&crew->mutex);
    if (crew->count - crew->next >= leave && crew->failed == crew->count)
        index = crew->next++;
    pthread_mutex_unlock(&crew->mutex);
    return index;
}

size_t thread_turn_take_next(struct thread_turn *turn)
{
    struct crew *crew = turn->crew;
    turn->next = take_index(crew, crew->threads);
    return turn->next;
}

/* An index that was taken is done after a failure of a higher one: it may fail as well. */
static size_t end_turn(const struct thread_turn *turn)
{
    struct crew *crew = turn->crew;
    if (turn->next == crew->count)
        return take_index(crew, 1);
    pthread_mutex_lock(&crew->mutex);
    size_t index = turn->next < crew->failed ? turn->next : crew->count;
    pthread_mutex_unlock(&crew->mutex);
    return index;
}

static void note_failure(struct crew *crew, size_t index, dcp_status status)
{
    pthread_mutex_lock(&crew->mutex);
    if (index < crew->failed) {
        crew->failed = index;
        error_save(&crew->error);
        crew->error.status = status;
    }
    pthread_mutex_unlock(&crew->mutex);
}

static void *crew_member(void *argument)
{
    struct crew *crew = argument;
    size_t index = take_index(crew, 1);
    while (index < crew->count) {
        struct thread_turn turn = {crew, crew->count};
        dcp_status status = crew->work ? crew->work(crew->context, index)
                                       : crew->turn_work(crew->context, index, &turn);
        if (status != DCP_OK)
            note_failure(crew, index, status);
        index = end_turn(&turn);
    }
    return NULL;
}

static void *begin(void *argument)
{
    const struct thread *thread = argument;
    memory_account_enter(thread->account);
    return thread->run(thread->argument);
}

/* Falls back to the system's stack size if the program's thread-local variables need more than
 * ours. */
static int create(struct thread *thread)
{
    pthread_attr_t attributes;
    int result = pthread_attr_init(&attributes);
    if (result != 0)
        return result;
    pthread_attr_setstacksize(&attributes, THREAD_STACK_SIZE);
    result = pthread_create(&thread->id, &attributes, begin, thread);
    pthread_attr_destroy(&attributes);
    return result == EINVAL ? pthread_create(&thread->id, NULL, begin, thread) : result;
}

size_t thread_processor_count(void)
{
    cpu_set_t processors;
    if (sched_getaffinity(0, sizeof processors, &processors) != 0)
        return 1;
    int count = CPU_COUNT(&processors);
    return count > 1 ? (size_t)count : 1;
}

int thread_start(struct thread *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    *thread =
        (struct thread){.run = run, .argument = argument, .account = memory_account_current()};
    if (!memory_account_charge(thread->account, THREAD_STACK_SIZE))
        return ENOMEM;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = create(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0)
        memory_account_discharge(thread->account, THREAD_STACK_SIZE);
    return result;
}

void thread_join(struct thread *thread)
{
    pthread_join(thread->id, NULL);
    memory_account_discharge(thread->account, THREAD_STACK_SIZE);
}

void thread_leave(struct thread *thread)
{
    pthread_detach(thread->id);
    memory_account_discharge(thread->account, THREAD_STACK_SIZE);
}

/* Starts up to `wanted` threads. Fewer are fine if the system refuses, as the calling thread works
 * too. */
static size_t start_members(struct crew *crew, struct thread *threads, size_t wanted)
{
    size_t started = 0;
    while (started < wanted && thread_start(&threads[started], crew_member, crew) == 0)
        started++;
    return started;
}

static dcp_status run_crew(struct crew *crew, size_t thread_count)
{
    if (thread_count > crew->count)
        thread_count = crew->count;
    size_t helpers = thread_count > 1 ? thread_count - 1 : 0;
    struct thread *threads = NULL;
    if (helpers != 0) {
        threads = memory_allocate_array(helpers, sizeof *threads);
        if (threads == NULL)
            return error_no_memory(helpers * sizeof *threads, "threads");
    }
    crew->threads = helpers + 1;
    crew->failed = crew->count;
    pthread_mutex_init(&crew->mutex, NULL);
    size_t started = start_members(crew, threads, helpers);
    crew_member(crew);
    for (size_t i = 0; i < started; i++)
        thread_join(&threads[i]);
    pthread_mutex_destroy(&crew->mutex);
    memory_release(threads);
    return crew->failed != crew->count ? error_restore(&crew->error) : DCP_OK;
}

dcp_status thread_run(size_t count, size_t thread_count, thread_work work, void *context)
{
    struct crew crew = {.work = work, .context = context, .count = count};
    return run_crew(&crew, thread_count);
}

dcp_status thread_run_turns(size_t count, size_t thread_count, thread_turn_work work, void *context)
{
    struct crew crew = {.turn_work = work, .context = context, .count = count};
    return run_crew(&crew, thread_count);
}
