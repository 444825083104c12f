/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of data that is read before it is sent. Each holds several windows, so that reads are
 * large even if windows are small. A thread fills them in turn; if none can be started, the
 * caller's thread does. */
#include <pthread.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "checkpoint/share/load_exchange.h"

enum { ALIGNMENT = 16 };

struct share_prefetch {
    const struct load_exchange *exchange;
    const struct load_share *share;
    size_t buffer_size;
    size_t buffer_count;
    unsigned char *buffers[PREFETCH_BUFFERS];
    unsigned char *bytes[PREFETCH_BUFFERS]; /* of each: itself, or where what was read belongs */
    const struct share_destinations *put;
    struct share_cursor cursor; /* of the filling thread */

    /* Of the sending thread. */
    bool begun;
    size_t place; /* position in the current buffer */
    dcp_status failed;

    bool threaded;
    struct thread thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    uint64_t filled;
    uint64_t emptied;
    bool stopping;
    struct saved_error failure; /* of the last buffer that was filled */
};

static size_t align(size_t place)
{
    return (place + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t element_size(const struct share_prefetch *prefetch, const struct share_run *run)
{
    const struct share_region *region = &prefetch->share->regions[run->region];
    return share_element_size(&prefetch->exchange->metadata->entries[region->entry]);
}

/* How far a buffer has been filled. */
struct filling {
    struct share_cursor cursor;
    struct share_window window;
    size_t window_place;
};

/* The next segment of the windows that fit into a buffer; false: there is none. */
static bool next_segment(const struct share_prefetch *prefetch, struct filling *filling,
                         struct share_segment *segment)
{
    const struct load_share *share = prefetch->share;
    while (!share_window_next(share, prefetch->exchange->metadata, &filling->window,
                              &filling->cursor, segment)) {
        filling->window_place = align(filling->window_place + filling->window.bytes);
        if (!filling->window.begun || filling->window_place + share->window > prefetch->buffer_size)
            return false;
        filling->window = (struct share_window){0};
    }
    return true;
}

/* Segments that are read together. */
struct stretch {
    struct share_span span;
    size_t place; /* in the buffer */
    size_t size;
};

static bool next_stretch(const struct share_prefetch *prefetch, struct filling *filling,
                         struct stretch *stretch)
{
    struct filling after = *filling;
    struct share_segment segment;
    *stretch = (struct stretch){.size = 0};
    while (next_segment(prefetch, &after, &segment)) {
        struct share_span *span = &stretch->span;
        size_t place = after.window_place + segment.place;
        if (span->run && (span->run != segment.run || stretch->place + stretch->size != place))
            break;
        if (!span->run)
            *stretch = (struct stretch){{segment.run, segment.from, segment.end}, place, 0};
        span->end = segment.end;
        stretch->size += (size_t)(segment.end - segment.from) * element_size(prefetch, segment.run);
        *filling = after;
    }
    return stretch->span.run != NULL;
}

/* The first one of the next buffer, without filling it. */
static bool peek_stretch(const struct share_prefetch *prefetch, struct stretch *stretch)
{
    struct filling filling = {.cursor = prefetch->cursor};
    return next_stretch(prefetch, &filling, stretch);
}

/* Whether no stretch follows in the same buffer. */
static bool is_all(const struct share_prefetch *prefetch, const struct filling *filling)
{
    struct filling after = *filling;
    struct share_segment segment;
    return !next_segment(prefetch, &after, &segment);
}

/* Reads as many windows as fit into a buffer; what is consecutive, to where it belongs. */
static dcp_status fill_buffer(struct share_prefetch *prefetch, size_t index)
{
    const struct load_exchange *exchange = prefetch->exchange;
    struct filling filling = {.cursor = prefetch->cursor};
    struct stretch stretch, next;
    unsigned char *buffer = prefetch->buffers[index];
    bool more = next_stretch(prefetch, &filling, &stretch);
    if (more && is_all(prefetch, &filling)) {
        unsigned char *place =
            share_destinations_place(prefetch->put, stretch.span.run, stretch.span.from);
        buffer = place ? place : buffer;
    }
    prefetch->bytes[index] = buffer;
    while (more) {
        more = next_stretch(prefetch, &filling, &next);
        prefetch->cursor = filling.cursor;
        bool known = more || peek_stretch(prefetch, &next);
        RETURN_IF_ERROR(exchange->read(exchange->read_context, &stretch.span,
                                       known ? &next.span : NULL, buffer + stretch.place));
        stretch = next;
    }
    if (prefetch->cursor.run < prefetch->share->run_count || !exchange->end)
        return DCP_OK;
    return exchange->end(exchange->read_context);
}

static void note_filled(struct share_prefetch *prefetch, dcp_status status)
{
    pthread_mutex_lock(&prefetch->mutex);
    if (status != DCP_OK) {
        error_save(&prefetch->failure);
        prefetch->failure.status = status;
    }
    prefetch->filled++;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->mutex);
}

/* Waits for a free buffer; false if the exchange has ended. */
static bool wait_for_room(struct share_prefetch *prefetch)
{
    pthread_mutex_lock(&prefetch->mutex);
    while (prefetch->filled - prefetch->emptied == prefetch->buffer_count && !prefetch->stopping)
        pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
    bool stopping = prefetch->stopping;
    pthread_mutex_unlock(&prefetch->mutex);
    return !stopping;
}

static void *fill_ahead(void *argument)
{
    struct share_prefetch *prefetch = argument;
    dcp_status status = DCP_OK;
    for (size_t buffer = 0; status == DCP_OK && prefetch->cursor.run < prefetch->share->run_count;
         buffer++) {
        if (!wait_for_room(prefetch))
            break;
        status = fill_buffer(prefetch, buffer % prefetch->buffer_count);
        note_filled(prefetch, status);
    }
    return NULL;
}

/* Gives back the current buffer, if any, and waits for the next one. */
static dcp_status take_buffer(struct share_prefetch *prefetch)
{
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->emptied += prefetch->begun;
    pthread_cond_broadcast(&prefetch->changed);
    while (prefetch->threaded && prefetch->filled == prefetch->emptied)
        pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
    pthread_mutex_unlock(&prefetch->mutex);
    if (!prefetch->threaded)
        note_filled(prefetch, fill_buffer(prefetch, prefetch->emptied % prefetch->buffer_count));
    prefetch->begun = true;
    prefetch->place = 0;
    pthread_mutex_lock(&prefetch->mutex);
    bool is_last = prefetch->filled - prefetch->emptied == 1;
    if (is_last && prefetch->failure.status != DCP_OK)
        prefetch->failed = error_restore(&prefetch->failure);
    pthread_mutex_unlock(&prefetch->mutex);
    return prefetch->failed;
}

dcp_status share_prefetch_next(struct share_prefetch *prefetch, size_t size,
                               const unsigned char **bytes)
{
    *bytes = prefetch->buffers[0];
    if (prefetch->failed != DCP_OK)
        return error_restore(&prefetch->failure);
    if (!prefetch->begun || prefetch->place + prefetch->share->window > prefetch->buffer_size)
        RETURN_IF_ERROR(take_buffer(prefetch));
    *bytes = prefetch->bytes[prefetch->emptied % prefetch->buffer_count] + prefetch->place;
    prefetch->place = align(prefetch->place + size);
    return DCP_OK;
}

/* The bytes of all that the rank has to send. */
static uint64_t stream_bytes(const struct share_prefetch *prefetch)
{
    const struct load_share *share = prefetch->share;
    uint64_t total = 0;
    for (uint32_t at = prefetch->cursor.run; at < share->run_count; at = share->next[at]) {
        const struct share_run *run = &share->runs[at];
        total += (uint64_t)(run->end - run->from) * element_size(prefetch, run) + ALIGNMENT;
    }
    return total;
}

/* Chooses the number and size of the buffers. */
static struct share_prefetch choose_buffer(const struct load_exchange *exchange)
{
    const struct load_share *share = exchange->share;
    struct share_prefetch prefetch = {
        .exchange = exchange,
        .share = share,
        .cursor = share_cursor_start(share, (uint32_t)dcp_group_rank(exchange->group)),
    };
    uint64_t total = stream_bytes(&prefetch);
    prefetch.buffer_size = total < EXCHANGE_LOT_BYTES ? align((size_t)total) : EXCHANGE_LOT_BYTES;
    if (prefetch.buffer_size < share->window)
        prefetch.buffer_size = share->window;
    prefetch.buffer_count = total <= prefetch.buffer_size ? 1 : PREFETCH_BUFFERS;
    return prefetch;
}

uint64_t share_prefetch_memory(const struct load_exchange *exchange)
{
    struct share_prefetch prefetch = choose_buffer(exchange);
    return sizeof prefetch + (uint64_t)prefetch.buffer_count * prefetch.buffer_size +
           THREAD_STACK_SIZE;
}

static dcp_status allocate(struct share_prefetch *prefetch)
{
    for (size_t i = 0; i < prefetch->buffer_count; i++) {
        prefetch->buffers[i] = memory_allocate_zeroed(1, prefetch->buffer_size);
        if (!prefetch->buffers[i])
            return error_no_memory(prefetch->buffer_size, "buffers to read for other ranks");
    }
    return DCP_OK;
}

dcp_status share_prefetch_open(const struct load_exchange *exchange,
                               const struct share_destinations *put,
                               struct share_prefetch **prefetch)
{
    struct share_prefetch *made = *prefetch = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "buffers to read for other ranks");
    *made = choose_buffer(exchange);
    made->put = put;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    dcp_status status = allocate(made);
    if (status == DCP_OK && made->cursor.run < made->share->run_count)
        made->threaded = thread_start(&made->thread, fill_ahead, made) == 0;
    return status;
}

void share_prefetch_close(struct share_prefetch *prefetch)
{
    if (!prefetch)
        return;
    if (prefetch->threaded) {
        pthread_mutex_lock(&prefetch->mutex);
        prefetch->stopping = true;
        pthread_cond_broadcast(&prefetch->changed);
        pthread_mutex_unlock(&prefetch->mutex);
        thread_join(&prefetch->thread);
    }
    for (size_t i = 0; i < prefetch->buffer_count; i++)
        memory_release(prefetch->buffers[i]);
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->mutex);
    memory_release(prefetch);
}
