/* SPDX-License-Identifier: BSD-3-Clause */
/* All items of a shard file in one call, for languages whose calls into C are slow. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/shard_file/shard_file_writer.h"
#include "dcp/packed.h"

static dcp_status add_item(dcp_shard_writer *writer, const dcp_state *list, size_t index)
{
    dcp_shard_name name = {0};
    size_t length;
    RETURN_IF_ERROR(dcp_state_as_text(dcp_state_at(list, index), &name.name, &length));
    if (strlen(name.name) != length)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a name with a NUL cannot be saved: \"%.200s\"",
                             name.name);
    return shard_writer_add_node(writer, &name, dcp_state_at(list, index + 1));
}

static dcp_status add_items(dcp_shard_writer *writer, const dcp_state *list)
{
    size_t count = dcp_state_count(list);
    if (dcp_state_kind(list) != DCP_KIND_LIST || count % 2 != 0)
        return dcp_error_set(DCP_ERR_FORMAT, "packed items: expected a list of names and items");
    for (size_t i = 0; i < count; i += 2)
        RETURN_IF_ERROR(add_item(writer, list, i));
    return DCP_OK;
}

dcp_status dcp_shard_writer_add_packed(dcp_shard_writer *writer, const void *bytes, size_t size)
{
    if (!writer || !bytes)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the writer or the description is NULL");
    struct save_local *local = &writer->local;
    size_t count = local->flat.count, streams = local->streams.size;
    dcp_state *root = dcp_state_new();
    if (!root)
        return error_no_memory(sizeof *root, "the description of items");
    RETURN_IF_ERROR(shard_writer_own(writer, root));
    dcp_status status = dcp_state_unpack(root, "items", bytes, size);
    if (status == DCP_OK)
        status = add_items(writer, dcp_state_find(root, "items"));
    if (status != DCP_OK) {
        local->flat.count = count;
        local->streams.size = streams;
        dcp_state_free(writer->trees[--writer->tree_count]);
    }
    return status;
}

dcp_status dcp_shard_writer_locations(const dcp_shard_writer *writer, uint64_t *places,
                                      size_t count)
{
    if (!writer || !places)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the writer or the result is NULL");
    if (writer->stage != SHARD_WRITER_SEALED)
        return dcp_error_set(DCP_ERR_STATE,
                             "%s: the places of items are known only after the file is sealed",
                             writer->file);
    if (count != writer->local.flat.count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s has %zu items, there is room for %zu",
                             writer->file, writer->local.flat.count, count);
    for (size_t i = 0; i < count; i++) {
        places[2 * i] = writer->locations[i].offset;
        places[2 * i + 1] = writer->locations[i].length;
    }
    return DCP_OK;
}
