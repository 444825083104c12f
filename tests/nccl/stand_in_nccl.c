/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/stand_in_nccl.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/stand_in_cuda.h"
#include "device/stand_in.h"

/* What all ranks share. */
struct job {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, arrived, handles;
    bool split;          /* made by one */
    bool programs;       /* made by the program that is tested, which destroys it as well */
    unsigned long round; /* that all have met */
    bool aborted;
    const unsigned char *sent[STAND_IN_RANKS_MAX];
    ncclComm_t communicators[STAND_IN_RANKS_MAX];
    /* What a rank has posted for another and that has not taken yet. */
    struct message {
        const unsigned char *bytes;
        size_t size;
    } posted[STAND_IN_RANKS_MAX][STAND_IN_RANKS_MAX];
    /* What ranks have asked a split for. */
    struct wish {
        int color, key;
        ncclComm_t *place;
    } wishes[STAND_IN_RANKS_MAX];
    int wishing;
    unsigned long splits;
};

struct ncclComm {
    struct job *job;
    int rank, device;
    bool aborted, stalls;
    int running;          /* collectives in the stream */
    long collectives;     /* given so far */
    unsigned long splits; /* that it has asked for */
    const char *failing_name;
    long failing_call;
    ncclResult_t failing_code;
    ncclResult_t state;
    int linger, lingering;
};

enum { GATHER = -1, REDUCE = -2 };

struct collective {
    ncclComm_t communicator;
    const unsigned char *send;
    unsigned char *receive;
    size_t bytes;
    int root; /* GATHER, REDUCE: to all */
};

static pthread_mutex_t figures_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stand_in_nccl_figures figures;

struct stand_in_nccl_figures stand_in_nccl_figures(void)
{
    pthread_mutex_lock(&figures_lock);
    struct stand_in_nccl_figures copy = figures;
    pthread_mutex_unlock(&figures_lock);
    return copy;
}

static void count(int alive, int aborted, int foreign_aborts)
{
    pthread_mutex_lock(&figures_lock);
    figures.alive += alive;
    figures.aborted += aborted;
    figures.foreign_aborts += foreign_aborts;
    pthread_mutex_unlock(&figures_lock);
}

static struct job *job_new(int size)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job || size > STAND_IN_RANKS_MAX)
        abort();
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
    job->size = job->handles = size;
    return job;
}

static ncclComm_t communicator_new(struct job *job, int rank, int device)
{
    struct ncclComm *communicator = calloc(1, sizeof *communicator);
    if (!communicator)
        abort();
    *communicator =
        (struct ncclComm){.job = job, .rank = rank, .device = device, .failing_name = ""};
    return job->communicators[rank] = communicator;
}

void stand_in_nccl_new(int size, ncclComm_t *communicators)
{
    struct job *job = job_new(size);
    for (int r = 0; r < size; r++)
        communicators[r] = communicator_new(job, r, r);
}

ncclResult_t ncclCommInitAll(ncclComm_t *communicators, int count, const int *devices)
{
    if (devices)
        abort();
    stand_in_nccl_new(count, communicators);
    communicators[0]->job->programs = true;
    return ncclSuccess;
}

void stand_in_nccl_abort(ncclComm_t communicator)
{
    struct job *job = communicator->job;
    pthread_mutex_lock(&job->lock);
    job->aborted = true;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

static void job_free(struct job *job)
{
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

/* What splits that never ended would have written to, so that it is not lost. */
static ncclComm_t *volatile late[2 * STAND_IN_RANKS_MAX];
static int late_count;

void stand_in_nccl_free(ncclComm_t communicator)
{
    struct job *job = communicator->job;
    for (int r = 0; r < job->size && job->wishing > 0; r++)
        if (job->communicators[r]->splits > job->splits)
            late[late_count++ % (2 * STAND_IN_RANKS_MAX)] = job->wishes[r].place;
    for (int r = 0; r < job->size; r++)
        free(job->communicators[r]);
    job_free(job);
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

void stand_in_nccl_stall(ncclComm_t communicator, bool stalls)
{
    communicator->stalls = stalls;
}

long stand_in_nccl_collectives(ncclComm_t communicator)
{
    pthread_mutex_lock(&communicator->job->lock);
    long collectives = communicator->collectives;
    pthread_mutex_unlock(&communicator->job->lock);
    return collectives;
}

static ncclResult_t enter(ncclComm_t communicator, const char *name)
{
    bool fails = strcmp(name, communicator->failing_name) == 0 && --communicator->failing_call == 0;
    return fails ? communicator->failing_code : ncclSuccess;
}

static bool is_aborted(const struct ncclComm *communicator)
{
    return communicator->aborted || communicator->job->aborted;
}

/* Waits for all ranks; false after an abort. */
static bool meet(struct ncclComm *communicator)
{
    struct job *job = communicator->job;
    pthread_mutex_lock(&job->lock);
    while (communicator->stalls && !is_aborted(communicator))
        pthread_cond_wait(&job->changed, &job->lock);
    unsigned long round = job->round;
    bool came = !is_aborted(communicator);
    if (came && ++job->arrived == job->size) {
        job->arrived = 0;
        job->round++;
        pthread_cond_broadcast(&job->changed);
    }
    while (came && job->round == round && !is_aborted(communicator))
        pthread_cond_wait(&job->changed, &job->lock);
    bool met = came && job->round != round;
    if (came && !met)
        job->arrived--;
    pthread_mutex_unlock(&job->lock);
    return met;
}

/* A collective begins to be in the stream, and is there no more. */
static void run_in(ncclComm_t communicator, cudaStream_t stream, void (*function)(void *),
                   void *argument)
{
    pthread_mutex_lock(&communicator->job->lock);
    communicator->running++;
    communicator->collectives++;
    pthread_mutex_unlock(&communicator->job->lock);
    stand_in_stream_run(stream, function, argument);
}

static void ran(ncclComm_t communicator)
{
    struct job *job = communicator->job;
    pthread_mutex_lock(&job->lock);
    communicator->running--;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

/* Of 64-bit integers; may be in place, as all have read before anyone writes. */
static void reduce(const struct collective *collective)
{
    struct job *job = collective->communicator->job;
    size_t count = collective->bytes / sizeof(int64_t);
    int64_t *sums = calloc(count, sizeof *sums);
    if (!sums)
        abort();
    for (int r = 0; r < job->size; r++)
        for (size_t i = 0; i < count; i++)
            sums[i] += ((const int64_t *)(const void *)job->sent[r])[i];
    if (meet(collective->communicator))
        memcpy(collective->receive, sums, collective->bytes);
    free(sums);
}

static void gather_or_broadcast(const struct collective *collective)
{
    struct ncclComm *communicator = collective->communicator;
    struct job *job = communicator->job;
    size_t bytes = collective->bytes;
    for (int r = 0; r < job->size; r++)
        if (collective->root == GATHER && collective->receive + (size_t)r * bytes != job->sent[r])
            memcpy(collective->receive + (size_t)r * bytes, job->sent[r], bytes);
    if (collective->root >= 0 && collective->root != communicator->rank)
        memcpy(collective->receive, job->sent[collective->root], bytes);
    meet(communicator);
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
    bool met = meet(communicator);
    if (met && collective->root == REDUCE)
        reduce(collective);
    else if (met)
        gather_or_broadcast(collective);
    ran(communicator);
    free(collective);
}

static ncclResult_t begin(ncclComm_t communicator, const char *name, const void *send,
                          void *receive, size_t bytes, int root, cudaStream_t stream)
{
    ncclResult_t code = enter(communicator, name);
    struct collective *collective = malloc(sizeof *collective);
    if (!collective || stand_in_current() != communicator->device)
        abort();
    *collective = (struct collective){communicator, stand_in_bytes((void *)send),
                                      stand_in_bytes(receive), bytes, root};
    if (code != ncclSuccess) {
        free(collective);
        return code;
    }
    stand_in_stream_use(stream, send, false);
    stand_in_stream_use(stream, receive, true);
    run_in(communicator, stream, run_collective, collective);
    communicator->lingering = communicator->linger;
    return communicator->linger > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream)
{
    if (type != ncclUint8)
        abort();
    return begin(communicator, __func__, send, receive, count, GATHER, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream)
{
    if (type != ncclInt64 || operation != ncclSum)
        abort();
    return begin(communicator, __func__, send, receive, count * sizeof(int64_t), REDUCE, stream);
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
    ncclComm_t communicator = messages->communicator;
    struct job *job = communicator->job;
    int rank = communicator->rank;
    pthread_mutex_lock(&job->lock);
    while (communicator->stalls && !is_aborted(communicator))
        pthread_cond_wait(&job->changed, &job->lock);
    if (!is_aborted(communicator))
        post_messages(messages);
    for (int r = 0; r < job->size; r++) {
        size_t size = messages->received[r].size;
        while (size != 0 && job->posted[r][rank].size == 0 && !is_aborted(communicator))
            pthread_cond_wait(&job->changed, &job->lock);
        if (size == 0 || is_aborted(communicator))
            continue;
        if (job->posted[r][rank].size != size)
            abort();
        memcpy(messages->received[r].bytes, job->posted[r][rank].bytes, size);
        job->posted[r][rank] = (struct message){0};
        pthread_cond_broadcast(&job->changed);
    }
    for (int r = 0; r < job->size; r++)
        while (job->posted[rank][r].size != 0 && !is_aborted(communicator))
            pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
    ran(communicator);
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
    if (type != ncclUint8 || !grouped || count == 0 || stand_in_current() != communicator->device)
        abort();
    grouped->communicator = communicator;
    grouped->stream = stream;
    stand_in_stream_use(stream, send, false);
    grouped->sent[peer] = (struct message){stand_in_bytes((void *)send), count};
    return grouped->code = enter(communicator, __func__);
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream)
{
    if (type != ncclUint8 || !grouped || count == 0 || stand_in_current() != communicator->device)
        abort();
    grouped->communicator = communicator;
    grouped->stream = stream;
    stand_in_stream_use(stream, receive, true);
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
    run_in(communicator, messages->stream, run_messages, messages);
    communicator->lingering = communicator->linger;
    return communicator->linger > 0 ? ncclInProgress : ncclSuccess;
}

/* Whether a split that this one has asked for is still to come. */
static bool is_splitting(ncclComm_t communicator)
{
    struct job *job = communicator->job;
    pthread_mutex_lock(&job->lock);
    bool splitting = job->splits < communicator->splits;
    pthread_mutex_unlock(&job->lock);
    return splitting;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *state)
{
    bool busy = communicator->lingering > 0 || is_splitting(communicator);
    *state = busy ? ncclInProgress : communicator->state;
    if (communicator->lingering > 0)
        communicator->lingering--;
    return enter(communicator, __func__);
}

/* ---- splits: the last rank that comes makes what all asked for ---- */

static bool comes_before(const struct wish *wishes, int left, int right)
{
    return wishes[left].key < wishes[right].key ||
           (wishes[left].key == wishes[right].key && left < right);
}

static void make_part(struct job *job, int color)
{
    int members[STAND_IN_RANKS_MAX], size = 0;
    for (int r = 0; r < job->size; r++) {
        int at = size;
        if (job->wishes[r].color != color)
            continue;
        for (; at > 0 && comes_before(job->wishes, r, members[at - 1]); at--)
            members[at] = members[at - 1];
        members[at] = r;
        size++;
    }
    struct job *part = size > 0 ? job_new(size) : NULL;
    for (int at = 0; at < size; at++) {
        const struct ncclComm *parent = job->communicators[members[at]];
        ncclComm_t made = communicator_new(part, at, parent->device);
        part->split = true;
        made->linger = made->lingering = 1;
        made->stalls = parent->stalls;
        *job->wishes[members[at]].place = made;
    }
    count(size, 0, 0);
}

ncclResult_t ncclCommSplit(ncclComm_t communicator, int color, int key, ncclComm_t *place,
                           ncclConfig_t *config)
{
    struct job *job = communicator->job;
    ncclResult_t code = enter(communicator, __func__);
    if (config->blocking != 0 || stand_in_current() != communicator->device)
        abort();
    *place = NULL;
    pthread_mutex_lock(&job->lock);
    /* One that fails is of no part, so that the others do not wait. */
    job->wishes[communicator->rank] =
        (struct wish){code == ncclSuccess ? color : NCCL_SPLIT_NOCOLOR, key, place};
    communicator->splits = job->splits + 1;
    if (++job->wishing == job->size) {
        for (int c = 0; c < STAND_IN_RANKS_MAX; c++)
            make_part(job, c);
        job->wishing = 0;
        job->splits++;
        pthread_cond_broadcast(&job->changed);
    }
    while (communicator->linger == 0 && job->splits < communicator->splits &&
           !is_aborted(communicator))
        pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
    return code != ncclSuccess ? code : communicator->linger == 0 ? ncclSuccess : ncclInProgress;
}

/* ---- the end of a communicator ---- */

ncclResult_t ncclCommFinalize(ncclComm_t communicator)
{
    ncclResult_t code = enter(communicator, __func__);
    if (communicator->stalls)
        communicator->state = ncclInProgress;
    communicator->lingering = communicator->linger;
    return code != ncclSuccess ? code : communicator->linger > 0 ? ncclInProgress : ncclSuccess;
}

/* The last one takes along what all of a part shared. */
static void leave(ncclComm_t communicator)
{
    struct job *job = communicator->job;
    pthread_mutex_lock(&job->lock);
    bool last = --job->handles == 0;
    pthread_mutex_unlock(&job->lock);
    free(communicator);
    if (last)
        job_free(job);
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator)
{
    if ((!communicator->job->split && !communicator->job->programs) || communicator->running != 0)
        abort();
    count(communicator->job->split ? -1 : 0, 0, 0);
    leave(communicator);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator)
{
    struct job *job = communicator->job;
    pthread_mutex_lock(&job->lock);
    communicator->aborted = true;
    pthread_cond_broadcast(&job->changed);
    while (communicator->running != 0)
        pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
    count(job->split ? -1 : 0, job->split, !job->split);
    if (job->split)
        leave(communicator);
    return ncclSuccess;
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
    *device = communicator->device;
    return enter(communicator, __func__);
}

const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "unhandled system error";
}

const char *ncclGetLastError(ncclComm_t communicator)
{
    return communicator && communicator->rank == 0 ? "the stand-in's own words" : "";
}
