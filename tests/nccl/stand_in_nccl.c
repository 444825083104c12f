/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/stand_in_nccl.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/stand_in_cuda.h"
#include "device/stand_in.h"

/* What all ranks share. */
struct job {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, arrived;
    unsigned long round;
    bool aborted;
    const unsigned char *sent[STAND_IN_RANKS_MAX];
    ncclComm_t communicators[STAND_IN_RANKS_MAX];
    /* What a rank has posted for another and that has not taken yet. */
    struct message {
        const unsigned char *bytes;
        size_t size;
    } posted[STAND_IN_RANKS_MAX][STAND_IN_RANKS_MAX];
};

struct ncclComm {
    struct job *job;
    int rank;
    const char *failing_name;
    long failing_call;
    ncclResult_t failing_code;
    ncclResult_t state;
    int linger, lingering;
};

struct collective {
    ncclComm_t communicator;
    const unsigned char *send;
    unsigned char *receive;
    size_t bytes;
    int root; /* -1: all gather */
};

void stand_in_nccl_new(int size, ncclComm_t *communicators)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job || size > STAND_IN_RANKS_MAX)
        abort();
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
    job->size = size;
    for (int r = 0; r < size; r++) {
        struct ncclComm *communicator = calloc(1, sizeof *communicator);
        if (!communicator)
            abort();
        *communicator = (struct ncclComm){.job = job, .rank = r, .failing_name = ""};
        communicators[r] = job->communicators[r] = communicator;
    }
}

void stand_in_nccl_abort(ncclComm_t communicator)
{
    struct job *job = communicator->job;
    pthread_mutex_lock(&job->lock);
    job->aborted = true;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

void stand_in_nccl_free(ncclComm_t communicator)
{
    struct job *job = communicator->job;
    for (int r = 0; r < job->size; r++)
        free(job->communicators[r]);
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

void stand_in_nccl_fail(ncclComm_t communicator, const char *function, long n, ncclResult_t code)
{
    communicator->failing_name = function;
    communicator->failing_call = n;
    communicator->failing_code = code;
}

void stand_in_nccl_set_state(ncclComm_t communicator, ncclResult_t state)
{
    communicator->state = state;
}

void stand_in_nccl_linger(ncclComm_t communicator, int times)
{
    communicator->linger = times;
}

static ncclResult_t enter(ncclComm_t communicator, const char *name)
{
    bool fails = strcmp(name, communicator->failing_name) == 0 && --communicator->failing_call == 0;
    return fails ? communicator->failing_code : ncclSuccess;
}

/* Waits for all ranks; false after an abort. */
static bool meet(struct job *job)
{
    pthread_mutex_lock(&job->lock);
    unsigned long round = job->round;
    if (++job->arrived == job->size) {
        job->arrived = 0;
        job->round++;
        pthread_cond_broadcast(&job->changed);
    }
    while (job->round == round && !job->aborted)
        pthread_cond_wait(&job->changed, &job->lock);
    bool met = job->round != round;
    pthread_mutex_unlock(&job->lock);
    return met;
}

/* The kernel. */
static void run_collective(void *argument)
{
    struct collective *collective = argument;
    struct ncclComm *communicator = collective->communicator;
    struct job *job = communicator->job;
    pthread_mutex_lock(&job->lock);
    job->sent[communicator->rank] = collective->send;
    pthread_mutex_unlock(&job->lock);
    if (meet(job)) {
        size_t bytes = collective->bytes;
        for (int r = 0; r < job->size; r++)
            if (collective->root < 0 && collective->receive + (size_t)r * bytes != job->sent[r])
                memcpy(collective->receive + (size_t)r * bytes, job->sent[r], bytes);
        if (collective->root >= 0 && collective->root != communicator->rank)
            memcpy(collective->receive, job->sent[collective->root], bytes);
        meet(job);
    }
    free(collective);
}

static ncclResult_t begin(ncclComm_t communicator, const char *name, const void *send,
                          void *receive, size_t bytes, int root, cudaStream_t stream)
{
    ncclResult_t code = enter(communicator, name);
    struct collective *collective = malloc(sizeof *collective);
    if (!collective || stand_in_current() != communicator->rank)
        abort();
    *collective = (struct collective){communicator, stand_in_bytes((void *)send),
                                      stand_in_bytes(receive), bytes, root};
    if (code != ncclSuccess) {
        free(collective);
        return code;
    }
    stand_in_stream_run(stream, run_collective, collective);
    communicator->lingering = communicator->linger;
    return communicator->linger > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream)
{
    if (type != ncclUint8)
        abort();
    return begin(communicator, __func__, send, receive, count, -1, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream)
{
    if (type != ncclUint8)
        abort();
    return begin(communicator, __func__, send, receive, count, root, stream);
}

/* Sends and receives between ncclGroupStart and ncclGroupEnd, at most one to and one from each. */
struct messages {
    ncclComm_t communicator;
    cudaStream_t stream;
    struct message sent[STAND_IN_RANKS_MAX];
    struct {
        unsigned char *bytes;
        size_t size;
    } received[STAND_IN_RANKS_MAX];
    ncclResult_t code;
};

static _Thread_local struct messages *grouped;

static void post_messages(struct messages *messages)
{
    struct job *job = messages->communicator->job;
    for (int r = 0; r < job->size; r++)
        if (messages->sent[r].size != 0)
            job->posted[messages->communicator->rank][r] = messages->sent[r];
    pthread_cond_broadcast(&job->changed);
}

/* The kernel: takes what is posted for it, and stays until all of its own are taken. */
static void run_messages(void *argument)
{
    struct messages *messages = argument;
    struct job *job = messages->communicator->job;
    int rank = messages->communicator->rank;
    pthread_mutex_lock(&job->lock);
    post_messages(messages);
    for (int r = 0; r < job->size; r++) {
        size_t size = messages->received[r].size;
        while (size != 0 && job->posted[r][rank].size == 0 && !job->aborted)
            pthread_cond_wait(&job->changed, &job->lock);
        if (size == 0 || job->aborted)
            continue;
        if (job->posted[r][rank].size != size)
            abort();
        memcpy(messages->received[r].bytes, job->posted[r][rank].bytes, size);
        job->posted[r][rank] = (struct message){0};
        pthread_cond_broadcast(&job->changed);
    }
    for (int r = 0; r < job->size; r++)
        while (job->posted[rank][r].size != 0 && !job->aborted)
            pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
    free(messages);
}

/* The header declares these without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    if (grouped)
        abort();
    grouped = calloc(1, sizeof *grouped);
    if (!grouped)
        abort();
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream)
{
    if (type != ncclUint8 || !grouped || count == 0 || stand_in_current() != communicator->rank)
        abort();
    grouped->communicator = communicator;
    grouped->stream = stream;
    grouped->sent[peer] = (struct message){stand_in_bytes((void *)send), count};
    return grouped->code = enter(communicator, __func__);
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream)
{
    if (type != ncclUint8 || !grouped || count == 0 || stand_in_current() != communicator->rank)
        abort();
    grouped->communicator = communicator;
    grouped->stream = stream;
    grouped->received[peer].bytes = stand_in_bytes(receive);
    grouped->received[peer].size = count;
    return grouped->code = enter(communicator, __func__);
}

ncclResult_t ncclGroupEnd(void)
{
    struct messages *messages = grouped;
    grouped = NULL;
    ncclComm_t communicator = messages->communicator;
    ncclResult_t code = messages->code;
    if (code == ncclSuccess && communicator)
        code = enter(communicator, __func__);
    if (code != ncclSuccess || !communicator) {
        free(messages);
        return code;
    }
    stand_in_stream_run(messages->stream, run_messages, messages);
    communicator->lingering = communicator->linger;
    return communicator->linger > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *state)
{
    *state = communicator->lingering > 0 ? ncclInProgress : communicator->state;
    if (communicator->lingering > 0)
        communicator->lingering--;
    return enter(communicator, __func__);
}

ncclResult_t ncclCommCount(const ncclComm_t communicator, int *count)
{
    *count = communicator->job->size;
    return enter(communicator, __func__);
}

ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int *rank)
{
    *rank = communicator->rank;
    return enter(communicator, __func__);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t communicator, int *device)
{
    *device = communicator->rank;
    return enter(communicator, __func__);
}

const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "unhandled system error";
}

const char *ncclGetLastError(ncclComm_t communicator)
{
    return communicator->rank == 0 ? "the stand-in's own words" : "";
}
