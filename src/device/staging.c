/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/staging.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/staging_pieces.h"
#include "device/staging_queues.h"
#include "state/device_memory.h"

/* From this size on, several threads copy. */
#define THREADED_SIZE  ((uint64_t)16 << 20)
#define THREADS_MOST   8
#define THREADS_CHOSEN 4
#define CHANGED_TEXT   512

struct staging {
    struct staging_pool *pool;
    struct staging_pieces pieces;
    struct staging_queues queues;
    bool detects;
    bool whole;
    uint64_t size; /* bytes of the pool in use */
    struct thread threads[THREADS_MOST];
    size_t thread_count;
    pthread_mutex_t mutex; /* guards all below, and the pieces' states */
    pthread_cond_t changed;
    size_t next;   /* piece to be copied */
    size_t staged; /* pieces copied so far */
    size_t unread; /* under a limit: the first piece that was not read */
    uint64_t head; /* where the next piece would be, under a limit */
    struct staging_piece *first_started, *last_started; /* copies that devices were asked to make */
    struct saved_error failure;
    size_t changed_count;
    char changed_names[CHANGED_TEXT];
};

static void fail(struct staging *staging, dcp_status status)
{
    if (staging->failure.status == DCP_OK) {
        error_save(&staging->failure);
        staging->failure.status = status;
    }
    pthread_cond_broadcast(&staging->changed);
}

static unsigned char *place_of(const struct staging *staging, const struct staging_piece *piece)
{
    return staging->pool->memory + piece->at % staging->size;
}

/* Under a limit, finds room for the next piece behind the others in the ring; no piece wraps around
 * its end. */
static bool find_place(struct staging *staging, struct staging_piece *piece)
{
    uint64_t at = staging->head, rest = staging->size - at % staging->size;
    uint64_t tail = at;
    if (staging->whole)
        return true;
    if (rest < piece->bytes)
        at += rest;
    if (staging->unread < staging->next)
        tail = staging->pieces.pieces[staging->unread].at;
    if (at + piece->bytes - tail > staging->size)
        return false;
    piece->at = at;
    staging->head = at + ((piece->bytes + 63) & ~(uint64_t)63);
    return true;
}

/* With the mutex held. */
static void note_change(struct staging *staging, struct staged_source *source)
{
    size_t length = strlen(staging->changed_names);
    if (source->changed)
        return;
    source->changed = true;
    if (staging->changed_count++ == 0 || length + strlen(source->name) + 3 < CHANGED_TEXT)
        snprintf(staging->changed_names + length, CHANGED_TEXT - length, "%s%s",
                 length > 0 ? ", " : "", source->name);
}

/* With the mutex held: the piece is staged. */
static void end_piece(struct staging *staging, struct staging_piece *piece, dcp_status status)
{
    struct staged_source *source = &staging->pieces.sources[piece->source];
    if (status != DCP_OK) {
        fail(staging, status);
        return;
    }
    if (staging->detects && xxh3_64(place_of(staging, piece), piece->bytes) != piece->hash)
        note_change(staging, source);
    piece->state = PIECE_STAGED;
    if (++staging->staged == staging->pieces.count && staging->changed_count > 0)
        fail(staging, dcp_error_set(DCP_ERR_STATE,
                                    "%s: changed before it was staged (%zu in all): do not "
                                    "change tensors before dcp_future_wait_staged() returns",
                                    staging->changed_names, staging->changed_count));
    pthread_cond_broadcast(&staging->changed);
}

/* Called with the mutex held, as is what follows. */
static void copy_next(struct staging *staging)
{
    struct staging_piece *piece = &staging->pieces.pieces[staging->next++];
    const struct staged_source *source = &staging->pieces.sources[piece->source];
    bool on_device = !device_is_host(&source->device);
    dcp_device device = on_device ? staging_queue(&staging->queues, source->queue) : source->device;
    bool start = on_device && device_overlaps(&device);
    piece->state = PIECE_UNDER_WAY;
    pthread_mutex_unlock(&staging->mutex);
    dcp_status status =
        staging_piece_copy(&staging->pieces, piece, &device, start, place_of(staging, piece));
    if (start && status == DCP_OK)
        status = staging_event_record(&device, &piece->event);
    pthread_mutex_lock(&staging->mutex);
    if (!start || status != DCP_OK) {
        end_piece(staging, piece, status);
        return;
    }
    if (staging->last_started)
        staging->last_started->later = piece;
    else
        staging->first_started = piece;
    staging->last_started = piece;
}

static void await_started(struct staging *staging)
{
    struct staging_piece *piece = staging->first_started;
    const struct staged_source *source = &staging->pieces.sources[piece->source];
    dcp_device device = staging_queue(&staging->queues, source->queue);
    staging->first_started = piece->later;
    if (!staging->first_started)
        staging->last_started = NULL;
    pthread_mutex_unlock(&staging->mutex);
    dcp_status status = device_end(&device, device.operations->event_wait(&device, piece->event));
    if (status != DCP_OK)
        error_prefix(status, "%s", source->name);
    pthread_mutex_lock(&staging->mutex);
    end_piece(staging, piece, status);
}

static void *copy_pieces(void *argument)
{
    struct staging *staging = argument;
    struct staging_pieces *pieces = &staging->pieces;
    pthread_mutex_lock(&staging->mutex);
    while (staging->failure.status == DCP_OK) {
        if (staging->next < pieces->count && find_place(staging, &pieces->pieces[staging->next]))
            copy_next(staging);
        else if (staging->first_started)
            await_started(staging);
        else if (staging->next == pieces->count)
            break;
        else
            pthread_cond_wait(&staging->changed, &staging->mutex);
    }
    pthread_mutex_unlock(&staging->mutex);
    return NULL;
}

/* Hashes the sources' current contents, to be compared with the copies. */
static dcp_status hash_sources(struct staging *staging)
{
    struct staging_pieces *pieces = &staging->pieces;
    dcp_status status = DCP_OK;
    void *space = memory_allocate(pieces->largest);
    if (!space)
        return error_no_memory(pieces->largest, "looking for changes while staging");
    for (size_t i = 0; i < pieces->count && status == DCP_OK; i++) {
        struct staging_piece *piece = &pieces->pieces[i];
        const dcp_device *device = &pieces->sources[piece->source].device;
        status = staging_piece_copy(pieces, piece, device, false, space);
        if (status == DCP_OK)
            piece->hash = xxh3_64(space, piece->bytes);
    }
    memory_release(space);
    return status;
}

size_t staging_thread_count(uint64_t bytes, uint32_t wanted)
{
    size_t count = wanted;
    if (count == 0)
        count = bytes < THREADED_SIZE ? 1 : thread_processor_count();
    if (wanted == 0 && count > THREADS_CHOSEN)
        count = THREADS_CHOSEN;
    return count < THREADS_MOST ? count : THREADS_MOST;
}

static dcp_status start_threads(struct staging *staging, size_t count)
{
    while (staging->thread_count < count) {
        struct thread *thread = &staging->threads[staging->thread_count];
        int result = thread_start(thread, copy_pieces, staging);
        if (result == 0)
            staging->thread_count++;
        else if (staging->thread_count > 0)
            break;
        else
            return dcp_error_set(DCP_ERR_NO_MEMORY, "cannot start a thread for staging: %s",
                                 strerror(result));
    }
    return DCP_OK;
}

static dcp_status prepare(struct staging *staging, const struct staging_source *sources,
                          size_t count, const struct staging_options *options)
{
    struct staging_pieces *pieces = &staging->pieces;
    uint64_t limit = options->limit & ~(uint64_t)(MEMORY_PAGE - 1);
    RETURN_IF_ERROR(staging_pieces_make(pieces, sources, count, staging_piece_most(limit)));
    size_t threads = staging_thread_count(pieces->bytes, options->threads);
    staging->whole = limit == 0 || pieces->pool_size <= limit;
    staging->size = staging->whole ? pieces->pool_size : limit;
    staging->size = staging->size > 0 ? staging->size : MEMORY_PAGE;
    RETURN_IF_ERROR(staging_queues_open(&staging->queues, pieces));
    RETURN_IF_ERROR(staging_pool_reserve(
        staging->pool, staging->size,
        options->page_lock ? staging_first_device(&staging->queues) : NULL, threads));
    if (staging->detects)
        RETURN_IF_ERROR(hash_sources(staging));
    return start_threads(staging, threads);
}

dcp_status staging_begin(struct staging_pool *pool, const struct staging_source *sources,
                         size_t count, const struct staging_options *options,
                         struct staging **staging)
{
    struct staging *made = memory_allocate_zeroed(1, sizeof *made);
    pthread_condattr_t attributes;
    *staging = NULL;
    if (!made)
        return error_no_memory(sizeof *made, "staging");
    made->pool = pool;
    made->detects = options->detect_changes;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    dcp_status status = prepare(made, sources, count, options);
    if (status == DCP_OK)
        *staging = made;
    else
        staging_free(made);
    return status;
}

dcp_status staging_wait(struct staging *staging, struct deadline deadline)
{
    dcp_status status = DCP_OK;
    pthread_mutex_lock(&staging->mutex);
    while (staging->staged < staging->pieces.count && staging->failure.status == DCP_OK &&
           !deadline_passed(deadline)) {
        struct timespec time = deadline_timespec(deadline);
        pthread_cond_timedwait(&staging->changed, &staging->mutex, &time);
    }
    if (staging->failure.status != DCP_OK)
        status = error_restore(&staging->failure);
    else if (staging->staged < staging->pieces.count)
        status = dcp_error_set(
            DCP_ERR_TIMEOUT, "staging did not end within the timeout: %zu of %zu pieces are staged",
            staging->staged, staging->pieces.count);
    pthread_mutex_unlock(&staging->mutex);
    return status;
}

bool staging_is_over(struct staging *staging)
{
    pthread_mutex_lock(&staging->mutex);
    bool over = staging->staged == staging->pieces.count || staging->failure.status != DCP_OK;
    pthread_mutex_unlock(&staging->mutex);
    return over;
}

uint64_t staging_bytes(const struct staging *staging)
{
    return staging->pieces.bytes;
}

bool staging_is_whole(const struct staging *staging)
{
    return staging->whole;
}

/* With the mutex held. */
static dcp_status await_piece(struct staging *staging, const struct staging_piece *piece)
{
    while (piece->state < PIECE_STAGED && staging->failure.status == DCP_OK)
        pthread_cond_wait(&staging->changed, &staging->mutex);
    return piece->state >= PIECE_STAGED ? DCP_OK : error_restore(&staging->failure);
}

dcp_status staging_take(struct staging *staging, size_t index, const void **bytes)
{
    const struct staged_source *source = &staging->pieces.sources[index];
    dcp_status status = DCP_OK;
    pthread_mutex_lock(&staging->mutex);
    for (size_t i = 0; i < source->count && status == DCP_OK; i++)
        status = await_piece(staging, &staging->pieces.pieces[source->first + i]);
    pthread_mutex_unlock(&staging->mutex);
    *bytes = source->count > 0 ? place_of(staging, &staging->pieces.pieces[source->first]) : NULL;
    return status;
}

/* With the mutex held: pieces that were read make room, in the order of the pool. */
static void end_reading(struct staging *staging, struct staged_source *source,
                        struct staging_piece *piece)
{
    const struct staging_piece *pieces = staging->pieces.pieces;
    source->reading++;
    piece->state = PIECE_READ;
    while (staging->unread < staging->next && pieces[staging->unread].state == PIECE_READ)
        staging->unread++;
    pthread_cond_broadcast(&staging->changed);
}

dcp_status staging_read(struct staging *staging, size_t index, uint64_t position, void *bytes,
                        size_t size)
{
    struct staged_source *source = &staging->pieces.sources[index];
    unsigned char *to = bytes;
    while (size > 0) {
        struct staging_piece *piece = &staging->pieces.pieces[source->first + source->reading];
        pthread_mutex_lock(&staging->mutex);
        dcp_status status = await_piece(staging, piece);
        pthread_mutex_unlock(&staging->mutex);
        RETURN_IF_ERROR(status);
        uint64_t skipped = position - piece->position;
        size_t left = piece->bytes - (size_t)skipped;
        size_t taken = size < left ? size : left;
        memcpy(to, place_of(staging, piece) + skipped, taken);
        if (taken == left) {
            pthread_mutex_lock(&staging->mutex);
            end_reading(staging, source, piece);
            pthread_mutex_unlock(&staging->mutex);
        }
        position += taken;
        to += taken;
        size -= taken;
    }
    return DCP_OK;
}

/* With the mutex held. */
static void give_up(struct staging *staging)
{
    struct saved_error error;
    error_save(&error);
    fail(staging, error.status != DCP_OK ? error.status : DCP_ERR_CANCELLED);
}

void staging_stop(struct staging *staging)
{
    if (staging->whole)
        return;
    pthread_mutex_lock(&staging->mutex);
    give_up(staging);
    pthread_mutex_unlock(&staging->mutex);
}

void staging_end(struct staging *staging)
{
    if (!staging)
        return;
    pthread_mutex_lock(&staging->mutex);
    bool early = staging->staged < staging->pieces.count;
    if (early)
        give_up(staging);
    pthread_mutex_unlock(&staging->mutex);
    for (size_t i = 0; i < staging->thread_count; i++)
        thread_join(&staging->threads[i]);
    staging->thread_count = 0;
    if (early)
        staging_queues_wait(&staging->queues);
}

void staging_free(struct staging *staging)
{
    if (!staging)
        return;
    staging_end(staging);
    staging_queues_close(&staging->queues, &staging->pieces);
    staging_pieces_free(&staging->pieces);
    pthread_cond_destroy(&staging->changed);
    pthread_mutex_destroy(&staging->mutex);
    memory_release(staging);
}
