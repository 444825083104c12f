/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/io_pool.h"

#include <pthread.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

/* Enough to have one transfer ready while another is under way; file systems write one file by one
 * thread at a time anyway, unless directly. */
#define THREADS 2

struct io_pool {
    const struct file_ops *ops;
    struct thread threads[THREADS];
    size_t thread_count;
    pthread_mutex_t mutex; /* over what follows, and over the transfers */
    pthread_cond_t given;
    pthread_cond_t complete;
    struct io_transfer *first;
    struct io_transfer **end;
    bool closing;
};

void io_transfer_write_back(const struct file_ops *ops, const struct io_transfer *transfer)
{
    /* A hint: whether the bytes arrive is told by the sync. */
    if (transfer->write_back && transfer->error == 0 && ops->write_back)
        ops->write_back(ops->context, transfer->what.descriptor, transfer->what.offset,
                        transfer->done);
}

void io_transfer_run(const struct file_ops *ops, struct io_transfer *transfer)
{
    const struct file_transfer *what = &transfer->what;
    if (what->write)
        transfer->error = ops->pwrite(ops->context, what->descriptor, what->bytes, what->size,
                                      what->offset, &transfer->done);
    else
        transfer->error = ops->pread(ops->context, what->descriptor, what->bytes, what->size,
                                     what->offset, &transfer->done);
    io_transfer_write_back(ops, transfer);
}

/* Waits for a transfer; NULL when the pool is closing and nothing is left. */
static struct io_transfer *take(struct io_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    while (!pool->first && !pool->closing)
        pthread_cond_wait(&pool->given, &pool->mutex);
    struct io_transfer *transfer = pool->first;
    if (transfer) {
        pool->first = transfer->next;
        if (!pool->first)
            pool->end = &pool->first;
    }
    pthread_mutex_unlock(&pool->mutex);
    return transfer;
}

static void *run(void *argument)
{
    struct io_pool *pool = argument;
    struct io_transfer *transfer;
    while ((transfer = take(pool))) {
        io_transfer_run(pool->ops, transfer);
        pthread_mutex_lock(&pool->mutex);
        transfer->pending = false;
        pthread_cond_signal(&pool->complete);
        pthread_mutex_unlock(&pool->mutex);
    }
    return NULL;
}

dcp_status io_pool_open(const struct file_ops *ops, uint32_t thread_count, struct io_pool **opened)
{
    struct io_pool *pool = memory_allocate_zeroed(1, sizeof *pool);
    if (!pool)
        return error_no_memory(sizeof *pool, "a pool of threads");
    pool->ops = ops;
    pool->end = &pool->first;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->given, NULL);
    pthread_cond_init(&pool->complete, NULL);
    size_t wanted = thread_count == 0 || thread_count > THREADS ? THREADS : thread_count;
    while (pool->thread_count < wanted &&
           thread_start(&pool->threads[pool->thread_count], run, pool) == 0)
        pool->thread_count++;
    *opened = pool;
    return DCP_OK;
}

uint64_t io_pool_memory(void)
{
    return sizeof(struct io_pool) + THREADS * (uint64_t)THREAD_STACK_SIZE + 1024;
}

void io_pool_submit(struct io_pool *pool, struct io_transfer *transfer)
{
    /* The system may have refused every thread. */
    if (pool->thread_count == 0) {
        io_transfer_run(pool->ops, transfer);
        transfer->pending = false;
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    *pool->end = transfer;
    pool->end = &transfer->next;
    pthread_cond_signal(&pool->given);
    pthread_mutex_unlock(&pool->mutex);
}

void io_pool_wait(struct io_pool *pool, const struct io_transfer *transfer)
{
    pthread_mutex_lock(&pool->mutex);
    while (transfer->pending)
        pthread_cond_wait(&pool->complete, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

void io_pool_close(struct io_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->closing = true;
    pthread_cond_broadcast(&pool->given);
    pthread_mutex_unlock(&pool->mutex);
    for (size_t i = 0; i < pool->thread_count; i++)
        thread_join(&pool->threads[i]);
    pthread_cond_destroy(&pool->complete);
    pthread_cond_destroy(&pool->given);
    pthread_mutex_destroy(&pool->mutex);
    memory_release(pool);
}
