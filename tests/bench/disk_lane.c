/* SPDX-License-Identifier: BSD-3-Clause */
#include "disk_lane.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "disk_ring.h"

enum {
    LARGE_PAGE = 2 << 20,
    PIECE = 4 << 20,      /* of a transfer that is alone */
    RING_PIECE = 1 << 20, /* of one of several */
    AHEAD = 16 << 20      /* bytes that the page cache is told of beforehand */
};

struct disk_lane {
    struct disk_way way;
    char *memory, *buffer; /* each in a mapping of its own */
    size_t size, used;
    struct disk_ring *ring;
    /* Of the range that is moved. */
    int file;
    bool write;
    off_t next, end;
    size_t moved; /* in all */
};

static char *map(size_t size, bool large)
{
    char *bytes =
        mmap(NULL, size + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        err(1, "no memory");
    size_t past = (uintptr_t)bytes % LARGE_PAGE, before = past ? LARGE_PAGE - past : 0;
    if (before > 0)
        munmap(bytes, before);
    if (before < LARGE_PAGE)
        munmap(bytes + before + size, LARGE_PAGE - before);
    bytes += before;
    madvise(bytes, size, large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(bytes, 1, size);
    return bytes;
}

static size_t buffer_size(const struct disk_way *way)
{
    return way->ring ? (size_t)RING_PIECE * DISK_RING_DEPTH : PIECE;
}

struct disk_lane *disk_lane_new(const struct disk_way *way, size_t size)
{
    struct disk_lane *lane = calloc(1, sizeof *lane);
    size_t least = buffer_size(way);

    if (!lane)
        err(1, "no memory");
    *lane = (struct disk_lane){.way = *way, .size = size > least ? size : least};
    if (way->ring && !(lane->ring = disk_ring_open())) {
        free(lane);
        return NULL;
    }
    lane->size = (lane->size + PIECE - 1) / PIECE * PIECE;
    lane->memory = map(lane->size, way->memory == DISK_LARGE || way->memory == DISK_BUFFERED);
    if (way->memory == DISK_COPIED)
        lane->buffer = map(least, true);
    return lane;
}

void disk_lane_free(struct disk_lane *lane)
{
    if (!lane)
        return;
    disk_ring_close(lane->ring);
    munmap(lane->memory, lane->size);
    if (lane->buffer)
        munmap(lane->buffer, buffer_size(&lane->way));
    free(lane);
}

static off_t least(off_t a, off_t b)
{
    return a < b ? a : b;
}

/* Takes the next piece of the range, and the memory that it belongs to. slot: of the buffer. */
static bool take_piece(struct disk_lane *lane, struct disk_piece *piece, size_t slot)
{
    size_t most = lane->way.ring ? RING_PIECE : PIECE;
    if (lane->next >= lane->end)
        return false;
    size_t wanted = (size_t)least(lane->end - lane->next, (off_t)most);
    /* Whole blocks, also where the file ends in one. */
    size_t size = (wanted + DISK_BLOCK - 1) / DISK_BLOCK * DISK_BLOCK;
    if (size > lane->size - lane->used)
        lane->used = 0;
    *piece = (struct disk_piece){.file = lane->file,
                                 .write = lane->write,
                                 .memory = lane->memory + lane->used,
                                 .size = size,
                                 .wanted = wanted,
                                 .offset = lane->next,
                                 .slot = slot};
    piece->bytes = lane->buffer ? lane->buffer + slot * most : piece->memory;
    lane->used += size;
    lane->next += (off_t)size;
    if (lane->write && piece->bytes != piece->memory)
        memcpy(piece->bytes, piece->memory, size);
    return true;
}

/* Moves what is left of a piece. false: this way is refused. */
static bool move_piece(struct disk_lane *lane, const struct disk_piece *piece, size_t done)
{
    while (done < piece->wanted) {
        char *bytes = piece->bytes + done;
        off_t at = piece->offset + (off_t)done;
        ssize_t moved = piece->write ? pwrite(piece->file, bytes, piece->size - done, at)
                                     : pread(piece->file, bytes, piece->size - done, at);
        if (moved < 0 && errno == EINVAL)
            return false;
        if (moved <= 0)
            err(1, "cannot %s at %lld", piece->write ? "write" : "read", (long long)at);
        done += (size_t)moved;
    }
    if (!piece->write && piece->bytes != piece->memory)
        memcpy(piece->memory, piece->bytes, piece->wanted);
    lane->moved += piece->wanted;
    return true;
}

static bool move_one_by_one(struct disk_lane *lane)
{
    struct disk_piece piece;
    bool buffered = lane->way.memory == DISK_BUFFERED, good = true;

    if (buffered && !lane->write)
        posix_fadvise(lane->file, lane->next, AHEAD, POSIX_FADV_WILLNEED);
    while (good && take_piece(lane, &piece, 0)) {
        if (buffered && !lane->write)
            posix_fadvise(lane->file, piece.offset + AHEAD, PIECE, POSIX_FADV_WILLNEED);
        good = move_piece(lane, &piece, 0);
        if (buffered && lane->write)
            sync_file_range(lane->file, piece.offset, (off_t)piece.size, SYNC_FILE_RANGE_WRITE);
    }
    return good;
}

static bool move_by_ring(struct disk_lane *lane)
{
    struct disk_piece pieces[DISK_RING_DEPTH];
    size_t started = 0, under_way = 0;
    bool good = true;

    while (started < DISK_RING_DEPTH && take_piece(lane, &pieces[started], started)) {
        disk_ring_start(lane->ring, &pieces[started++]);
        under_way++;
    }
    while (under_way > 0) {
        ssize_t moved;
        struct disk_piece *piece = disk_ring_take(lane->ring, &moved);
        under_way--;
        if (moved < 0 && moved != -EAGAIN && moved != -EINTR)
            good = false;
        if (!good || !move_piece(lane, piece, moved > 0 ? (size_t)moved : 0))
            good = false;
        else if (take_piece(lane, piece, piece->slot)) {
            disk_ring_start(lane->ring, piece);
            under_way++;
        }
    }
    return good;
}

static bool move(struct disk_lane *lane, int file, bool write, off_t start, off_t end)
{
    lane->file = file;
    lane->write = write;
    lane->next = start;
    lane->end = end;
    return lane->ring ? move_by_ring(lane) : move_one_by_one(lane);
}

bool disk_lane_write(struct disk_lane *lane, int file, off_t end)
{
    return move(lane, file, true, 0, end);
}

bool disk_lane_read(struct disk_lane *lane, int file, off_t start, off_t end)
{
    return move(lane, file, false, start, end);
}

void disk_lane_write_rest(struct disk_lane *lane, int file, off_t at, size_t size)
{
    if (pwrite(file, lane->memory, size, at) != (ssize_t)size)
        err(1, "cannot write");
    lane->moved += size;
}

size_t disk_lane_moved(const struct disk_lane *lane)
{
    return lane->moved;
}
