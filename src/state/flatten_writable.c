/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "base/error.h"
#include "base/unwritable.h"
#include "state/device_memory.h"
#include "state/flatten.h"
#include "state/node_block.h"

/* Whether a byte of the range, which is to be written, cannot be. */
typedef bool (*range_judge)(const struct unwritable *unwritable, uint64_t start, uint64_t end);

static bool ends_are_unwritable(const struct unwritable *unwritable, uint64_t start, uint64_t end)
{
    (void)unwritable;
    return unwritable_byte(start) || unwritable_byte(end - 1);
}

static dcp_status check_tensor(const char *name, const struct state_tensor *tensor,
                               range_judge is_unwritable, const struct unwritable *unwritable)
{
    for (size_t c = 0; c < tensor->chunk_count; c++) {
        const struct state_chunk *chunk = &tensor->chunks[c];
        uint64_t start, end;
        if (!chunk->data || !device_is_host(&chunk->device) ||
            !chunk_reach(tensor, chunk, &start, &end))
            continue;
        if (is_unwritable(unwritable, start, end))
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "%s: its %" PRIu64 " bytes of memory at 0x%" PRIx64
                                 " are mapped for reading only, and cannot be loaded into: give "
                                 "the tensor memory of its own",
                                 name, end - start, start);
    }
    return DCP_OK;
}

static dcp_status check_all(const struct flat_state *flat, range_judge is_unwritable,
                            const struct unwritable *unwritable)
{
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < flat->count && status == DCP_OK; i++) {
        const dcp_state *node = flat->entries[i].node;
        if (node->kind == DCP_KIND_TENSOR && !flat->entries[i].left_out)
            status =
                check_tensor(flat->entries[i].name, node->as.tensor, is_unwritable, unwritable);
    }
    return status;
}

dcp_status flatten_check_writable(const struct flat_state *flat)
{
    struct text_lines list;
    struct unwritable unwritable;
    dcp_status status = DCP_OK;
    if (!text_lines_open(&list, "/proc/self/maps"))
        return DCP_OK;
    while (status == DCP_OK && unwritable_read(&list, &unwritable))
        status = check_all(flat, unwritable_has, &unwritable);
    text_lines_close(&list);
    return status;
}

dcp_status flatten_try_writable(const struct flat_state *flat)
{
    return check_all(flat, ends_are_unwritable, NULL);
}
