/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a range of a file piece by piece: what the page cache has is copied from there, and of
 * what it has not several pieces are under way at a time, around it. These go through buffers in
 * large pages: for a device to gather ordinary pages costs far more than a copy. */
#include "base/error.h"
#include "base/memory.h"
#include "base/stream_copy.h"
#include "storage/shard/shard_file.h"

/* Stays in a core's cache from being read, if that is at once, until it has been visited. */
#define PIECE ((size_t)512 << 10)
/* Pieces that are under way at a time. */
#define AHEAD   ((size_t)8)
#define BUFFERS (AHEAD * PIECE)
/* From here on a range is worth asking where it is. */
#define LARGE ((size_t)SHARD_LARGE)
/* Bytes that one query of the page cache covers. */
#define GROUP ((uint64_t)8 << 20)
/* Bytes that processors copy fast from and to; from a range of so many bytes on, one whose place in
 * memory is not aligned as in its file goes through a buffer as well. */
#define LINE   ((uintptr_t)64)
#define SKEWED ((size_t)256 << 10)
/* Of a stream, up to where its data begins, and from where it ends. */
#define STREAM_HEAD ((uint64_t)2 * MEMORY_PAGE)
#define STREAM_TAIL ((uint64_t)2048)

/* What reading ahead takes; each part is made when first needed, and reused by the reads that
 * follow. */
struct read_lane {
    struct storage_queue *queue;
    unsigned char *buffers; /* PIECE of each piece that is under way; NULL until needed */
    struct read_lane *next;
};

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
    enum piece_way ways[AHEAD];
    struct storage_transfer transfers[AHEAD];
};

/* How far the range begins inside a page. */
static size_t skew_of(const struct reading *reading)
{
    return (size_t)(reading->offset % MEMORY_PAGE);
}

static size_t slot_of(const struct reading *reading, size_t position)
{
    return (position + skew_of(reading)) / PIECE % AHEAD;
}

static size_t piece_at(const struct reading *reading, size_t position)
{
    size_t left = reading->size - position;
    size_t piece = PIECE - (position + skew_of(reading)) % PIECE;
    return left < piece ? left : piece;
}

static dcp_status take_lane(struct reading *reading)
{
    struct shard_reader *reader = reading->file->reader;
    pthread_mutex_lock(&reader->mutex);
    struct read_lane *lane = reader->lanes;
    if (lane)
        reader->lanes = lane->next;
    pthread_mutex_unlock(&reader->mutex);
    if (!lane)
        lane = memory_allocate_zeroed(1, sizeof *lane);
    reading->lane = lane;
    return lane ? DCP_OK : error_no_memory(sizeof *lane, "reading ahead");
}

static dcp_status open_queue(struct reading *reading)
{
    struct shard_reader *reader = reading->file->reader;
    struct read_lane *lane = reading->lane;
    if (lane->queue)
        return DCP_OK;
    const dcp_storage_access access = {.size_of = sizeof access, .io = reader->io};
    RETURN_IF_ERROR(storage_queue_open(reading->file->file.directory, &access, &reader->manners,
                                       STORAGE_LARGE_FILE, &lane->queue));
    if (storage_queue_ways(lane->queue, NULL) & DCP_IO_RING)
        atomic_store_explicit(&reader->ring, true, memory_order_relaxed);
    return DCP_OK;
}

static dcp_status make_buffers(struct reading *reading)
{
    struct read_lane *lane = reading->lane;
    if (!lane->buffers)
        lane->buffers = memory_allocate_large(BUFFERS);
    return lane->buffers ? DCP_OK : error_no_memory(BUFFERS, "buffers for reading ahead");
}

static void lane_free(struct read_lane *lane)
{
    storage_queue_close(lane->queue);
    memory_release_aligned(lane->buffers);
    memory_release(lane);
}

/* One with transfers under way is of no further use. */
static void give_lane(struct reading *reading)
{
    struct shard_reader *reader = reading->file->reader;
    struct read_lane *lane = reading->lane;
    if (!lane)
        return;
    if (reading->visited < reading->started) {
        lane_free(lane);
        return;
    }
    pthread_mutex_lock(&reader->mutex);
    lane->next = reader->lanes;
    reader->lanes = lane;
    pthread_mutex_unlock(&reader->mutex);
}

uint64_t shard_read_ahead_memory(uint32_t io)
{
    return storage_queue_memory(io, STORAGE_LARGE_FILE) + memory_large_size(BUFFERS) + MEMORY_PAGE +
           sizeof(struct read_lane);
}

void shard_reader_free_lanes(struct shard_reader *reader)
{
    while (reader->lanes) {
        struct read_lane *lane = reader->lanes;
        reader->lanes = lane->next;
        lane_free(lane);
    }
}

/* Whether the page cache has the data at a position; true if that is unknown. */
static bool is_cached(struct shard_file *file, struct cached_group *group, uint64_t position)
{
    uint64_t start = position / GROUP * GROUP;
    if (!storage_file_knows_cache(&file->file) || start >= shard_file_size(file))
        return true;
    if (start != group->start) {
        uint64_t left = shard_file_size(file) - start;
        group->start = start;
        group->cached =
            storage_file_is_cached(&file->file, start, (size_t)(left < GROUP ? left : GROUP));
    }
    return group->cached;
}

bool shard_file_is_cached(struct shard_file *file, uint64_t position)
{
    struct cached_group group = {.start = UINT64_MAX};
    return is_cached(file, &group, position);
}

void shard_file_expect(struct shard_file *file, struct cached_group *group, uint64_t offset,
                       size_t size)
{
    if (!is_cached(file, group, offset))
        storage_file_expect(&file->file, offset, size);
}

/* The blocks that a range lies in, as far as there are blocks. */
static void expect_blocks(struct shard_file *file, struct cached_group *group, uint64_t start,
                          uint64_t end)
{
    if (file->footer == FOOTER_GOOD) {
        uint64_t last = (end - 1) / file->block_size;
        start -= start % file->block_size;
        end = last < file->block_count - 1 ? (last + 1) * file->block_size : file->content_length;
    }
    shard_file_expect(file, group, start, (size_t)(end - start));
}

void shard_file_expect_stream(struct shard_file *file, uint64_t offset, uint64_t length)
{
    struct cached_group group = {.start = UINT64_MAX};
    if (length < STREAM_HEAD + STREAM_TAIL || offset > file->content_length ||
        length > file->content_length - offset)
        return;
    expect_blocks(file, &group, offset, offset + STREAM_HEAD);
    expect_blocks(file, &group, offset + length - STREAM_TAIL, offset + length);
}

void shard_file_expect_group(struct shard_file *file, uint64_t start, uint64_t end)
{
    uint64_t size = shard_file_size(file);
    struct cached_group own = {.start = UINT64_MAX};
    if (end - start < LARGE) { /* what it is near to may be read around the page cache */
        shard_file_expect(file, &own, start, (size_t)(end - start));
        return;
    }
    for (uint64_t at = start / GROUP * GROUP; at < end && at < size; at += GROUP) {
        struct cached_group group = {.start = UINT64_MAX};
        shard_file_expect(file, &group, at, (size_t)(size - at < GROUP ? size - at : GROUP));
    }
}

/* The system's copy into memory that is aligned otherwise than the file is slow on many processors,
 * slower than one that stays in a core's cache and another from there. */
static bool is_skewed(const struct reading *reading)
{
    return ((uintptr_t)reading->bytes - reading->offset) % LINE != 0 && reading->size >= SKEWED &&
           reading->file->file.directory->traits.request_size <= PIECE;
}

/* Direct transfers cannot reach into the page that the file ends in the middle of. */
static enum piece_way choose_way(struct reading *reading, size_t at)
{
    struct shard_file *file = reading->file;
    uint64_t position = reading->offset + at;
    if (file->reader->how.plain)
        return reading->bytes ? PIECE_AT_ITS_TURN : PIECE_BUFFERED;
    if (!reading->demanded &&
        (reading->size < LARGE || is_cached(reading->file, &reading->group, position)))
        return !reading->bytes || is_skewed(reading) ? PIECE_BUFFERED : PIECE_AT_ITS_TURN;
    if (!storage_file_wants_alignment(&file->file))
        return PIECE_QUEUED;
    uint64_t end = position + piece_at(reading, at);
    return end <= (shard_file_size(file) & ~(uint64_t)(MEMORY_PAGE - 1)) ? PIECE_DIRECT
                                                                         : PIECE_QUEUED;
}

static dcp_status start_direct(struct reading *reading, size_t at)
{
    struct read_lane *lane = reading->lane;
    uint64_t page = MEMORY_PAGE - 1, position = reading->offset + at;
    uint64_t start = position & ~page;
    uint64_t end = (position + piece_at(reading, at) + page) & ~page;
    RETURN_IF_ERROR(make_buffers(reading));
    size_t slot = slot_of(reading, at);
    storage_queue_read(lane->queue, &reading->transfers[slot], &reading->file->file,
                       lane->buffers + slot * PIECE, (size_t)(end - start), start);
    return DCP_OK;
}

/* Where a piece that needs no alignment goes. */
static unsigned char *queued_place(const struct reading *reading, size_t at)
{
    return reading->bytes ? reading->bytes + at
                          : reading->lane->buffers + slot_of(reading, at) * PIECE;
}

static dcp_status start_piece(struct reading *reading, size_t at)
{
    enum piece_way way = choose_way(reading, at);
    size_t slot = slot_of(reading, at);
    reading->ways[slot] = way;
    if (way == PIECE_AT_ITS_TURN)
        return DCP_OK;
    if (!reading->lane)
        RETURN_IF_ERROR(take_lane(reading));
    if (way == PIECE_BUFFERED || !reading->bytes)
        RETURN_IF_ERROR(make_buffers(reading));
    if (way == PIECE_BUFFERED)
        return DCP_OK;
    RETURN_IF_ERROR(open_queue(reading));
    if (way == PIECE_DIRECT)
        return start_direct(reading, at);
    storage_queue_read(reading->lane->queue, &reading->transfers[slot], &reading->file->file,
                       queued_place(reading, at), piece_at(reading, at), reading->offset + at);
    return DCP_OK;
}

/* What is read at its turn comes from the page cache: there is nothing to start before it. */
static bool is_next_at_its_turn(const struct reading *reading)
{
    return reading->started > reading->visited &&
           reading->ways[slot_of(reading, reading->visited)] <= PIECE_BUFFERED;
}

/* As long as no more than so many bytes are under way or at hand. */
static dcp_status start_pieces(struct reading *reading, size_t most)
{
    while (reading->started < reading->size && !is_next_at_its_turn(reading) &&
           reading->started - reading->visited <= most) {
        RETURN_IF_ERROR(start_piece(reading, reading->started));
        reading->started += piece_at(reading, reading->started);
    }
    return DCP_OK;
}

/* More than the piece, where that is better. */
static dcp_status read_at_its_turn(struct reading *reading, size_t at)
{
    struct storage_file *file = &reading->file->file;
    size_t request = file->directory->traits.request_size;
    size_t size = piece_at(reading, at), left = reading->size - at;
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
    bool alone = reading->started - at == piece_at(reading, at);
    return reading->lane->buffers + (alone ? 0 : slot_of(reading, at) * PIECE);
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
        return storage_file_read(&reading->file->file, *found, piece_at(reading, at), position);
    }
    *found = way == PIECE_DIRECT ? reading->lane->buffers + slot * PIECE + position % MEMORY_PAGE
                                 : queued_place(reading, at);
    return storage_queue_finish(reading->lane->queue, &reading->transfers[slot]);
}

/* Visited in a buffer, bytes are in a core's cache when they are copied from there. One buffer is
 * free until then: a device that reports many transfers at once, when it has no more, has the next
 * one before this one's bytes are visited. */
static dcp_status visit_piece(struct reading *reading, shard_piece_visitor visit, void *context)
{
    size_t at = reading->visited, piece = piece_at(reading, at);
    unsigned char *found;
    RETURN_IF_ERROR(finish_piece(reading, at, &found));
    RETURN_IF_ERROR(start_pieces(reading, BUFFERS - PIECE));
    RETURN_IF_ERROR(visit(context, reading->offset + at, found, piece));
    if (reading->bytes && found != reading->bytes + at)
        stream_copy(reading->bytes + at, found, piece);
    reading->visited += piece;
    return DCP_OK;
}

dcp_status shard_file_read_ahead(struct shard_file *file, void *bytes, size_t size, uint64_t offset,
                                 shard_piece_visitor visit, void *context)
{
    struct shard_reader *reader = file->reader;
    struct reading reading = {.file = file,
                              .bytes = bytes,
                              .size = size,
                              .offset = offset,
                              .group = {.start = UINT64_MAX},
                              .demanded = size >= LARGE && reader->io & ~(uint32_t)DCP_IO_BUFFERED};
    dcp_status status = DCP_OK;
    while (status == DCP_OK && reading.visited < size) {
        status = start_pieces(&reading, BUFFERS - 2 * PIECE);
        if (status == DCP_OK)
            status = visit_piece(&reading, visit, context);
    }
    if (reading.lane && reading.lane->queue &&
        storage_queue_ways(reading.lane->queue, &file->file) & DCP_IO_DIRECT)
        atomic_store_explicit(&reader->direct, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&reader->bytes_read, reading.started, memory_order_relaxed);
    give_lane(&reading);
    return status;
}
