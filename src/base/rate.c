/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/rate.h"

#include "base/clock.h"

#define NS_PER_SECOND INT64_C(1000000000)
#define SAVED_NS      (NS_PER_SECOND / 20)

void rate_init(struct rate *rate, uint64_t bytes_per_second)
{
    *rate = (struct rate){.bytes_per_second = bytes_per_second,
                          .paid_until_ns = clock_monotonic_ns() - SAVED_NS};
    pthread_mutex_init(&rate->mutex, NULL);
}

void rate_free(struct rate *rate)
{
    pthread_mutex_destroy(&rate->mutex);
}

/* The time that the bytes take at the rate, limited to some years. */
static int64_t price(const struct rate *rate, uint64_t bytes)
{
    double ns = (double)bytes / (double)rate->bytes_per_second * (double)NS_PER_SECOND;
    return ns < (double)(INT64_MAX / 8) ? (int64_t)ns : INT64_MAX / 8;
}

void rate_take(struct rate *rate, uint64_t bytes)
{
    if (rate == NULL || rate->bytes_per_second == 0)
        return;
    int64_t now = clock_monotonic_ns();
    pthread_mutex_lock(&rate->mutex);
    int64_t start = rate->paid_until_ns;
    if (start < now - SAVED_NS)
        start = now - SAVED_NS;
    if (start > INT64_MAX / 2)
        start = INT64_MAX / 2;
    rate->paid_until_ns = start + price(rate, bytes);
    pthread_mutex_unlock(&rate->mutex);
    clock_sleep_ns(start - now);
}
