/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda/stand_in_order.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/stand_in.h"

#define BLOCKS 256

struct use {
    void *block;
    int writer; /* -1: not written yet */
    unsigned long written;
    unsigned long read[ORDER_STREAMS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct order streams[ORDER_STREAMS], host;
static int stream_count;
static struct use uses[BLOCKS];
static size_t use_count;

void order_begin(void)
{
    pthread_mutex_lock(&lock);
    memset(streams, 0, sizeof streams);
    memset(&host, 0, sizeof host);
    stream_count = 0;
    use_count = 0;
    pthread_mutex_unlock(&lock);
}

int order_stream_new(void)
{
    pthread_mutex_lock(&lock);
    int stream = stream_count++;
    pthread_mutex_unlock(&lock);
    if (stream >= ORDER_STREAMS)
        abort();
    return stream;
}

static void join(struct order *to, const struct order *from)
{
    for (int i = 0; i < ORDER_STREAMS; i++)
        if (to->seen[i] < from->seen[i])
            to->seen[i] = from->seen[i];
}

static struct use *use_of(void *block)
{
    for (size_t i = 0; i < use_count; i++)
        if (uses[i].block == block)
            return &uses[i];
    if (use_count == BLOCKS)
        abort();
    uses[use_count] = (struct use){.block = block, .writer = -1};
    return &uses[use_count++];
}

static void check(const struct use *use, int stream, bool writes)
{
    const struct order *order = &streams[stream];
    bool ordered = use->writer < 0 || order->seen[use->writer] >= use->written;
    for (int i = 0; i < stream_count && writes; i++)
        ordered = ordered && order->seen[i] >= use->read[i];
    if (ordered)
        return;
    fprintf(stderr, "stand-in CUDA: stream %d %s a block that another uses, in no certain order\n",
            stream, writes ? "writes" : "reads");
    abort();
}

void order_step(int stream, const void *memory, bool writes)
{
    void *block = memory ? stand_in_block(memory) : NULL;
    pthread_mutex_lock(&lock);
    struct order *order = &streams[stream];
    join(order, &host);
    order->seen[stream]++;
    if (block) {
        struct use *use = use_of(block);
        check(use, stream, writes);
        use->read[stream] = order->seen[stream];
        if (writes) {
            use->writer = stream;
            use->written = order->seen[stream];
        }
    }
    pthread_mutex_unlock(&lock);
}

void order_record(int stream, struct order *order)
{
    pthread_mutex_lock(&lock);
    *order = streams[stream];
    pthread_mutex_unlock(&lock);
}

void order_follow(int stream, const struct order *order)
{
    pthread_mutex_lock(&lock);
    join(&streams[stream], order);
    pthread_mutex_unlock(&lock);
}

void order_wait(const struct order *order)
{
    pthread_mutex_lock(&lock);
    join(&host, order);
    pthread_mutex_unlock(&lock);
}
