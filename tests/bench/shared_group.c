/* SPDX-License-Identifier: BSD-3-Clause */
#include "shared_group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "seconds.h"

/* Messages go in pieces of this size through one slot for each rank. */
enum { SLOT = 1 << 20 };
/* Groups that can be made of one by duplicating it. */
enum { COPIES = 4 };
/* The system moves ranks apart within some of its ticks. */
static const double start_seconds = 0.02;

struct shared_memory {
    pthread_barrier_t barrier;
    int size;
    struct shared_memory *copies[COPIES]; /* none of a copy */
    size_t most;                          /* of the sizes of a gather or scatter */
    struct range { /* of an all_to_all: what is sent, from the lowest offset to the highest end */
        size_t start, end;
    } sent[SHARED_RANKS_MOST];
    struct range messages[SHARED_RANKS_MOST][SHARED_RANKS_MOST];
    unsigned char slots[];
};

struct shared_rank {
    struct shared_memory *shared;
    int rank;
    int copied;
};

static struct shared_memory *make_shared(int size)
{
    pthread_barrierattr_t attributes;
    struct shared_memory *shared = mmap(NULL, sizeof *shared + (size_t)size * SLOT,
                                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED)
        return NULL;
    shared->size = size;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, (unsigned)size);
    return shared;
}

struct shared_memory *shared_memory_new(int size)
{
    struct shared_memory *shared = make_shared(size);

    for (int i = 0; shared && i < COPIES; i++)
        shared->copies[i] = make_shared(size);
    return shared;
}

void shared_barrier(struct shared_memory *shared)
{
    pthread_barrier_wait(&shared->barrier);
}

void shared_start(struct shared_memory *shared)
{
    shared_barrier(shared);
    double end = seconds_now() + start_seconds;
    while (seconds_now() < end)
        ;
    shared_barrier(shared);
}

static unsigned char *slot(const struct shared_rank *self, int rank)
{
    return self->shared->slots + (size_t)rank * SLOT;
}

/* The part of a message of `size` bytes that goes in the piece that starts at `start`. */
static size_t piece(size_t size, size_t start)
{
    if (start >= size)
        return 0;
    return size - start < SLOT ? size - start : SLOT;
}

static dcp_status all_gather(void *context, const dcp_collective *call, const void *send,
                             size_t bytes, void *receive)
{
    const struct shared_rank *self = context;

    (void)call;
    for (size_t start = 0; start < bytes; start += SLOT) {
        size_t length = piece(bytes, start);
        memcpy(slot(self, self->rank), (const char *)send + start, length);
        shared_barrier(self->shared);
        for (int r = 0; r < self->shared->size; r++)
            memcpy((char *)receive + (size_t)r * bytes + start, slot(self, r), length);
        shared_barrier(self->shared);
    }
    return DCP_OK;
}

static dcp_status broadcast(void *context, const dcp_collective *call, int root, void *data,
                            size_t bytes)
{
    const struct shared_rank *self = context;

    (void)call;
    for (size_t start = 0; start < bytes; start += SLOT) {
        size_t length = piece(bytes, start);
        if (self->rank == root)
            memcpy(slot(self, root), (const char *)data + start, length);
        shared_barrier(self->shared);
        if (self->rank != root)
            memcpy((char *)data + start, slot(self, root), length);
        shared_barrier(self->shared);
    }
    return DCP_OK;
}

/* Only the root knows all sizes; the others need the largest, to take part in as many pieces. */
static size_t share_most(const struct shared_rank *self, const size_t *sizes)
{
    if (sizes) {
        self->shared->most = 0;
        for (int r = 0; r < self->shared->size; r++)
            if (sizes[r] > self->shared->most)
                self->shared->most = sizes[r];
    }
    shared_barrier(self->shared);
    size_t most = self->shared->most;
    shared_barrier(self->shared);
    return most;
}

static dcp_status gather(void *context, const dcp_collective *call, int root, const void *send,
                         size_t bytes, void *receive, const size_t *sizes)
{
    const struct shared_rank *self = context;
    size_t most = share_most(self, sizes);

    (void)call, (void)root;
    for (size_t start = 0; start < most; start += SLOT) {
        if (piece(bytes, start) > 0)
            memcpy(slot(self, self->rank), (const char *)send + start, piece(bytes, start));
        shared_barrier(self->shared);
        char *place = receive;
        for (int r = 0; sizes && r < self->shared->size; place += sizes[r++])
            if (piece(sizes[r], start) > 0)
                memcpy(place + start, slot(self, r), piece(sizes[r], start));
        shared_barrier(self->shared);
    }
    return DCP_OK;
}

static dcp_status scatter(void *context, const dcp_collective *call, int root, const void *send,
                          const size_t *sizes, void *receive, size_t bytes)
{
    const struct shared_rank *self = context;
    size_t most = share_most(self, sizes);

    (void)call, (void)root;
    for (size_t start = 0; start < most; start += SLOT) {
        const char *place = send;
        for (int r = 0; sizes && r < self->shared->size; place += sizes[r++])
            if (piece(sizes[r], start) > 0)
                memcpy(slot(self, r), place + start, piece(sizes[r], start));
        shared_barrier(self->shared);
        if (piece(bytes, start) > 0)
            memcpy((char *)receive + start, slot(self, self->rank), piece(bytes, start));
        shared_barrier(self->shared);
    }
    return DCP_OK;
}

/* Says where this rank's messages lie in what it sends. */
static void publish_ranges(const struct shared_rank *self, const size_t *sizes,
                           const size_t *offsets)
{
    struct range *sent = &self->shared->sent[self->rank];

    *sent = (struct range){SIZE_MAX, 0};
    for (int r = 0; r < self->shared->size; r++) {
        struct range message = {offsets[r], offsets[r] + sizes[r]};
        self->shared->messages[self->rank][r] = message;
        if (sizes[r] > 0 && message.start < sent->start)
            sent->start = message.start;
        if (sizes[r] > 0 && message.end > sent->end)
            sent->end = message.end;
    }
}

/* Takes what the slot of a rank holds of its message, where what it sends has come to `start`. */
static void take_message(const struct shared_rank *self, int from, size_t start, char *receive)
{
    const struct range *message = &self->shared->messages[from][self->rank];
    size_t end = start + SLOT < message->end ? start + SLOT : message->end;
    size_t begin = start > message->start ? start : message->start;

    if (begin < end)
        memcpy(receive + (begin - message->start), slot(self, from) + (begin - start), end - begin);
}

static dcp_status all_to_all(void *context, const dcp_collective *call, const void *send,
                             const size_t *send_sizes, const size_t *send_offsets, void *receive,
                             const size_t *receive_sizes, const size_t *receive_offsets)
{
    const struct shared_rank *self = context;
    const struct range *sent = self->shared->sent;
    bool left = true;

    (void)call, (void)receive_sizes;
    publish_ranges(self, send_sizes, send_offsets);
    shared_barrier(self->shared);
    for (size_t done = 0; left; done += SLOT) {
        size_t start = sent[self->rank].start + done;
        if (sent[self->rank].start < sent[self->rank].end && start < sent[self->rank].end)
            memcpy(slot(self, self->rank), (const char *)send + start,
                   piece(sent[self->rank].end, start));
        shared_barrier(self->shared);
        left = false;
        for (int r = 0; r < self->shared->size; r++) {
            if (sent[r].start >= sent[r].end || sent[r].end - sent[r].start <= done)
                continue;
            take_message(self, r, sent[r].start + done, (char *)receive + receive_offsets[r]);
            left = left || sent[r].end - sent[r].start > done + SLOT;
        }
        shared_barrier(self->shared);
    }
    return DCP_OK;
}

static void close_rank(void *context)
{
    free(context);
}

/* What processes share is made before they are, so copies are among what was made then. */
static dcp_status duplicate(void *context, const dcp_collective *call, void **copy)
{
    struct shared_rank *self = context;
    struct shared_memory *next =
        self->copied < COPIES ? self->shared->copies[self->copied++] : NULL;
    struct shared_rank *made = next ? malloc(sizeof *made) : NULL;

    (void)call;
    if (!made)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for a copy of a group");
    *made = (struct shared_rank){.shared = next, .rank = self->rank};
    *copy = made;
    return DCP_OK;
}

dcp_status shared_group_new(struct shared_memory *shared, int rank, dcp_group **group)
{
    const dcp_group_operations operations = {
        .size_of = sizeof operations,
        .all_gather = all_gather,
        .broadcast = broadcast,
        .gather = gather,
        .scatter = scatter,
        .close = close_rank,
        .all_to_all = all_to_all,
        .duplicate = duplicate,
    };
    struct shared_rank *self = malloc(sizeof *self);

    if (!self)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for a group");
    *self = (struct shared_rank){.shared = shared, .rank = rank};
    dcp_status status = dcp_group_new(&operations, self, rank, shared->size, group);
    if (status != DCP_OK)
        free(self);
    return status;
}
