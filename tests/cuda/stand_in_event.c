/* SPDX-License-Identifier: BSD-3-Clause */
/* Events: marks in streams, for the host and other streams to wait for. */
#include <stdlib.h>

#include "cuda/stand_in_order.h"
#include "cuda/stand_in_runtime.h"

struct CUevent_st {
    /* How often; a record that streams came to is as good as those before. */
    long recorded, reached;
    long references; /* the library's, and records: events may be destroyed before these */
    struct order order;
    struct CUevent_st *next, **link; /* of all: those that nobody destroys are the runtime's */
};

static struct CUevent_st *events;

/* A record of an event, for streams to come to or to wait for: later ones do not matter to it. */
struct record {
    struct CUevent_st *event;
    long number;
};

static pthread_cond_t event_changed = PTHREAD_COND_INITIALIZER;

static struct record *record_new(struct CUevent_st *event, bool further)
{
    struct record *record = malloc(sizeof *record);
    if (!record)
        abort();
    pthread_mutex_lock(&runtime.lock);
    event->recorded += further;
    event->references++;
    *record = (struct record){event, event->recorded};
    pthread_mutex_unlock(&runtime.lock);
    return record;
}

/* With the lock held. */
static void event_release(struct CUevent_st *event)
{
    if (--event->references > 0)
        return;
    *event->link = event->next;
    if (event->next)
        event->next->link = event->link;
    free(event);
}

/* With the lock held. */
static void record_free(struct record *record)
{
    event_release(record->event);
    free(record);
}

static void event_reached(void *argument)
{
    struct record *record = argument;
    pthread_mutex_lock(&runtime.lock);
    if (record->event->reached < record->number)
        record->event->reached = record->number;
    pthread_cond_broadcast(&event_changed);
    record_free(record);
    pthread_mutex_unlock(&runtime.lock);
}

static void event_await(void *argument)
{
    struct record *record = argument;
    pthread_mutex_lock(&runtime.lock);
    while (record->event->reached < record->number)
        pthread_cond_wait(&event_changed, &runtime.lock);
    record_free(record);
    pthread_mutex_unlock(&runtime.lock);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    cudaError_t code = runtime_enter(__func__);
    (void)flags;
    if (code != cudaSuccess)
        return code;
    *event = calloc(1, sizeof **event);
    if (!*event)
        abort();
    pthread_mutex_lock(&runtime.lock);
    **event = (struct CUevent_st){.references = 1, .next = events, .link = &events};
    if (events)
        events->link = &(*event)->next;
    events = *event;
    runtime.made++;
    pthread_mutex_unlock(&runtime.lock);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t code = runtime_enter(__func__);
    pthread_mutex_lock(&runtime.lock);
    runtime.made--;
    event_release(event);
    pthread_mutex_unlock(&runtime.lock);
    return code;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    cudaError_t code = runtime_enter(__func__);
    if (code != cudaSuccess)
        return code;
    struct CUstream_st *stream = stream_of(handle);
    order_step(stream->number, NULL, false);
    order_record(stream->number, &event->order);
    stream_add(stream, event_reached, record_new(event, true));
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int flags)
{
    cudaError_t code = runtime_enter(__func__);
    if (code != cudaSuccess)
        return code;
    if (flags != 0)
        abort();
    struct CUstream_st *stream = stream_of(handle);
    order_follow(stream->number, &event->order);
    stream_add(stream, event_await, record_new(event, false));
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t code = runtime_enter(__func__);
    event_await(record_new(event, false));
    order_wait(&event->order);
    return code;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t code = runtime_enter(__func__);
    pthread_mutex_lock(&runtime.lock);
    bool pending = event->reached < event->recorded;
    pthread_mutex_unlock(&runtime.lock);
    if (!pending)
        order_wait(&event->order);
    return code != cudaSuccess ? code : pending ? cudaErrorNotReady : cudaSuccess;
}
