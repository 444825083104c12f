/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs of a check on threads: faults are reported on the calling thread, in the order of the jobs,
 * however many there are and whoever is first; failures and cancelling end it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "dcp.h"
#include "fault/failing_allocator.h"
#include "storage/verify/verify_crew.h"

enum { JOBS = 600, FAULTS = 7, MANY = 3000, THREADS = 5 };

struct trial {
    pthread_t caller;
    size_t many;     /* a job with so many faults that they are not kept until its turn */
    size_t fails;    /* JOBS: none */
    int tells;       /* until the caller wants no more; 0: all */
    uint64_t next;   /* number of the fault that is reported next */
    bool known;      /* set by job 0, for which all others wait */
    atomic_int done; /* jobs */
};

static size_t faults_of(const struct trial *trial, size_t index)
{
    return index == trial->many ? MANY : FAULTS;
}

static void pause_a_little(size_t index)
{
    const struct timespec time = {.tv_nsec = (long)(index * 7919 % 5) * 50000};
    nanosleep(&time, NULL);
}

static dcp_status work(void *context, struct verify_job *job, size_t index)
{
    struct trial *trial = context;
    pause_a_little(index);
    if (index == 0)
        verify_job_set(job, &trial->known);
    else if (!verify_job_await(job, &trial->known))
        return DCP_OK;
    for (size_t i = 0; i < faults_of(trial, index); i++) {
        char text[64];
        snprintf(text, sizeof text, "fault %zu of %zu, which is a sentence", i, index);
        verify_job_fault(job, "file", index, "a name", text);
    }
    atomic_fetch_add(&trial->done, 1);
    return index >= trial->fails ? dcp_error_set(DCP_ERR_BUSY, "job %zu", index) : DCP_OK;
}

static void take_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    struct trial *trial = context;
    char text[64];
    size_t index = 0, number = (size_t)trial->next++;
    while (number >= faults_of(trial, index))
        number -= faults_of(trial, index++);
    snprintf(text, sizeof text, "fault %zu of %zu, which is a sentence", number, index);
    assert_string_equal(fault, text);
    assert_string_equal(file, "file");
    assert_string_equal(name, "a name");
    assert_int_equal(offset, index);
    assert_true(pthread_equal(pthread_self(), trial->caller));
}

static bool tell(void *context)
{
    struct trial *trial = context;
    assert_true(pthread_equal(pthread_self(), trial->caller));
    return trial->tells == 0 || --trial->tells > 0;
}

static dcp_status run(struct trial *trial, size_t count, size_t threads)
{
    const struct verify_crew crew = {.work = work,
                                     .tell = tell,
                                     .report = take_fault,
                                     .context = trial,
                                     .report_context = trial};
    trial->caller = pthread_self();
    return verify_crew_run(&crew, count, threads);
}

static void test_faults_keep_their_order(void **state)
{
    (void)state;
    for (size_t threads = 1; threads <= THREADS; threads++) {
        struct trial trial = {.many = threads == 2 ? 0 : 300, .fails = JOBS};
        assert_int_equal(run(&trial, JOBS, threads), DCP_OK);
        assert_int_equal(trial.next, (JOBS - 1) * FAULTS + MANY);
        assert_int_equal(atomic_load(&trial.done), JOBS);
    }
}

static void test_nothing_to_do(void **state)
{
    (void)state;
    struct trial trial = {.fails = JOBS};
    assert_int_equal(run(&trial, 0, 1), DCP_OK);
    assert_int_equal(run(&trial, 0, THREADS), DCP_OK);
    assert_int_equal(trial.next, 0);
}

static void test_a_failure_ends_it(void **state)
{
    (void)state;
    for (size_t threads = 1; threads <= THREADS; threads++) {
        struct trial trial = {.many = JOBS, .fails = 20};
        assert_int_equal(run(&trial, JOBS, threads), DCP_ERR_BUSY);
        assert_string_equal(dcp_error_message(), "job 20");
        assert_true(atomic_load(&trial.done) < 21 + THREADS);
        assert_true(trial.next >= 20 * FAULTS);
    }
}

static void test_the_caller_ends_it(void **state)
{
    (void)state;
    struct trial trial = {.many = 0, .fails = JOBS, .tells = 2};
    assert_int_equal(run(&trial, JOBS, THREADS), DCP_ERR_CANCELLED);
}

static void test_without_memory(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct trial trial = {.many = JOBS, .fails = JOBS};
        failing_allocator_install(n, false);
        dcp_status status = run(&trial, 4, THREADS);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_keep_their_order), cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_a_failure_ends_it),       cmocka_unit_test(test_the_caller_ends_it),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
