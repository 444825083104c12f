/* SPDX-License-Identifier: BSD-3-Clause */
/* Looking for streams in any file: what is found follows each other inside of it, and a tensor that
 * is not compressed opens as it was described. */
#include <stdlib.h>

#include "base/memory.h"
#include "format/streams/item.h"
#include "format/streams/stream_scan.h"
#include "fuzz_target.h"

static void check_tensor(const uint8_t *data, const struct found_stream *stream)
{
    struct arena arena;
    struct tensor_view view;
    arena_init(&arena, 0);
    struct byte_source source = byte_source_memory(data + stream->offset, (size_t)stream->length);
    if (item_open_tensor(source, &arena, &view) != DCP_OK || !item_same_view(&view, &stream->view))
        abort();
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct found_streams found;
    uint64_t end = 0;
    arena_init(&arena, 0);
    if (stream_scan(byte_source_memory(data, size), &arena, &found) != DCP_OK)
        abort();
    for (size_t i = 0; i < found.count; i++) {
        const struct found_stream *stream = &found.items[i];
        if (stream->offset < end || stream->length == 0 || stream->offset > size ||
            stream->length + stream->empty > size - stream->offset ||
            stream->is_stream != (stream->problem == NULL))
            abort();
        if (stream->is_tensor && !stream->zstd)
            check_tensor(data, stream);
        end = stream->offset + stream->length;
    }
    memory_release(found.items);
    arena_free(&arena);
    return 0;
}
