/* SPDX-License-Identifier: BSD-3-Clause */
/* A rate over a clock that only sleeping moves: how long bytes take is then exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/rate.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int64_t now_ns, slept_ns;

static int64_t now(void *context)
{
    (void)context;
    pthread_mutex_lock(&mutex);
    int64_t ns = now_ns;
    pthread_mutex_unlock(&mutex);
    return ns;
}

static void sleep_for(void *context, int64_t duration)
{
    (void)context;
    pthread_mutex_lock(&mutex);
    now_ns += duration;
    slept_ns += duration;
    pthread_mutex_unlock(&mutex);
}

static int start_clock(void **state)
{
    (void)state;
    static const struct clock_source source = {now, now, sleep_for, NULL};
    now_ns = 1000000000000;
    slept_ns = 0;
    clock_replace(&source);
    return 0;
}

static int stop_clock(void **state)
{
    (void)state;
    clock_replace(NULL);
    return 0;
}

static void test_bytes_take_their_time(void **state)
{
    (void)state;
    struct rate rate;
    rate_init(&rate, 1000000);
    for (int i = 0; i < 100; i++)
        rate_take(&rate, 10000);
    /* A million bytes, less the last piece and what had been saved up. */
    assert_int_equal(slept_ns, 1000000000 - 10000000 - 50000000);
    rate_free(&rate);
}

static void test_idle_time_is_not_saved_for_long(void **state)
{
    (void)state;
    struct rate rate;
    rate_init(&rate, 1000);
    now_ns += INT64_C(3600) * 1000000000;
    rate_take(&rate, 1000);
    assert_int_equal(slept_ns, 0);
    rate_take(&rate, 1);
    assert_int_equal(slept_ns, 950000000);
    rate_free(&rate);
}

static void test_no_limit(void **state)
{
    (void)state;
    struct rate rate;
    rate_init(&rate, 0);
    rate_take(&rate, UINT64_MAX);
    rate_take(&rate, UINT64_MAX);
    rate_take(NULL, 5);
    assert_int_equal(slept_ns, 0);
    rate_free(&rate);
}

static void test_extremes(void **state)
{
    (void)state;
    struct rate rate;
    rate_init(&rate, 1);
    for (int i = 0; i < 30; i++)
        rate_take(&rate, UINT64_MAX);
    assert_true(slept_ns > 0 && now_ns > 0);
    rate_free(&rate);
    rate_init(&rate, UINT64_MAX);
    slept_ns = 0;
    rate_take(&rate, 1 << 20);
    rate_take(&rate, 1 << 20);
    assert_int_equal(slept_ns, 0);
    rate_free(&rate);
}

static void *take_many(void *context)
{
    for (int i = 0; i < 1000; i++)
        rate_take(context, 1000);
    return NULL;
}

static void test_threads_share_it(void **state)
{
    (void)state;
    struct rate rate;
    pthread_t threads[4];
    int64_t began_ns = now_ns;
    rate_init(&rate, 1000000);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_many, &rate), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(now_ns - began_ns >= 3900000000);
    rate_free(&rate);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, start_clock, stop_clock)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bytes_take_their_time),
        TEST(test_idle_time_is_not_saved_for_long),
        TEST(test_no_limit),
        TEST(test_extremes),
        TEST(test_threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
