/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/memory.h"
#include "storage/shard/checked_source.h"
#include "storage/shard/read_batch.h"

/* Memory of windows, in large pages if there is so much of it. */
struct window_room {
    struct window_room *next;
    size_t capacity;
    unsigned char *bytes;
};

uint64_t read_window_memory(uint64_t size)
{
    /* It is widened to blocks. */
    return memory_large_size(size + 2 * MEMORY_PAGE) + sizeof(struct window_room);
}

static void room_free(struct window_room *room)
{
    memory_release_aligned(room->bytes);
    memory_release(room);
}

void read_window_free_rooms(struct shard_reader *reader)
{
    pthread_mutex_lock(&reader->mutex);
    struct window_room *room = reader->rooms;
    reader->rooms = NULL;
    pthread_mutex_unlock(&reader->mutex);
    while (room) {
        struct window_room *next = room->next;
        room_free(room);
        room = next;
    }
}

static dcp_status take_room(struct read_window *window)
{
    struct shard_reader *reader = window->reader;
    pthread_mutex_lock(&reader->mutex);
    struct window_room *room = reader->rooms;
    if (room)
        reader->rooms = room->next;
    pthread_mutex_unlock(&reader->mutex);
    if (!room)
        room = memory_allocate_zeroed(1, sizeof *room);
    window->room = room;
    if (room && room->capacity < window->size) {
        memory_release_aligned(room->bytes);
        room->bytes = memory_allocate_large(window->size);
        room->capacity = room->bytes ? window->size : 0;
    }
    if (!room || room->capacity < window->size)
        return error_no_memory(window->size, "neighbouring items");
    return DCP_OK;
}

static void give_room(struct read_window *window)
{
    struct shard_reader *reader = window->reader;
    if (!window->room)
        return;
    pthread_mutex_lock(&reader->mutex);
    window->room->next = reader->rooms;
    reader->rooms = window->room;
    pthread_mutex_unlock(&reader->mutex);
}

/* To the blocks that the window lies in, so that each byte of it can be checked. */
static void widen(struct read_window *window)
{
    const struct shard_file *file = window->file;
    uint64_t end = window->start + window->size, over = end % file->block_size;
    if (over != 0)
        end += file->block_size - over;
    if (end > file->content_length)
        end = file->content_length;
    window->start -= window->start % file->block_size;
    window->size = (size_t)(end - window->start);
}

/* Has the bytes in the batch, or reads them. checked: NULL, or what checks them. */
static dcp_status get_bytes(struct read_window *window, struct checked_source *checked,
                            const struct byte_source *source)
{
    RETURN_IF_ERROR(
        read_batch_find(window->batch, window->file, window->start, window->size, &window->bytes));
    if (window->bytes)
        return checked ? checked_source_pass(checked, window->start, window->bytes, window->size)
                       : DCP_OK;
    RETURN_IF_ERROR(take_room(window));
    window->bytes = window->room->bytes;
    return checked
               ? byte_source_read(source, window->start, window->room->bytes, window->size)
               : shard_file_read(window->file, window->room->bytes, window->size, window->start);
}

/* A damaged block is reported by the pieces in it, each for its own bytes. */
static dcp_status read_blocks(struct read_window *window)
{
    struct checked_source checked;
    struct byte_source source;
    checked_source_open(&checked, window->file, 0, window->file->content_length, &source);
    checked_source_widen(&checked, &source);
    dcp_status status = get_bytes(window, &checked, &source);
    checked_source_close(&checked);
    if (status != DCP_ERR_CHECKSUM)
        return status;
    error_clear();
    window->size = 0;
    return DCP_OK;
}

static dcp_status read_window(struct read_window *window, bool by_blocks)
{
    if (by_blocks)
        return read_blocks(window);
    return window->size == 0 ? DCP_OK : get_bytes(window, NULL, NULL);
}

dcp_status read_window_open(struct read_window *window, struct shard_reader *reader, uint32_t file,
                            uint64_t start, uint64_t end, dcp_verification verification,
                            struct read_batch *batch)
{
    *window = (struct read_window){
        .reader = reader, .batch = batch, .start = start, .size = (size_t)(end - start)};
    RETURN_IF_ERROR(shard_file_acquire(reader, file, verification, &window->file));
    /* Pieces that reach beyond their file are reported one by one. */
    if (window->file->content_length < end)
        window->size = 0;
    window->trusted = window->size > 0 && window->file->footer == FOOTER_GOOD;
    bool by_blocks = window->trusted && verification != DCP_VERIFY_NONE;
    if (by_blocks)
        widen(window);
    dcp_status status = read_window(window, by_blocks);
    if (status != DCP_OK)
        read_window_close(window);
    return status;
}

void read_window_close(struct read_window *window)
{
    shard_reader_count(window->reader, &window->tally);
    shard_file_release(window->reader, window->file);
    give_room(window);
}
