/* SPDX-License-Identifier: BSD-3-Clause */
/* A file of torch.save. What it has besides elements is made first, so that it is known where these
 * will lie; checksums come behind them. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/convert_copy.h"
#include "convert/convert_memory.h"
#include "convert/convert_target.h"
#include "convert/convert_tree.h"
#include "convert/pt_storages.h"
#include "format/streams/item.h"
#include "format/streams/stream_records.h"

enum { NAME_SIZE = 32, RECORDS_MAX = UINT16_MAX - 1 };

struct pt_writing {
    struct convert_source *source;
    struct convert_memory memory;
    struct pt_storages shared;
    dcp_state *root; /* objects are in it */
    struct buffer pickle;
    struct item_storage *storages; /* records of elements */
    size_t count;
    struct stream_data *data;
    char (*names)[NAME_SIZE];
    struct stream_record *items;
    struct stream_records records;
    struct convert_run *runs;
    bool *filled; /* by run: what is between it and the next one is in the file */
    struct convert_output output;
};

static dcp_status add_leaf(void *context, const struct convert_item *item, dcp_state *parent,
                           const char *key)
{
    struct pt_writing *writing = context;
    const struct convert_source *source = writing->source;
    size_t storage = writing->shared.of_item[item - source->items];
    dcp_tensor tensor;
    if (!item->is_tensor)
        return convert_read_object(source, item, parent, key);
    convert_memory_tensor(&writing->memory, item, &tensor);
    if (storage != SIZE_MAX)
        RETURN_IF_ERROR(pt_storages_place(&writing->shared, source, item, &tensor));
    dcp_state *node = dcp_state_tensor(parent, key, &tensor);
    if (!node)
        return dcp_state_status(parent);
    if (storage != SIZE_MAX)
        node->as.tensor->chunks[0].block = &writing->shared.storages[storage].block;
    return DCP_OK;
}

/* Where the bytes of a record come from. */
static dcp_status make_run(const struct pt_writing *writing, const struct item_storage *storage,
                           struct convert_run *run)
{
    const struct pt_storages *shared = &writing->shared;
    const struct state_chunk *chunk = &storage->tensor->as.tensor->chunks[0];
    *run = (struct convert_run){.size = storage->size};
    if (storage->block) {
        for (size_t low = 0, high = shared->count; low < high;) {
            size_t middle = low + (high - low) / 2;
            const struct state_block *block = &shared->storages[middle].block;
            if (block == storage->block) {
                run->storage = true;
                run->item = &writing->source->items[shared->storages[middle].item];
                return DCP_OK;
            }
            if ((uintptr_t)block < (uintptr_t)storage->block)
                low = middle + 1;
            else
                high = middle;
        }
        run->bytes = storage->block->data; /* of an object */
        return DCP_OK;
    }
    if (chunk->device.operations == &writing->memory.operations) {
        run->item = convert_memory_item(&writing->memory, chunk->data);
        return DCP_OK;
    }
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "a tensor inside of an object, whose storage is not known");
}

static dcp_status build(struct pt_writing *writing)
{
    dcp_state *root = dcp_state_new();
    if (!root)
        return error_no_memory(1, "a state tree");
    dcp_status status = convert_build_tree(writing->source, root, add_leaf, writing);
    if (status == DCP_OK)
        status = item_encode_parts(root, &writing->pickle, &writing->storages, &writing->count);
    if (status == DCP_OK && writing->count > RECORDS_MAX - STREAM_OTHER_RECORDS)
        status =
            dcp_error_set(DCP_ERR_UNSUPPORTED, "%zu storages: a file of torch.save has at most %d",
                          writing->count, (int)(RECORDS_MAX - STREAM_OTHER_RECORDS));
    writing->runs = memory_allocate_array(writing->count, sizeof *writing->runs);
    if (status == DCP_OK && !writing->runs)
        status = error_no_memory(writing->count * sizeof *writing->runs, "storages");
    for (size_t i = 0; i < writing->count && status == DCP_OK; i++)
        status = make_run(writing, &writing->storages[i], &writing->runs[i]);
    writing->root = root;
    return status;
}

static dcp_status place(struct pt_writing *writing)
{
    size_t count = writing->count;
    writing->data = memory_allocate_array(count, sizeof *writing->data);
    writing->names = memory_allocate_array(count, sizeof *writing->names);
    writing->items = memory_allocate_array(count + STREAM_OTHER_RECORDS, sizeof *writing->items);
    writing->filled = memory_allocate_zeroed(count, sizeof *writing->filled);
    if (!writing->data || !writing->names || !writing->items || !writing->filled)
        return error_no_memory(count * sizeof *writing->items, "records");
    for (size_t i = 0; i < count; i++) {
        snprintf(writing->names[i], sizeof writing->names[i], "data/%zu", i);
        writing->data[i] = (struct stream_data){writing->names[i], writing->storages[i].size};
    }
    stream_records_place(&writing->records, writing->items, writing->pickle.size, writing->data,
                         count);
    for (size_t i = 0; i < count; i++)
        writing->runs[i].offset = writing->records.items[STREAM_DATA_RECORD + i].data_offset;
    return DCP_OK;
}

/* The end of a record of elements, and the beginning of the next one, when the checksum is known.
 */
static void fill_between(void *context, const struct convert_run *run, unsigned char *bytes,
                         size_t size)
{
    struct pt_writing *writing = context;
    size_t index = (size_t)(run - writing->runs);
    const struct stream_record *record = &writing->records.items[STREAM_DATA_RECORD + index];
    struct stream_record ended = record[0];
    struct buffer between;
    ended.crc = run->crc;
    buffer_init(&between, 0);
    stream_put_descriptor(&between, &ended);
    stream_put_header(&between, &record[1]);
    if (buffer_status(&between) == DCP_OK && between.size == size) {
        memcpy(bytes, between.data, size);
        writing->filled[index] = true;
    }
    buffer_free(&between);
}

/* Bytes that follow each other in the file. */
static dcp_status write_bytes(struct pt_writing *writing, size_t file, const struct buffer *bytes,
                              uint64_t offset)
{
    RETURN_IF_ERROR(buffer_status(bytes));
    return convert_output_write(&writing->output, file, bytes->data, bytes->size, offset);
}

/* All but elements, when these are written, and what was written with them. */
static dcp_status write_rest(struct pt_writing *writing, size_t file)
{
    struct stream_records *records = &writing->records;
    struct buffer bytes;
    uint64_t offset = 0;
    buffer_init(&bytes, 0);
    for (size_t i = 0; i < writing->count; i++)
        records->items[STREAM_DATA_RECORD + i].crc = writing->runs[i].crc;
    stream_records_fill(records, writing->pickle.data);
    stream_records_seal(records);
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < records->count && status == DCP_OK; i++) {
        const struct stream_record *record = &records->items[i];
        size_t data = i - STREAM_DATA_RECORD;
        if (i < STREAM_DATA_RECORD || data >= writing->count) {
            stream_put_record(&bytes, record);
            continue;
        }
        stream_put_header(&bytes, record);
        if (data == 0 || !writing->filled[data - 1])
            status = write_bytes(writing, file, &bytes, offset);
        buffer_clear(&bytes);
        offset = record->data_offset + record->size;
        stream_put_descriptor(&bytes, record);
    }
    stream_put_directory(&bytes, records);
    if (status == DCP_OK)
        status = write_bytes(writing, file, &bytes, offset);
    buffer_free(&bytes);
    return status;
}

static dcp_status write_file(struct pt_writing *writing, const struct convert_target *target)
{
    const struct convert_source *source = writing->source;
    const struct convert_gaps gaps = {fill_between, writing};
    size_t file;
    target->report->files = 1;
    if (source->options->dry_run)
        return build(writing);
    RETURN_IF_ERROR(convert_output_begin(&writing->output, target->path, false,
                                         source->options->skip_sync, target->journal));
    RETURN_IF_ERROR(build(writing));
    RETURN_IF_ERROR(place(writing));
    RETURN_IF_ERROR(convert_output_add(&writing->output, "", writing->records.length, &file));
    for (size_t i = 0; i < writing->count; i++)
        writing->runs[i].file = file;
    RETURN_IF_ERROR(convert_copy(source, &writing->output, writing->runs, writing->count, &gaps,
                                 target->progress));
    RETURN_IF_ERROR(write_rest(writing, file));
    RETURN_IF_ERROR(convert_output_seal(&writing->output, file));
    return convert_output_commit(&writing->output, source, target->progress);
}

dcp_status convert_to_pt(struct convert_source *source, const struct convert_target *target)
{
    struct pt_writing writing = {.source = source};
    buffer_init(&writing.pickle, 0);
    RETURN_IF_ERROR(convert_drop_tied(source, &target->report->tied));
    dcp_status status = pt_storages_find(&writing.shared, source);
    if (status == DCP_OK)
        status = convert_memory_open(&writing.memory, source);
    if (status == DCP_OK)
        status = write_file(&writing, target);
    convert_output_end(&writing.output);
    memory_release(writing.data);
    memory_release(writing.names);
    memory_release(writing.items);
    memory_release(writing.runs);
    memory_release(writing.filled);
    memory_release(writing.storages);
    buffer_free(&writing.pickle);
    dcp_state_free(writing.root);
    convert_memory_close(&writing.memory);
    return status;
}
