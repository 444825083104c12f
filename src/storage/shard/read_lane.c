/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/read_lane.h"

#include "base/error.h"
#include "base/memory.h"

typedef bool (*lane_test)(const struct read_lane *lane, const struct shard_file *file,
                          uint64_t offset);

static bool is_free(const struct read_lane *lane, const struct shard_file *file, uint64_t offset)
{
    (void)file;
    (void)offset;
    return !lane->begun.file;
}

static bool has_begun(const struct read_lane *lane, const struct shard_file *file, uint64_t offset)
{
    return !is_free(lane, file, offset);
}

static bool has_begun_at(const struct read_lane *lane, const struct shard_file *file,
                         uint64_t offset)
{
    const struct begun_range *begun = &lane->begun;
    return begun->file == file && offset >= begun->base &&
           offset - begun->base < READ_LANE_DIRECT_PIECE;
}

/* The first lane, of those that are not in use, for which the test holds. */
static struct read_lane *take_first(struct shard_reader *reader, lane_test test,
                                    const struct shard_file *file, uint64_t offset)
{
    pthread_mutex_lock(&reader->mutex);
    struct read_lane **at = &reader->lanes;
    while (*at && !test(*at, file, offset))
        at = &(*at)->next;
    struct read_lane *lane = *at;
    if (lane)
        *at = lane->next;
    pthread_mutex_unlock(&reader->mutex);
    return lane;
}

/* What was not asked for has errors that are not the caller's. */
void read_lane_continue(struct shard_reader *reader, struct read_lane *lane, size_t wanted)
{
    struct begun_range *begun = &lane->begun;
    struct saved_error error;
    if (!begun->file)
        return;
    error_save(&error);
    for (size_t i = wanted; i < begun_count(begun); i++) {
        size_t slot = (begun->first + i) % READ_LANE_DIRECT_SLOTS;
        storage_queue_finish(lane->queue, &lane->transfers[slot]);
    }
    error_restore(&error);
    shard_file_release(reader, begun->file);
    *begun = (struct begun_range){.file = NULL};
}

dcp_status read_lane_take(struct shard_reader *reader, struct read_lane **lane)
{
    *lane = take_first(reader, is_free, NULL, 0);
    if (!*lane)
        *lane = take_first(reader, has_begun, NULL, 0);
    if (!*lane)
        *lane = memory_allocate_zeroed(1, sizeof **lane);
    if (!*lane)
        return error_no_memory(sizeof **lane, "reading ahead");
    read_lane_continue(reader, *lane, 0);
    return DCP_OK;
}

struct read_lane *read_lane_take_begun(struct shard_file *file, uint64_t offset)
{
    return take_first(file->reader, has_begun_at, file, offset);
}

static void lane_free(struct shard_reader *reader, struct read_lane *lane)
{
    read_lane_continue(reader, lane, 0);
    storage_queue_close(lane->queue);
    memory_release_aligned(lane->buffers);
    memory_release(lane);
}

void read_lane_give(struct shard_reader *reader, struct read_lane *lane, bool idle)
{
    if (!idle) {
        lane_free(reader, lane);
        return;
    }
    pthread_mutex_lock(&reader->mutex);
    lane->next = reader->lanes;
    reader->lanes = lane;
    pthread_mutex_unlock(&reader->mutex);
}

dcp_status read_lane_open_queue(struct read_lane *lane, struct shard_file *file)
{
    struct shard_reader *reader = file->reader;
    if (lane->queue)
        return DCP_OK;
    const dcp_storage_access access = {.size_of = sizeof access, .io = reader->io};
    RETURN_IF_ERROR(storage_queue_open(file->file.directory, &access, &reader->manners,
                                       STORAGE_LARGE_FILE, &lane->queue));
    if (storage_queue_ways(lane->queue, NULL) & DCP_IO_RING)
        atomic_store_explicit(&reader->ring, true, memory_order_relaxed);
    return DCP_OK;
}

dcp_status read_lane_make_buffers(struct read_lane *lane, size_t size)
{
    if (size <= lane->size)
        return DCP_OK;
    memory_release_aligned(lane->buffers);
    lane->buffers = memory_allocate_large(size);
    lane->size = lane->buffers ? size : 0;
    return lane->buffers ? DCP_OK : error_no_memory(size, "buffers for reading ahead");
}

void read_lane_begin(struct read_lane *lane, struct shard_file *file, uint64_t base, size_t first,
                     size_t size)
{
    struct begun_range *begun = &lane->begun;
    if (!begun->file) {
        *begun = (struct begun_range){.file = file, .base = base, .end = base, .first = first};
        shard_file_retain(file);
    }
    size_t slot = (begun->first + begun_count(begun)) % READ_LANE_DIRECT_SLOTS;
    storage_queue_read(lane->queue, &lane->transfers[slot], &file->file,
                       lane->buffers + slot * READ_LANE_DIRECT_PIECE, size, begun->end);
    begun->end += size;
}

uint64_t shard_read_ahead_memory(uint32_t io)
{
    return storage_queue_memory(io, STORAGE_LARGE_FILE) + memory_large_size(READ_LANE_BUFFERS) +
           MEMORY_PAGE + sizeof(struct read_lane);
}

void shard_reader_free_lanes(struct shard_reader *reader)
{
    while (reader->lanes) {
        struct read_lane *lane = reader->lanes;
        reader->lanes = lane->next;
        lane_free(reader, lane);
    }
}

void shard_reader_settle(struct shard_reader *reader)
{
    for (struct read_lane *lane; (lane = take_first(reader, has_begun, NULL, 0));) {
        read_lane_continue(reader, lane, 0);
        read_lane_give(reader, lane, true);
    }
}
