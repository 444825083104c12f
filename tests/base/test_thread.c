/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "base/error.h"
#include "base/thread.h"
#include "fault/failing_allocator.h"

enum { WORK = 200 };

struct job {
    atomic_int done[WORK];
    atomic_int at_once;
    atomic_int most_at_once;
    atomic_bool signals_open;
    size_t fail_from; /* indices from here on fail */
    pthread_t caller;
};

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static dcp_status work(void *context, size_t index)
{
    struct job *job = context;
    int now = atomic_fetch_add(&job->at_once, 1) + 1;
    int most = atomic_load(&job->most_at_once);
    while (now > most && !atomic_compare_exchange_weak(&job->most_at_once, &most, now))
        ;
    if (!pthread_equal(pthread_self(), job->caller)) {
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, NULL, &blocked);
        if (!sigismember(&blocked, SIGTERM))
            atomic_store(&job->signals_open, true);
    }
    pause_briefly();
    atomic_fetch_add(&job->done[index], 1);
    atomic_fetch_sub(&job->at_once, 1);
    if (index >= job->fail_from)
        return dcp_error_set(DCP_ERR_IO, "work %zu failed", index);
    return DCP_OK;
}

/* Work that takes its next index first. */
static dcp_status turn_work(void *context, size_t index, struct thread_turn *turn)
{
    struct job *job = context;
    size_t next = thread_turn_take_next(turn);
    assert_true(next == WORK || (next > index && next < WORK));
    return work(job, index);
}

static dcp_status run(size_t threads, bool turns, struct job *job)
{
    return turns ? thread_run_turns(WORK, threads, turn_work, job)
                 : thread_run(WORK, threads, work, job);
}

static void everything_is_done_once(void **state)
{
    (void)state;
    static const size_t threads[] = {0, 1, 2, 5, 1000};
    for (size_t t = 0; t < 2 * sizeof threads / sizeof *threads; t++) {
        size_t most = threads[t / 2];
        struct job job = {.fail_from = WORK, .caller = pthread_self()};
        assert_int_equal(run(most, t % 2, &job), DCP_OK);
        for (size_t i = 0; i < WORK; i++)
            assert_int_equal(atomic_load(&job.done[i]), 1);
        assert_true((size_t)atomic_load(&job.most_at_once) <= (most ? most : 1));
        assert_false(atomic_load(&job.signals_open));
    }
    assert_int_equal(thread_run(0, 4, work, NULL), DCP_OK);
    assert_int_equal(thread_run_turns(0, 4, turn_work, NULL), DCP_OK);
}

/* Work that was taken before the failure may still be done. */
static void the_lowest_failure_is_returned_and_ends_the_work(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct job job = {.fail_from = 17, .caller = pthread_self()};
        error_clear();
        assert_int_equal(run(4, round % 2, &job), DCP_ERR_IO);
        assert_string_equal(dcp_error_message(), "work 17 failed");
        int done = 0;
        for (size_t i = 0; i < WORK; i++)
            done += atomic_load(&job.done[i]);
        assert_in_range(done, 18, 18 + (round % 2 ? 7 : 4));
    }
}

/* Work that waits for other work, for some seconds at most. */
struct meeting {
    atomic_size_t begun;
    size_t taken[4];
};

static void wait_for_two(struct meeting *meeting)
{
    for (int i = 0; i < 20000 && atomic_load(&meeting->begun) < 2; i++)
        pause_briefly();
}

static dcp_status meet(void *context, size_t index, struct thread_turn *turn)
{
    struct meeting *meeting = context;
    meeting->taken[index] = thread_turn_take_next(turn);
    atomic_fetch_add(&meeting->begun, 1);
    wait_for_two(meeting);
    return DCP_OK;
}

static void no_thread_takes_what_another_one_could_do(void **state)
{
    struct meeting meeting = {.begun = 0};
    (void)state;
    assert_int_equal(thread_run_turns(2, 2, meet, &meeting), DCP_OK);
    assert_int_equal(meeting.taken[0], 2);
    assert_int_equal(meeting.taken[1], 2);
}

/* The one with index 0 takes 1, and ends when 2 has failed. */
static dcp_status fail_late(void *context, size_t index, struct thread_turn *turn)
{
    struct meeting *meeting = context;
    if (index == 0)
        meeting->taken[0] = thread_turn_take_next(turn);
    atomic_fetch_add(&meeting->begun, 1);
    wait_for_two(meeting);
    if (index > 0)
        return dcp_error_set(DCP_ERR_IO, "work %zu failed", index);
    for (int i = 0; i < 200; i++)
        pause_briefly();
    return DCP_OK;
}

static void what_was_taken_may_fail_first(void **state)
{
    struct meeting meeting = {.begun = 0};
    (void)state;
    assert_int_equal(thread_run_turns(4, 2, fail_late, &meeting), DCP_ERR_IO);
    assert_int_equal(meeting.taken[0], 1);
    assert_string_equal(dcp_error_message(), "work 1 failed");
}

static void without_memory_nothing_starts(void **state)
{
    (void)state;
    struct job job = {.fail_from = WORK, .caller = pthread_self()};
    failing_allocator_install(1, false);
    assert_int_equal(thread_run(WORK, 4, work, &job), DCP_ERR_NO_MEMORY);
    assert_int_equal(failing_allocator_remove(), 0);
    assert_int_equal(atomic_load(&job.done[0]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_done_once),
        cmocka_unit_test(the_lowest_failure_is_returned_and_ends_the_work),
        cmocka_unit_test(no_thread_takes_what_another_one_could_do),
        cmocka_unit_test(what_was_taken_may_fail_first),
        cmocka_unit_test(without_memory_nothing_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
