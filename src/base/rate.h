/* SPDX-License-Identifier: BSD-3-Clause */
/* A limit on bytes per second that several threads share: a token bucket that holds at most a
 * twentieth of a second's bytes. */
#ifndef BASE_RATE_H
#define BASE_RATE_H

#include <pthread.h>
#include <stdint.h>

struct rate {
    uint64_t bytes_per_second; /* 0: no limit */
    pthread_mutex_t mutex;
    int64_t paid_until_ns; /* guarded; when the bytes taken so far are paid for */
};

void rate_init(struct rate *rate, uint64_t bytes_per_second);
void rate_free(struct rate *rate);
/* Sleeps until so many bytes may begin to move. NULL: no limit. */
void rate_take(struct rate *rate, uint64_t bytes);

#endif
