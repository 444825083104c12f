/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/device_memory.h"
#include "state/flatten.h"

#define NUMBERS_TEXT_MAX 160

dcp_status flatten_check_layout(struct flat_state *flat)
{
    bool host_only = true;
    for (size_t i = 0; i < flat->count; i++) {
        const dcp_state *node = flat->entries[i].node;
        if (node->kind != DCP_KIND_TENSOR || flat->entries[i].left_out)
            continue;
        const struct state_tensor *tensor = node->as.tensor;
        for (size_t c = 0; c < tensor->chunk_count; c++) {
            const struct state_chunk *chunk = &tensor->chunks[c];
            char sizes[NUMBERS_TEXT_MAX];
            char strides[NUMBERS_TEXT_MAX];
            if (chunk->data && copy_may_overlap(tensor->ndim, chunk->sizes, chunk->strides))
                return dcp_error_set(
                    DCP_ERR_ARGUMENT,
                    "%s: a chunk of sizes %s and strides %s overlaps itself in memory",
                    flat->entries[i].name,
                    shape_format(tensor->ndim, chunk->sizes, sizes, sizeof sizes),
                    shape_format(tensor->ndim, chunk->strides, strides, sizeof strides));
            host_only = host_only && device_is_host(&chunk->device);
            struct box box = {tensor->ndim, chunk->offsets, chunk->sizes};
            dcp_status status = device_check_memory(&chunk->device, chunk->data, box);
            if (status != DCP_OK)
                return error_prefix(status, "%s", flat->entries[i].name);
        }
    }
    flat->host_only = host_only;
    return DCP_OK;
}

dcp_status flatten_check_destinations(struct flat_state *flat)
{
    RETURN_IF_ERROR(flatten_check_layout(flat));
    return flatten_check_writable(flat);
}
