/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that are called when a save has ended. */
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/async/async.h"

struct future_listener {
    dcp_future_done_function function;
    void *context;
    struct future_listener *next;
};

/* In the order in which they were added. Keeps the calling thread's error. */
static void call_listeners(struct future_listener *listeners, const struct saved_error *error)
{
    struct saved_error kept;
    error_save(&kept);
    while (listeners) {
        struct future_listener *next = listeners->next;
        listeners->function(listeners->context, error->status, error->text);
        memory_release(listeners);
        listeners = next;
    }
    error_restore(&kept);
}

/* A function may wait for the save or free the future; the thread must not join itself then. */
void future_notify(dcp_future *future, struct future_listener *listeners,
                   const struct saved_error *error)
{
    if (!listeners)
        return;
    pthread_mutex_lock(&future->mutex);
    future->notifies = true;
    future->notifier = pthread_self();
    pthread_mutex_unlock(&future->mutex);
    call_listeners(listeners, error);
    pthread_mutex_lock(&future->mutex);
    future->notifies = false;
    pthread_mutex_unlock(&future->mutex);
}

bool future_is_notifier(const dcp_future *future)
{
    return future->notifies && pthread_equal(future->notifier, pthread_self());
}

/* Adds a listener; false if the save is over already. */
static bool add(dcp_future *future, struct future_listener *listener)
{
    pthread_mutex_lock(&future->mutex);
    bool goes_on = future->state < DCP_FUTURE_DONE;
    if (goes_on) {
        struct future_listener **place = &future->listeners;
        while (*place)
            place = &(*place)->next;
        *place = listener;
    } else {
        future->heard = true;
    }
    pthread_mutex_unlock(&future->mutex);
    return goes_on;
}

dcp_status dcp_future_on_done(dcp_future *future, dcp_future_done_function function, void *context)
{
    if (!future || !function)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_future_on_done: %s is NULL",
                             future ? "function" : "future");
    struct future_listener *listener = memory_allocate(sizeof *listener);
    if (!listener)
        return error_no_memory(sizeof *listener, "a function to call when a save has ended");
    *listener = (struct future_listener){.function = function, .context = context};
    if (!add(future, listener)) {
        /* It may free the future, so copy the error, which no longer changes. */
        struct saved_error error = future->error;
        call_listeners(listener, &error);
    }
    return DCP_OK;
}
