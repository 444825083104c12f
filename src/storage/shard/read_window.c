/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/memory.h"
#include "storage/shard/checked_source.h"

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

/* A damaged block is reported by the pieces in it, each for its own bytes. */
static dcp_status read_blocks(struct read_window *window)
{
    struct checked_source checked;
    struct byte_source source;
    checked_source_open(&checked, window->file, 0, window->file->content_length, &source);
    checked_source_widen(&checked, &source);
    dcp_status status = byte_source_read(&source, window->start, window->bytes, window->size);
    checked_source_close(&checked);
    if (status != DCP_ERR_CHECKSUM)
        return status;
    error_clear();
    window->size = 0;
    return DCP_OK;
}

static dcp_status read_window(struct read_window *window, bool by_blocks)
{
    window->bytes = memory_allocate(window->size);
    if (!window->bytes)
        return error_no_memory(window->size, "neighbouring items");
    if (by_blocks)
        return read_blocks(window);
    return window->size == 0
               ? DCP_OK
               : shard_file_read(window->file, window->bytes, window->size, window->start);
}

dcp_status read_window_open(struct read_window *window, struct shard_reader *reader, uint32_t file,
                            uint64_t start, uint64_t end, dcp_verification verification)
{
    *window = (struct read_window){.reader = reader, .start = start, .size = (size_t)(end - start)};
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
    shard_file_release(window->reader, window->file);
    memory_release(window->bytes);
}
