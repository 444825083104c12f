/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensor items, also zstd-compressed ones: the elements of whatever opens lie in the input. */
#include <stdlib.h>

#include "base/memory.h"
#include "format/streams/item.h"
#include "format/streams/item_decompress.h"
#include "fuzz_target.h"

enum { DECOMPRESSED_MAX = 1 << 20 };

static void check_bounds(const struct tensor_view *view, size_t size)
{
    uint64_t last = (uint64_t)view->storage_offset;
    if (view->data_offset > size || view->data_length > size - view->data_offset ||
        (!view->deflated && view->data_length != view->storage_bytes))
        abort();
    for (int32_t i = 0; i < view->ndim; i++) {
        if (view->sizes[i] == 0)
            return;
        last += (uint64_t)(view->sizes[i] - 1) * (uint64_t)view->strides[i];
    }
    if (last >= view->storage_bytes / dcp_dtype_size(view->dtype))
        abort();
}

static void open_tensor(const void *stream, size_t size)
{
    struct arena arena;
    struct tensor_view view;
    arena_init(&arena, 0);
    if (item_open_tensor(byte_source_memory(stream, size), &arena, &view) == DCP_OK) {
        check_bounds(&view, size);
        if (item_check_view(&view, view.dtype, view.ndim, view.sizes) != DCP_OK)
            abort();
    }
    arena_free(&arena);
}

/* What the beginning says before the end is known stays inside of the beginning. */
static void foresee_tensor(const void *beginning, size_t size)
{
    struct arena arena;
    struct tensor_view view;
    bool known = false;
    arena_init(&arena, 0);
    if (item_foresee_tensor(beginning, size, &arena, &view, &known) == DCP_OK && known &&
        (view.data_offset > size || view.deflated || view.has_crc ||
         view.data_length != view.storage_bytes))
        abort();
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void *bytes = NULL;
    size_t decompressed = 0;
    open_tensor(data, size);
    foresee_tensor(data, size);
    if (item_decompress(data, size, DECOMPRESSED_MAX, &bytes, &decompressed) == DCP_OK) {
        if (decompressed > DECOMPRESSED_MAX)
            abort();
        open_tensor(bytes, decompressed);
        foresee_tensor(bytes, decompressed);
    }
    memory_release(bytes);
    return 0;
}
