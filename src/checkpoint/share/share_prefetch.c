/* SPDX-License-Identifier: BSD-3-Clause */
/* Lots of bytes that are read ahead of being sent: each holds some windows, so that reads are large
 * however small the windows are. A thread fills them in turn; where the system has none to give,
 * the caller's does. */
#include <pthread.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "checkpoint/share/load_exchange.h"

enum { ALIGNMENT = 16 };

struct load_lots {
    const struct load_exchange *exchange;
    const struct load_share *share;
    size_t lot_size;
    size_t lot_count;
    unsigned char *lots[EXCHANGE_LOTS];
    struct share_cursor cursor; /* of whoever fills */

    /* Of whoever takes. */
    bool begun;
    size_t place; /* in the lot at hand */
    dcp_status failed;

    bool threaded;
    struct thread thread;
    pthread_mutex_t mutex; /* over what follows */
    pthread_cond_t changed;
    uint64_t filled;
    uint64_t emptied;
    bool stopping;
    struct error_story failure; /* of the last lot that was filled */
};

static size_t align(size_t place)
{
    return (place + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Segments that are read at once. */
struct stretch {
    const struct share_run *run; /* NULL: none yet */
    int64_t from;
    int64_t end;
    unsigned char *bytes;
};

static dcp_status read_stretch(struct load_lots *lots, const struct stretch *stretch)
{
    if (!stretch->run)
        return DCP_OK;
    return lots->exchange->read(lots->exchange->read_context, stretch->run, stretch->from,
                                stretch->end, stretch->bytes);
}

static size_t element_size(const struct load_lots *lots, const struct share_run *run)
{
    const struct share_atom *atom = &lots->share->atoms[run->atom];
    return share_element_size(&lots->exchange->metadata->entries[atom->entry]);
}

/* Fills a lot with as many windows as fit, whatever they hold. */
static dcp_status fill_lot(struct load_lots *lots, unsigned char *lot)
{
    struct stretch stretch = {0};
    size_t place = 0;
    while (place + lots->share->window <= lots->lot_size) {
        struct share_window window = {0};
        struct share_segment segment;
        while (share_window_next(lots->share, lots->exchange->metadata, &window, &lots->cursor,
                                 &segment)) {
            unsigned char *bytes = lot + place + segment.place;
            size_t size = element_size(lots, segment.run);
            if (stretch.run == segment.run &&
                stretch.bytes + (size_t)(stretch.end - stretch.from) * size == bytes) {
                stretch.end = segment.end;
                continue;
            }
            RETURN_IF_ERROR(read_stretch(lots, &stretch));
            stretch = (struct stretch){segment.run, segment.from, segment.end, bytes};
        }
        if (!window.begun)
            break;
        place = align(place + window.bytes);
    }
    RETURN_IF_ERROR(read_stretch(lots, &stretch));
    if (lots->cursor.run < lots->share->run_count || !lots->exchange->end)
        return DCP_OK;
    return lots->exchange->end(lots->exchange->read_context);
}

static void note_filled(struct load_lots *lots, dcp_status status)
{
    pthread_mutex_lock(&lots->mutex);
    if (status != DCP_OK) {
        error_save(&lots->failure);
        lots->failure.status = status;
    }
    lots->filled++;
    pthread_cond_broadcast(&lots->changed);
    pthread_mutex_unlock(&lots->mutex);
}

/* Waits for a lot that may be filled; false if none is wanted any more. */
static bool wait_for_room(struct load_lots *lots)
{
    pthread_mutex_lock(&lots->mutex);
    while (lots->filled - lots->emptied == lots->lot_count && !lots->stopping)
        pthread_cond_wait(&lots->changed, &lots->mutex);
    bool stopping = lots->stopping;
    pthread_mutex_unlock(&lots->mutex);
    return !stopping;
}

static void *fill_ahead(void *argument)
{
    struct load_lots *lots = argument;
    dcp_status status = DCP_OK;
    for (size_t lot = 0; status == DCP_OK && lots->cursor.run < lots->share->run_count; lot++) {
        if (!wait_for_room(lots))
            break;
        status = fill_lot(lots, lots->lots[lot % lots->lot_count]);
        note_filled(lots, status);
    }
    return NULL;
}

/* Gives the lot at hand back, if there is one, and waits for the next. */
static dcp_status take_lot(struct load_lots *lots)
{
    pthread_mutex_lock(&lots->mutex);
    lots->emptied += lots->begun;
    pthread_cond_broadcast(&lots->changed);
    while (lots->threaded && lots->filled == lots->emptied)
        pthread_cond_wait(&lots->changed, &lots->mutex);
    pthread_mutex_unlock(&lots->mutex);
    if (!lots->threaded)
        note_filled(lots, fill_lot(lots, lots->lots[lots->emptied % lots->lot_count]));
    lots->begun = true;
    lots->place = 0;
    pthread_mutex_lock(&lots->mutex);
    bool is_last = lots->filled - lots->emptied == 1;
    if (is_last && lots->failure.status != DCP_OK)
        lots->failed = error_restore(&lots->failure);
    pthread_mutex_unlock(&lots->mutex);
    return lots->failed;
}

dcp_status load_lots_next(struct load_lots *lots, size_t size, const unsigned char **bytes)
{
    *bytes = lots->lots[0];
    if (lots->failed != DCP_OK)
        return error_restore(&lots->failure);
    if (!lots->begun || lots->place + lots->share->window > lots->lot_size)
        RETURN_IF_ERROR(take_lot(lots));
    *bytes = lots->lots[lots->emptied % lots->lot_count] + lots->place;
    lots->place = align(lots->place + size);
    return DCP_OK;
}

/* Of all that the rank has to send. */
static uint64_t stream_bytes(const struct load_lots *lots)
{
    const struct load_share *share = lots->share;
    uint64_t total = 0;
    for (uint32_t at = lots->cursor.run; at < share->run_count; at = share->next[at]) {
        const struct share_run *run = &share->runs[at];
        total += (uint64_t)(run->end - run->from) * element_size(lots, run) + ALIGNMENT;
    }
    return total;
}

/* How many lots there are of which size. */
static struct load_lots choose_lots(const struct load_exchange *exchange)
{
    const struct load_share *share = exchange->share;
    struct load_lots lots = {
        .exchange = exchange,
        .share = share,
        .cursor = share_cursor_start(share, (uint32_t)dcp_group_rank(exchange->group)),
    };
    uint64_t total = stream_bytes(&lots);
    lots.lot_size = total < EXCHANGE_LOT_BYTES ? align((size_t)total) : EXCHANGE_LOT_BYTES;
    if (lots.lot_size < share->window)
        lots.lot_size = share->window;
    lots.lot_count = total <= lots.lot_size ? 1 : EXCHANGE_LOTS;
    return lots;
}

uint64_t load_lots_memory(const struct load_exchange *exchange)
{
    struct load_lots lots = choose_lots(exchange);
    return sizeof lots + (uint64_t)lots.lot_count * lots.lot_size + THREAD_STACK_SIZE;
}

static dcp_status allocate(struct load_lots *lots)
{
    for (size_t i = 0; i < lots->lot_count; i++) {
        lots->lots[i] = memory_allocate_zeroed(1, lots->lot_size);
        if (!lots->lots[i])
            return error_no_memory(lots->lot_size, "what is read for other ranks");
    }
    return DCP_OK;
}

dcp_status load_lots_open(const struct load_exchange *exchange, struct load_lots **lots)
{
    struct load_lots *made = *lots = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "what is read for other ranks");
    *made = choose_lots(exchange);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    dcp_status status = allocate(made);
    if (status == DCP_OK && made->cursor.run < made->share->run_count)
        made->threaded = thread_start(&made->thread, fill_ahead, made) == 0;
    return status;
}

void load_lots_close(struct load_lots *lots)
{
    if (!lots)
        return;
    if (lots->threaded) {
        pthread_mutex_lock(&lots->mutex);
        lots->stopping = true;
        pthread_cond_broadcast(&lots->changed);
        pthread_mutex_unlock(&lots->mutex);
        thread_join(&lots->thread);
    }
    for (size_t i = 0; i < lots->lot_count; i++)
        memory_release(lots->lots[i]);
    pthread_cond_destroy(&lots->changed);
    pthread_mutex_destroy(&lots->mutex);
    memory_release(lots);
}
