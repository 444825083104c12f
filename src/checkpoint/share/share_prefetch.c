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

/* The windows in a buffer: a run of the last one, and where the next one goes. */
struct packing {
    const struct share_run *run;
    size_t place;
};

struct share_prefetch {
    const struct load_exchange *exchange;
    const struct load_share *share;
    size_t buffer_size;
    size_t buffer_count;
    size_t target_count; /* that are read together, at most */
    unsigned char *buffers[PREFETCH_BUFFERS];
    const struct host_memory
        *memory; /* which the buffers are; NULL: other ranks do not read them */
    struct share_target *targets;
    const struct share_destinations *put;
    struct share_cursor cursor; /* of the filling thread */

    /* Of the sending thread. */
    struct packing sent; /* of the current buffer; no run: there is none yet */
    uint64_t taken;      /* buffers before it */
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

static bool is_striped(const struct share_prefetch *prefetch, const struct share_run *run)
{
    return prefetch->share->regions[run->region].striped;
}

/* Whether a window that begins with a run goes into the same buffer: what is read together does,
 * and nothing else with that. */
static bool has_room(const struct share_prefetch *prefetch, const struct packing *packing,
                     const struct share_run *run)
{
    const struct load_share *share = prefetch->share;
    if (!packing->run)
        return true;
    if (is_striped(prefetch, run) || is_striped(prefetch, packing->run))
        return share_read_together(share, prefetch->exchange->metadata, packing->run, run);
    return packing->place + share->window <= EXCHANGE_LOT_BYTES;
}

static void pack(struct packing *packing, const struct share_run *run, size_t size)
{
    packing->run = run;
    packing->place = align(packing->place + size);
}

/* How far a buffer has been filled. */
struct filling {
    struct share_cursor cursor;
    struct share_window window; /* which is not packed yet */
    struct packing packing;
};

/* The next segment of the windows that go into a buffer; false: there is none. */
static bool next_segment(const struct share_prefetch *prefetch, struct filling *filling,
                         struct share_segment *segment)
{
    const struct load_share *share = prefetch->share;
    const struct metadata *metadata = prefetch->exchange->metadata;
    while (!share_window_next(share, metadata, &filling->window, &filling->cursor, segment)) {
        if (filling->window.begun)
            pack(&filling->packing, filling->window.run, filling->window.bytes);
        filling->window = (struct share_window){0};
        if (filling->cursor.run == share->run_count ||
            !has_room(prefetch, &filling->packing, &share->runs[filling->cursor.run]))
            return false;
    }
    return true;
}

/* Where a window of its own belongs, if the last segment is one and that is known. */
static unsigned char *place_of(const struct share_prefetch *prefetch, const struct filling *filling,
                               const struct share_segment *segment)
{
    struct filling after = *filling;
    struct share_segment next;
    if (segment->place != 0 || share_window_next(prefetch->share, prefetch->exchange->metadata,
                                                 &after.window, &after.cursor, &next))
        return NULL;
    return share_destinations_place(prefetch->put, segment->run, segment->from);
}

/* Whether ranks of this host read windows with a run where they are. */
static bool others_read(const struct share_prefetch *prefetch, const struct share_run *run)
{
    const int *ranks;
    int own = dcp_group_rank(prefetch->exchange->group);
    size_t count = prefetch->memory ? host_memory_with(prefetch->memory, own, &ranks) : 0;
    bool any = false;
    for (size_t i = 0; i < count && !any; i++)
        any = ranks[i] != own &&
              load_share_wants(prefetch->share, prefetch->share->regions[run->region].set,
                               (uint32_t)ranks[i]);
    return any;
}

/* Where the last segment goes. */
static struct share_target target_of(const struct share_prefetch *prefetch,
                                     const struct filling *filling,
                                     const struct share_segment *segment, unsigned char *buffer)
{
    unsigned char *place = place_of(prefetch, filling, segment);
    unsigned char *in_window = buffer + filling->packing.place + segment->place;
    struct share_target target = {.span = {segment->run, segment->from, segment->end},
                                  .bytes = place ? place : in_window};
    if (place && others_read(prefetch, segment->run))
        target.also = in_window;
    return target;
}

/* Segments of a run that follow each other in memory as well. */
static bool next_target(const struct share_prefetch *prefetch, struct filling *filling,
                        unsigned char *buffer, struct share_target *target)
{
    const struct metadata *metadata = prefetch->exchange->metadata;
    struct filling after = *filling;
    struct share_segment segment;
    struct share_span *span = &target->span;
    size_t size = 0;
    *target = (struct share_target){.bytes = NULL};
    while (next_segment(prefetch, &after, &segment)) {
        const struct share_region *region = &prefetch->share->regions[segment.run->region];
        struct share_target part = target_of(prefetch, &after, &segment, buffer);
        if (span->run && (span->run != segment.run || target->bytes + size != part.bytes ||
                          (target->also ? target->also + size : NULL) != part.also))
            break;
        if (!span->run)
            *target = part;
        span->end = segment.end;
        size += (size_t)(segment.end - segment.from) *
                share_element_size(&metadata->entries[region->entry]);
        *filling = after;
    }
    return span->run != NULL;
}

/* The first one of the next buffer, without filling it. */
static bool peek_target(const struct share_prefetch *prefetch, const struct filling *filling,
                        unsigned char *buffer, struct share_target *target)
{
    struct filling next = {.cursor = filling->cursor};
    return next_target(prefetch, &next, buffer, target);
}

/* Reads the windows that go into a buffer: what is read together at once, else target after
 * target. */
static dcp_status fill_buffer(struct share_prefetch *prefetch, size_t index)
{
    const struct load_exchange *exchange = prefetch->exchange;
    struct filling filling = {.cursor = prefetch->cursor};
    struct share_target *targets = prefetch->targets, next;
    unsigned char *buffer = prefetch->buffers[index];
    bool more = next_target(prefetch, &filling, buffer, &targets[0]);
    while (more) {
        bool together = is_striped(prefetch, targets[0].span.run);
        size_t count = 1;
        while ((more = next_target(prefetch, &filling, buffer, &next)) && together)
            targets[count++] = next;
        bool known = more || peek_target(prefetch, &filling, buffer, &next);
        RETURN_IF_ERROR(
            exchange->read(exchange->read_context, targets, count, known ? &next.span : NULL));
        targets[0] = next;
    }
    prefetch->cursor = filling.cursor;
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

static void give_back(struct share_prefetch *prefetch)
{
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->emptied = prefetch->taken;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->mutex);
}

/* Leaves the current buffer, if any, and waits for the next one. */
static dcp_status take_buffer(struct share_prefetch *prefetch)
{
    prefetch->taken += prefetch->sent.run != NULL;
    if (!prefetch->memory)
        give_back(prefetch);
    pthread_mutex_lock(&prefetch->mutex);
    while (prefetch->threaded && prefetch->filled == prefetch->taken)
        pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
    pthread_mutex_unlock(&prefetch->mutex);
    if (!prefetch->threaded)
        note_filled(prefetch, fill_buffer(prefetch, prefetch->taken % prefetch->buffer_count));
    prefetch->sent = (struct packing){.run = NULL};
    pthread_mutex_lock(&prefetch->mutex);
    bool is_last = prefetch->filled - prefetch->taken == 1;
    if (is_last && prefetch->failure.status != DCP_OK)
        prefetch->failed = error_restore(&prefetch->failure);
    pthread_mutex_unlock(&prefetch->mutex);
    return prefetch->failed;
}

void share_prefetch_pass(struct share_prefetch *prefetch)
{
    if (prefetch->emptied != prefetch->taken)
        give_back(prefetch);
}

dcp_status share_prefetch_next(struct share_prefetch *prefetch, const struct share_run *run,
                               size_t size, const unsigned char **bytes)
{
    struct packing *sent = &prefetch->sent;
    *bytes = prefetch->buffers[0];
    if (prefetch->failed != DCP_OK)
        return error_restore(&prefetch->failure);
    if (!sent->run || !has_room(prefetch, sent, run))
        RETURN_IF_ERROR(take_buffer(prefetch));
    *bytes = prefetch->buffers[prefetch->taken % prefetch->buffer_count] + sent->place;
    pack(sent, run, size);
    return DCP_OK;
}

/* Chooses the number and size of the buffers: as what is to be read fills them. */
static struct share_prefetch choose_buffer(const struct load_exchange *exchange)
{
    const struct load_share *share = exchange->share;
    struct share_prefetch prefetch = {
        .exchange = exchange,
        .share = share,
        .cursor = share_cursor_start(share, (uint32_t)dcp_group_rank(exchange->group)),
        .buffer_size = share->window,
        .target_count = 1,
    };
    struct filling filling = {.cursor = prefetch.cursor};
    struct share_segment segment;
    size_t buffers = 0;
    for (; filling.cursor.run < share->run_count; buffers++) {
        size_t targets = 0;
        filling = (struct filling){.cursor = filling.cursor};
        while (next_segment(&prefetch, &filling, &segment))
            targets += is_striped(&prefetch, segment.run);
        if (targets > prefetch.target_count)
            prefetch.target_count = targets;
        if (filling.packing.place > prefetch.buffer_size)
            prefetch.buffer_size = filling.packing.place;
    }
    prefetch.buffer_count = buffers <= 1 ? 1 : PREFETCH_BUFFERS;
    return prefetch;
}

uint64_t share_prefetch_memory(const struct load_exchange *exchange)
{
    struct share_prefetch prefetch = choose_buffer(exchange);
    return sizeof prefetch + (uint64_t)prefetch.buffer_count * prefetch.buffer_size +
           prefetch.target_count * sizeof *prefetch.targets + THREAD_STACK_SIZE;
}

size_t share_prefetch_room(const struct share_prefetch *prefetch)
{
    return prefetch->buffer_count * prefetch->buffer_size;
}

static dcp_status allocate(struct share_prefetch *prefetch)
{
    unsigned char *shared = prefetch->memory ? host_memory_own(prefetch->memory) : NULL;
    for (size_t i = 0; i < prefetch->buffer_count; i++) {
        prefetch->buffers[i] = shared ? shared + i * prefetch->buffer_size
                                      : memory_allocate_zeroed(1, prefetch->buffer_size);
        if (!prefetch->buffers[i])
            return error_no_memory(prefetch->buffer_size, "buffers to read for other ranks");
    }
    prefetch->targets = memory_allocate_array(prefetch->target_count, sizeof *prefetch->targets);
    if (!prefetch->targets)
        return error_no_memory(prefetch->target_count * sizeof *prefetch->targets,
                               "what to read for other ranks");
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
    return DCP_OK;
}

dcp_status share_prefetch_start(struct share_prefetch *prefetch, const struct host_memory *memory)
{
    prefetch->memory = host_memory_own(memory) ? memory : NULL;
    dcp_status status = allocate(prefetch);
    if (status == DCP_OK && prefetch->cursor.run < prefetch->share->run_count)
        prefetch->threaded = thread_start(&prefetch->thread, fill_ahead, prefetch) == 0;
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
    for (size_t i = 0; i < prefetch->buffer_count && !prefetch->memory; i++)
        memory_release(prefetch->buffers[i]);
    memory_release(prefetch->targets);
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->mutex);
    memory_release(prefetch);
}
