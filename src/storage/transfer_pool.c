/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/transfer_pool.h"

#include <pthread.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

/* Enough to have one job ready while another is under way; file systems write one file by one
 * thread at a time anyway, unless directly. */
#define THREADS 2

struct transfer_pool {
    struct thread threads[THREADS];
    size_t thread_count;
    pthread_mutex_t mutex; /* over what follows, and over the jobs */
    pthread_cond_t given;
    pthread_cond_t complete;
    struct transfer_job *first;
    struct transfer_job **end;
    bool closing;
};

/* Waits for a job; NULL when the pool is closing and nothing is left. */
static struct transfer_job *take(struct transfer_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    while (!pool->first && !pool->closing)
        pthread_cond_wait(&pool->given, &pool->mutex);
    struct transfer_job *job = pool->first;
    if (job) {
        pool->first = job->next;
        if (!pool->first)
            pool->end = &pool->first;
    }
    pthread_mutex_unlock(&pool->mutex);
    return job;
}

static void *run(void *argument)
{
    struct transfer_pool *pool = argument;
    struct transfer_job *job;
    while ((job = take(pool))) {
        job->run(job);
        pthread_mutex_lock(&pool->mutex);
        job->pending = false;
        pthread_cond_signal(&pool->complete);
        pthread_mutex_unlock(&pool->mutex);
    }
    return NULL;
}

dcp_status transfer_pool_open(uint32_t thread_count, struct transfer_pool **opened)
{
    struct transfer_pool *pool = memory_allocate_zeroed(1, sizeof *pool);
    if (!pool)
        return error_no_memory(sizeof *pool, "a pool of threads");
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

uint64_t transfer_pool_memory(void)
{
    return sizeof(struct transfer_pool) + THREADS * (uint64_t)THREAD_STACK_SIZE + 1024;
}

void transfer_pool_submit(struct transfer_pool *pool, struct transfer_job *job)
{
    /* The system may have refused every thread. */
    if (pool->thread_count == 0) {
        job->run(job);
        return;
    }
    job->pending = true;
    job->next = NULL;
    pthread_mutex_lock(&pool->mutex);
    *pool->end = job;
    pool->end = &job->next;
    pthread_cond_signal(&pool->given);
    pthread_mutex_unlock(&pool->mutex);
}

void transfer_pool_wait(struct transfer_pool *pool, const struct transfer_job *job)
{
    pthread_mutex_lock(&pool->mutex);
    while (job->pending)
        pthread_cond_wait(&pool->complete, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

void transfer_pool_close(struct transfer_pool *pool)
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
