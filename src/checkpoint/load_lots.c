/* SPDX-License-Identifier: BSD-3-Clause */
/* Lots of bytes that are read ahead of being sent: each holds some windows, so that reads are large
 * however small the windows are. A thread fills them in turn; where the system has none to give,
 * the caller's does. */
#include <pthread.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "checkpoint/load_sharing.h"

enum { ALIGNMENT = 16 };

struct load_lots {
    const struct load_sharing *sharing;
    const struct load_share *share;
    size_t lot_size;
    size_t lot_count;
    unsigned char *lots[SHARING_LOTS];

    /* Of whoever fills. */
    struct share_cursor cursor;
    struct shard_piece *piece;
    const struct share_atom *piece_atom; /* of what is open */
    bool piece_cut;

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

static bool is_cut(const struct share_atom *atom, const struct share_run *run)
{
    return run->from != 0 || run->end != box_volume(atom->region);
}

/* Closes the piece that is open, if any: what was read from it was right. */
static dcp_status end_piece(struct load_lots *lots)
{
    dcp_status status = lots->piece ? shard_piece_end(lots->piece) : DCP_OK;
    shard_piece_close(lots->piece);
    lots->piece = NULL;
    return status;
}

/* Opens the run's piece, unless it is open in the same way. */
static dcp_status open_for(struct load_lots *lots, const struct share_run *run)
{
    const struct load_sharing *sharing = lots->sharing;
    const struct share_atom *atom = &lots->share->atoms[run->atom];
    const struct metadata_entry *entry = &sharing->metadata->entries[atom->entry];
    const struct metadata_piece *piece = &entry->pieces[atom->piece];
    bool cut = is_cut(atom, run);
    if (lots->piece && lots->piece_atom->entry == atom->entry &&
        lots->piece_atom->piece == atom->piece && lots->piece_cut == cut)
        return DCP_OK;
    RETURN_IF_ERROR(end_piece(lots));
    lots->piece_atom = atom;
    lots->piece_cut = cut;
    return shard_piece_open(sharing->reader, entry, piece, atom->region, cut,
                            sharing->options->verification, &lots->piece);
}

/* Reads elements of a run that follow each other. */
static dcp_status read_elements(struct load_lots *lots, const struct share_run *run, int64_t from,
                                int64_t end, unsigned char *bytes)
{
    const struct share_atom *atom = &lots->share->atoms[run->atom];
    const struct box whole = atom->region;
    size_t size = dcp_dtype_size(lots->sharing->metadata->entries[atom->entry].dtype);
    RETURN_IF_ERROR(open_for(lots, run));
    while (from < end) {
        struct box_storage box;
        int64_t taken = shape_next_box(whole.ndim, whole.sizes, from, end, box.offsets, box.sizes);
        for (int32_t i = 0; i < whole.ndim; i++)
            box.offsets[i] += whole.offsets[i];
        RETURN_IF_ERROR(shard_piece_read(lots->piece, box_of(whole.ndim, &box), bytes));
        bytes += (size_t)taken * size;
        from += taken;
    }
    return DCP_OK;
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
    return read_elements(lots, stretch->run, stretch->from, stretch->end, stretch->bytes);
}

/* Fills a lot with as many windows as fit, whatever they hold. */
static dcp_status fill_lot(struct load_lots *lots, unsigned char *lot)
{
    struct stretch stretch = {0};
    size_t place = 0;
    while (place + lots->share->window <= lots->lot_size) {
        struct share_window window = {0};
        struct share_segment segment;
        while (share_window_next(lots->share, lots->sharing->metadata, &window, &lots->cursor,
                                 &segment)) {
            unsigned char *bytes = lot + place + segment.place;
            size_t size = dcp_dtype_size(
                lots->sharing->metadata->entries[lots->share->atoms[segment.run->atom].entry]
                    .dtype);
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
    return lots->cursor.run < lots->share->run_count ? DCP_OK : end_piece(lots);
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
static uint64_t stream_bytes(const struct load_sharing *sharing, const struct load_share *share,
                             uint32_t rank)
{
    uint64_t total = 0;
    for (uint32_t at = share->first[rank]; at < share->run_count; at = share->next[at]) {
        const struct share_run *run = &share->runs[at];
        const struct share_atom *atom = &share->atoms[run->atom];
        total += (uint64_t)(run->end - run->from) *
                     dcp_dtype_size(sharing->metadata->entries[atom->entry].dtype) +
                 ALIGNMENT;
    }
    return total;
}

static dcp_status allocate(struct load_lots *lots, uint64_t total)
{
    lots->lot_size = total < SHARING_LOT_BYTES ? align((size_t)total) : SHARING_LOT_BYTES;
    if (lots->lot_size < lots->share->window)
        lots->lot_size = lots->share->window;
    lots->lot_count = total <= lots->lot_size ? 1 : SHARING_LOTS;
    for (size_t i = 0; i < lots->lot_count; i++) {
        lots->lots[i] = memory_allocate_zeroed(1, lots->lot_size);
        if (!lots->lots[i])
            return error_no_memory(lots->lot_size, "what is read for other ranks");
    }
    return DCP_OK;
}

dcp_status load_lots_open(const struct load_sharing *sharing, const struct load_share *share,
                          struct load_lots **lots)
{
    uint32_t rank = (uint32_t)dcp_group_rank(sharing->options->group);
    struct load_lots *made = *lots = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "what is read for other ranks");
    made->sharing = sharing;
    made->share = share;
    made->cursor = share_cursor_start(share, rank);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    dcp_status status = allocate(made, stream_bytes(sharing, share, rank));
    if (status == DCP_OK && made->cursor.run < share->run_count)
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
    shard_piece_close(lots->piece);
    for (size_t i = 0; i < lots->lot_count; i++)
        memory_release(lots->lots[i]);
    pthread_cond_destroy(&lots->changed);
    pthread_mutex_destroy(&lots->mutex);
    memory_release(lots);
}
