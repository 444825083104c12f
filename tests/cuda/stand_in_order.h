/* SPDX-License-Identifier: BSD-3-Clause */
/* Which work on the stand-in device is certain to come after which. The host and each stream count
 * their steps and know how far the others had come for certain: through a stream's order, events,
 * and waiting. Two uses of one block, one of which writes, that are not in such an order end the
 * test, however they happened to run. */
#ifndef CUDA_STAND_IN_ORDER_H
#define CUDA_STAND_IN_ORDER_H

#include <stdbool.h>

#define ORDER_STREAMS 64

/* By stream: how many of its steps are certain to be done. */
struct order {
    unsigned long seen[ORDER_STREAMS];
};

void order_begin(void);
/* The number of a new stream. */
int order_stream_new(void);
/* A further step of a stream, which uses memory of the device (NULL: none). */
void order_step(int stream, const void *memory, bool writes);
/* What is certain when a stream has come to where it is now. */
void order_record(int stream, struct order *order);
/* The stream's further steps, or those of all streams that the host adds later, come after. */
void order_follow(int stream, const struct order *order);
void order_wait(const struct order *order);

#endif
