/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a range of a file piece by piece: what the page cache has is copied from there, and of
 * what it has not several pieces are under way at a time, around it. These go through buffers in
 * large pages: for a device to gather ordinary pages costs far more than a copy. When all of a
 * range is under way, the next one begins: a device that has nothing to do until then loses that
 * time. */
#include "base/error.h"
#include "base/memory.h"
#include "base/stream_copy.h"
#include "storage/shard/read_lane.h"

/* Stays in a core's cache from being read, if that is at once, until it has been visited. */
#define PIECE ((size_t)512 << 10)
/* From here on a range is worth asking where it is. */
#define LARGE ((size_t)SHARD_LARGE)
/* Up to here a range around the page cache that is alone has few pieces. */
#define LITTLE       ((size_t)4 << 20)
#define LITTLE_SLOTS 2
/* Bytes that processors copy fast from and to; from a range of so many bytes on, one whose place in
 * memory is not aligned as in its file goes through a buffer as well. */
#define LINE   ((uintptr_t)64)
#define SKEWED ((size_t)256 << 10)

enum piece_way {
    PIECE_AT_ITS_TURN, /* from the page cache */
    PIECE_BUFFERED,    /* the same, through a buffer */
    PIECE_QUEUED,      /* from the page cache, meanwhile */
    PIECE_DIRECT       /* around it, through a buffer */
};

/* A range that is read: the pieces from `visited` to `started` are under way. Each but the first
 * one begins at a page of the file. */
struct reading {
    struct shard_file *file;
    struct read_lane *lane;
    unsigned char *bytes; /* NULL: pieces are visited in the buffers, and go nowhere */
    size_t size;
    uint64_t offset;
    size_t started;
    size_t visited;
    size_t fetched;            /* for data that is read in order: it is in memory up to here */
    bool demanded;             /* must use a queue, even if it is cached */
    struct cached_group group; /* that the last query covered */
    enum piece_way ways[READ_LANE_SLOTS];
    size_t piece;                   /* bytes of each */
    size_t slots;                   /* buffers of that size */
    uint64_t base;                  /* where the first piece would begin in the file, at a page */
    size_t first;                   /* its slot */
    const struct shard_range *next; /* NULL: not known */
    struct cached_group next_group;
};

/* How far the range begins inside its first piece. */
static size_t skew_of(const struct reading *reading)
{
    return (size_t)(reading->offset - reading->base);
}

static size_t piece_of(const struct reading *reading, size_t position)
{
    return (position + skew_of(reading)) / reading->piece;
}

static size_t slot_of(const struct reading *reading, size_t position)
{
    return (reading->first + piece_of(reading, position)) % reading->slots;
}

static size_t size_at(const struct reading *reading, size_t position)
{
    size_t left = reading->size - position;
    size_t piece = reading->piece - (position + skew_of(reading)) % reading->piece;
    return left < piece ? left : piece;
}

/* Continues with what has begun while the range before this one was read. */
static void continue_begun(struct reading *reading)
{
    if (reading->size < LARGE)
        return;
    reading->lane = read_lane_take_begun(reading->file, reading->offset);
    if (!reading->lane)
        return;
    const struct begun_range begun = reading->lane->begun;
    reading->piece = READ_LANE_DIRECT_PIECE;
    reading->slots = READ_LANE_DIRECT_SLOTS;
    reading->base = begun.base;
    reading->first = begun.first;
    size_t wanted = piece_of(reading, reading->size - 1) + 1, count = begun_count(&begun);
    if (begun.end < reading->offset + reading->size) /* then the last one may lack bytes */
        count = (size_t)(begun.end - begun.base) / READ_LANE_DIRECT_PIECE;
    count = wanted < count ? wanted : count;
    read_lane_continue(reading->file->reader, reading->lane, count);
    for (size_t i = 0; i < count; i++) {
        reading->ways[slot_of(reading, reading->started)] = PIECE_DIRECT;
        reading->started += size_at(reading, reading->started);
    }
}

/* The system's copy into memory that is aligned otherwise than the file is slow on many processors,
 * slower than one that stays in a core's cache and another from there. */
static bool is_skewed(const struct reading *reading)
{
    return ((uintptr_t)reading->bytes - reading->offset) % LINE != 0 && reading->size >= SKEWED &&
           reading->file->file.directory->traits.request_size <= PIECE;
}

/* What begins in the page cache is read in pieces that stay in a core's cache. */
static void choose_pieces(struct reading *reading)
{
    struct shard_file *file = reading->file;
    bool direct =
        reading->size >= LARGE && !file->reader->how.plain &&
        shard_file_bypasses_cache(file, &reading->group, reading->offset, reading->demanded);
    bool longer = reading->next || reading->size > LITTLE;
    reading->piece = direct ? READ_LANE_DIRECT_PIECE : PIECE;
    reading->slots = !direct ? READ_LANE_SLOTS : longer ? READ_LANE_DIRECT_SLOTS : LITTLE_SLOTS;
    reading->base = reading->offset & ~(uint64_t)(MEMORY_PAGE - 1);
}

/* Direct transfers cannot reach into the page that the file ends in the middle of. */
static enum piece_way choose_way(struct reading *reading, size_t at)
{
    struct shard_file *file = reading->file;
    uint64_t position = reading->offset + at;
    if (file->reader->how.plain)
        return reading->bytes ? PIECE_AT_ITS_TURN : PIECE_BUFFERED;
    if (!reading->demanded &&
        (reading->size < LARGE || shard_file_is_cached(file, &reading->group, position)))
        return !reading->bytes || is_skewed(reading) ? PIECE_BUFFERED : PIECE_AT_ITS_TURN;
    if (!storage_file_wants_alignment(&file->file))
        return PIECE_QUEUED;
    uint64_t end = position + size_at(reading, at);
    return end <= (shard_file_size(file) & ~(uint64_t)(MEMORY_PAGE - 1)) ? PIECE_DIRECT
                                                                         : PIECE_QUEUED;
}

/* Where a piece's bytes are in its buffer. */
static size_t way_into(const struct reading *reading, size_t at)
{
    return (at + skew_of(reading)) % reading->piece;
}

static void start_direct(struct reading *reading, size_t at)
{
    struct read_lane *lane = reading->lane;
    uint64_t page = MEMORY_PAGE - 1, position = reading->offset + at;
    uint64_t start = position - way_into(reading, at);
    uint64_t end = (position + size_at(reading, at) + page) & ~page;
    size_t slot = slot_of(reading, at);
    storage_queue_read(lane->queue, &lane->transfers[slot], &reading->file->file,
                       lane->buffers + slot * reading->piece, (size_t)(end - start), start);
}

/* Where a piece that needs no alignment goes. */
static unsigned char *queued_place(const struct reading *reading, size_t at)
{
    return reading->bytes ? reading->bytes + at
                          : reading->lane->buffers + slot_of(reading, at) * reading->piece;
}

static dcp_status start_piece(struct reading *reading, size_t at)
{
    enum piece_way way = choose_way(reading, at);
    size_t slot = slot_of(reading, at);
    reading->ways[slot] = way;
    if (way == PIECE_AT_ITS_TURN)
        return DCP_OK;
    if (!reading->lane)
        RETURN_IF_ERROR(read_lane_take(reading->file->reader, &reading->lane));
    if (way != PIECE_QUEUED || !reading->bytes)
        RETURN_IF_ERROR(read_lane_make_buffers(reading->lane, reading->slots * reading->piece));
    if (way == PIECE_BUFFERED)
        return DCP_OK;
    RETURN_IF_ERROR(read_lane_open_queue(reading->lane, reading->file));
    if (way == PIECE_DIRECT) {
        start_direct(reading, at);
        return DCP_OK;
    }
    storage_queue_read(reading->lane->queue, &reading->lane->transfers[slot], &reading->file->file,
                       queued_place(reading, at), size_at(reading, at), reading->offset + at);
    return DCP_OK;
}

/* What is read at its turn comes from the page cache: there is nothing to start before it. */
static bool is_next_at_its_turn(const struct reading *reading)
{
    return reading->started > reading->visited &&
           reading->ways[slot_of(reading, reading->visited)] <= PIECE_BUFFERED;
}

/* Pieces whose buffers are in use. */
static size_t under_way(const struct reading *reading)
{
    size_t begun = reading->lane ? begun_count(&reading->lane->begun) : 0;
    return reading->started == reading->visited
               ? begun
               : piece_of(reading, reading->started - 1) - piece_of(reading, reading->visited) + 1 +
                     begun;
}

static dcp_status start_own(struct reading *reading, size_t most)
{
    while (reading->started < reading->size && !is_next_at_its_turn(reading) &&
           under_way(reading) < most) {
        RETURN_IF_ERROR(start_piece(reading, reading->started));
        reading->started += size_at(reading, reading->started);
    }
    return DCP_OK;
}

/* Whether the next range will follow in this lane, around the page cache as well. */
static bool leads_to_next(const struct reading *reading)
{
    return reading->next && reading->started == reading->size &&
           reading->piece == READ_LANE_DIRECT_PIECE &&
           reading->ways[slot_of(reading, reading->size - 1)] >= PIECE_QUEUED;
}

/* Up to where pieces of the next range from base on may begin: direct transfers cannot reach into
 * the page that the file ends in the middle of, and the last piece is not begun in part. */
static uint64_t next_end(const struct shard_range *next, uint64_t base)
{
    uint64_t page = MEMORY_PAGE - 1, size = shard_file_size(next->file), pages = size & ~page;
    if (next->offset > size || next->size > size - next->offset || base > pages)
        return base;
    uint64_t end = (next->offset + next->size + page) & ~page;
    return end <= pages ? end : pages - (pages - base) % READ_LANE_DIRECT_PIECE;
}

/* This range has no buffers if all of it goes straight to its place; without memory for some, the
 * next one begins at its turn. */
static bool has_buffers(const struct reading *reading)
{
    struct saved_error error;
    error_save(&error);
    dcp_status status = read_lane_make_buffers(reading->lane, reading->slots * reading->piece);
    error_restore(&error);
    return status == DCP_OK;
}

/* The first pieces of the next range, in buffers that this one needs no more. */
static void begin_next(struct reading *reading, size_t most)
{
    const struct shard_range *next = reading->next;
    struct read_lane *lane = reading->lane;
    size_t slot = (slot_of(reading, reading->size - 1) + 1) % reading->slots;
    uint64_t unit = shard_file_unit(next->file), base = next->offset / unit * unit;
    uint64_t end = next_end(next, base);
    for (uint64_t start; under_way(reading) < most;) {
        start = lane->begun.file ? lane->begun.end : base;
        if (start == end ||
            (!reading->demanded && shard_file_is_cached(next->file, &reading->next_group, start)))
            return;
        uint64_t left = end - start;
        read_lane_begin(lane, next->file, base, slot,
                        (size_t)(left < reading->piece ? left : reading->piece));
    }
}

/* So that no more than so many pieces are under way. */
static dcp_status start_pieces(struct reading *reading, size_t most)
{
    RETURN_IF_ERROR(start_own(reading, most));
    if (leads_to_next(reading) && has_buffers(reading))
        begin_next(reading, most);
    return DCP_OK;
}

/* More than the piece, where that is better. */
static dcp_status read_at_its_turn(struct reading *reading, size_t at)
{
    struct storage_file *file = &reading->file->file;
    size_t request = file->directory->traits.request_size;
    size_t size = size_at(reading, at), left = reading->size - at;
    if (at + size <= reading->fetched)
        return DCP_OK;
    if (size < request)
        size = left < request ? left : request;
    RETURN_IF_ERROR(storage_file_read(file, reading->bytes + at, size, reading->offset + at));
    reading->fetched = at + size;
    return DCP_OK;
}

/* The first buffer, which stays in a core's cache from piece to piece, unless transfers of later
 * pieces are under way. */
static unsigned char *buffer_at_its_turn(const struct reading *reading, size_t at)
{
    bool alone = reading->started - at == size_at(reading, at);
    return reading->lane->buffers + (alone ? 0 : slot_of(reading, at) * reading->piece);
}

/* Has the bytes of a piece somewhere: in *found, which is not yet their place if they came through
 * a buffer. */
static dcp_status finish_piece(struct reading *reading, size_t at, unsigned char **found)
{
    size_t slot = slot_of(reading, at);
    enum piece_way way = reading->ways[slot];
    uint64_t position = reading->offset + at;
    if (!reading->lane || way == PIECE_AT_ITS_TURN) {
        *found = reading->bytes + at;
        return read_at_its_turn(reading, at);
    }
    if (way == PIECE_BUFFERED) {
        *found = buffer_at_its_turn(reading, at);
        return storage_file_read(&reading->file->file, *found, size_at(reading, at), position);
    }
    *found = way == PIECE_DIRECT
                 ? reading->lane->buffers + slot * reading->piece + way_into(reading, at)
                 : queued_place(reading, at);
    return storage_queue_finish(reading->lane->queue, &reading->lane->transfers[slot]);
}

/* Visited in a buffer, bytes are in a core's cache when they are copied from there. One buffer is
 * free until then: a device that reports many transfers at once, when it has no more, has the next
 * one before this one's bytes are visited. */
static dcp_status visit_piece(struct reading *reading, shard_piece_visitor visit, void *context)
{
    size_t at = reading->visited, piece = size_at(reading, at);
    unsigned char *found;
    RETURN_IF_ERROR(finish_piece(reading, at, &found));
    RETURN_IF_ERROR(start_pieces(reading, reading->slots));
    for (size_t done = 0, step; done < piece; done += step) {
        size_t into = (at + done + skew_of(reading)) % PIECE;
        step = piece - done < PIECE - into ? piece - done : PIECE - into;
        RETURN_IF_ERROR(visit(context, reading->offset + at + done, found + done, step));
        if (reading->bytes && found != reading->bytes + at)
            stream_copy(reading->bytes + at + done, found + done, step);
    }
    reading->visited += piece;
    return DCP_OK;
}

dcp_status shard_file_read_ahead(struct shard_file *file, void *bytes, size_t size, uint64_t offset,
                                 shard_piece_visitor visit, void *context,
                                 const struct shard_range *next)
{
    struct shard_reader *reader = file->reader;
    struct reading reading = {.file = file,
                              .next = next,
                              .bytes = bytes,
                              .size = size,
                              .offset = offset,
                              .group = {.start = UINT64_MAX},
                              .next_group = {.start = UINT64_MAX},
                              .demanded = size >= LARGE && shard_reader_demands(reader)};
    dcp_status status = DCP_OK;
    choose_pieces(&reading);
    continue_begun(&reading);
    while (status == DCP_OK && reading.visited < size) {
        status = start_pieces(&reading, reading.slots - 1);
        if (status == DCP_OK)
            status = visit_piece(&reading, visit, context);
    }
    if (reading.lane && reading.lane->queue &&
        storage_queue_ways(reading.lane->queue, &file->file) & DCP_IO_DIRECT)
        atomic_store_explicit(&reader->direct, true, memory_order_relaxed);
    shard_file_count(file, reading.started);
    if (reading.lane)
        read_lane_give(reader, reading.lane, reading.visited == reading.started);
    return status;
}
