/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues whose transfers end late, and the last one first. */
#include <stdio.h>
#include <stdlib.h>

#include "storages/awkward_storage.h"

/* A transfer that has begun. */
struct task {
    dcp_storage_transfer *transfer; /* NULL: the place is free */
    unsigned long number;           /* of all that the queue was given */
    bool taken, complete;
    dcp_status status;
    char message[256];
};

struct awkward_queue {
    struct awkward_storage *storage;
    pthread_t thread;
    pthread_mutex_t mutex; /* over what follows, and over tasks */
    pthread_cond_t changed;
    bool closing;
    unsigned long given;
    unsigned depth;
    struct task tasks[];
};

/* The last that was given, of those that wait. The mutex is held. */
static struct task *find_last(struct awkward_queue *queue)
{
    struct task *last = NULL;
    for (unsigned i = 0; i < queue->depth; i++) {
        struct task *task = &queue->tasks[i];
        if (task->transfer && !task->taken && (!last || task->number > last->number))
            last = task;
    }
    return last;
}

static void move_bytes(struct awkward_queue *queue, struct task *task)
{
    const dcp_storage_transfer *what = task->transfer;
    dcp_error_set(DCP_OK, "%s", "");
    task->status =
        what->write
            ? awkward_write(queue->storage, what->file, what->bytes, what->size, what->offset)
            : awkward_read(queue->storage, what->file, what->bytes, what->size, what->offset);
    snprintf(task->message, sizeof task->message, "%s", dcp_error_message());
}

static void *work(void *argument)
{
    struct awkward_queue *queue = argument;
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        struct task *task = find_last(queue);
        if (!task && queue->closing)
            break;
        if (!task) {
            pthread_cond_wait(&queue->changed, &queue->mutex);
            continue;
        }
        task->taken = true;
        pthread_mutex_unlock(&queue->mutex);
        move_bytes(queue, task);
        pthread_mutex_lock(&queue->mutex);
        task->complete = true;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

dcp_status awkward_queue_open(void *context, void *directory, unsigned depth,
                              const dcp_storage_access *access, void **opened)
{
    struct awkward_storage *storage = context;
    (void)directory;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_QUEUE_OPEN);
    if (status == DCP_OK && access->io & DCP_IO_RING)
        status = dcp_error_set(DCP_ERR_UNSUPPORTED, "there is no io_uring here");
    struct awkward_queue *queue =
        status == DCP_OK ? calloc(1, sizeof *queue + depth * sizeof queue->tasks[0]) : NULL;
    if (!queue) {
        *opened = &storage->open; /* which is no queue */
        return status == DCP_OK ? dcp_error_set(DCP_ERR_NO_MEMORY, "no memory") : status;
    }
    queue->storage = storage;
    queue->depth = depth;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->changed, NULL);
    if (pthread_create(&queue->thread, NULL, work, queue) != 0)
        abort();
    awkward_storage_count_open(storage, 1);
    *opened = queue;
    return DCP_OK;
}

/* More than the depth at a time would break what the table promises. */
void awkward_queue_start(void *context, void *opened, dcp_storage_transfer *transfer)
{
    struct awkward_queue *queue = opened;
    unsigned free_one = 0;
    (void)context;
    pthread_mutex_lock(&queue->mutex);
    while (free_one < queue->depth && queue->tasks[free_one].transfer)
        free_one++;
    if (free_one == queue->depth)
        abort();
    struct task *task = &queue->tasks[free_one];
    *task = (struct task){.transfer = transfer, .number = queue->given++};
    transfer->own = task;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

dcp_status awkward_queue_finish(void *context, void *opened, dcp_storage_transfer *transfer)
{
    struct awkward_queue *queue = opened;
    struct task *task = transfer->own;
    (void)context;
    pthread_mutex_lock(&queue->mutex);
    while (!task->complete)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    dcp_status status = task->status;
    if (status != DCP_OK && task->message[0])
        dcp_error_set(DCP_ERR_IO, "%s", task->message);
    task->transfer = NULL;
    transfer->own = NULL;
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

void awkward_queue_close(void *context, void *opened)
{
    struct awkward_queue *queue = opened;
    pthread_mutex_lock(&queue->mutex);
    queue->closing = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    pthread_join(queue->thread, NULL);
    pthread_mutex_destroy(&queue->mutex);
    pthread_cond_destroy(&queue->changed);
    awkward_storage_count_open(context, -1);
    free(queue);
}
