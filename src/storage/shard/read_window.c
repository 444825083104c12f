/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/memory.h"
#include "storage/shard/shard_request.h"

dcp_status read_window_open(struct read_window *window, struct shard_reader *reader, uint32_t file,
                            uint64_t start, uint64_t end, dcp_verification verification)
{
    *window = (struct read_window){.reader = reader, .start = start, .size = (size_t)(end - start)};
    RETURN_IF_ERROR(shard_file_acquire(reader, file, verification, &window->file));
    dcp_status status = DCP_OK;
    /* Pieces that reach beyond their file are told of one by one. */
    if (shard_file_size(window->file) < end)
        window->size = 0;
    window->bytes = memory_allocate(window->size);
    if (!window->bytes)
        status = error_no_memory(window->size, "neighbouring items");
    else if (window->size > 0)
        status = shard_file_read(window->file, window->bytes, window->size, start);
    if (status != DCP_OK)
        read_window_close(window);
    return status;
}

void read_window_close(struct read_window *window)
{
    shard_file_release(window->reader, window->file);
    memory_release(window->bytes);
}
