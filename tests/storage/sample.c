/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/metadata/metadata_codec.h"
#include "format/streams/item.h"
#include "format/streams/stream.h"
#include "sample.h"
#include "scratch.h"

static const dcp_dtype dtypes[] = {
    DCP_F64,     DCP_F32,         DCP_F16,        DCP_BF16,         DCP_I64,       DCP_I32,
    DCP_I16,     DCP_I8,          DCP_U64,        DCP_U32,          DCP_U16,       DCP_U8,
    DCP_BOOL,    DCP_C128,        DCP_C64,        DCP_C32,          DCP_F8_E4M3FN, DCP_F8_E4M3FNUZ,
    DCP_F8_E5M2, DCP_F8_E5M2FNUZ, DCP_F8_E8M0FNU, DCP_F4_E2M1FN_X2,
};

static void *allocate(size_t count, size_t size)
{
    void *block = calloc(count > 0 ? count : 1, size);
    assert_non_null(block);
    return block;
}

static void make_tensor(struct sample_tensor *tensor, uint64_t *random, size_t number, bool large)
{
    int64_t sizes[DCP_MAX_DIMS];
    int32_t ndim = large ? 2 : (int32_t)scratch_below(random, 5);
    for (int32_t i = 0; i < ndim; i++)
        sizes[i] = large                           ? 900 + scratch_below(random, 100)
                   : scratch_below(random, 8) == 0 ? 0
                                                   : 1 + scratch_below(random, 9);
    tensor->dtype = large ? DCP_F32 : dtypes[number % (sizeof dtypes / sizeof *dtypes)];
    snprintf(tensor->name, sizeof tensor->name, "tensor.%zu", number);
    layout_make(&tensor->layout, random, ndim, sizes, true, scratch_below(random, 3) == 0);
    size_t element = dcp_dtype_size(tensor->dtype);
    tensor->bytes = element;
    for (int32_t i = 0; i < ndim; i++)
        tensor->bytes *= (size_t)sizes[i];
    tensor->dense = allocate(tensor->bytes, 1);
    scratch_fill(random, tensor->dense, tensor->bytes);
    tensor->memory = allocate((size_t)tensor->layout.total, element);
    layout_fill(&tensor->layout, element, tensor->dense, tensor->memory);
}

static void make_object(struct sample_object *object, uint64_t *random, size_t number)
{
    struct buffer pickle;
    dcp_state *root = dcp_state_new();
    dcp_state *list = dcp_state_list(root, "list");
    for (int64_t i = scratch_below(random, 40); i > 0; i--)
        dcp_state_int(list, NULL, (int64_t)scratch_random(random) >> scratch_below(random, 60));
    dcp_state_string(list, NULL, "text");
    snprintf(object->name, sizeof object->name, "object.%zu", number);
    buffer_init(&pickle, 0);
    buffer_init(&object->stream, 0);
    assert_int_equal(item_encode_object(list, &pickle), DCP_OK);
    assert_int_equal(stream_object(&object->stream, pickle.data, pickle.size), DCP_OK);
    assert_int_equal(dcp_state_to_json(list, 0, &object->json), DCP_OK);
    buffer_free(&pickle);
    dcp_state_free(root);
}

static struct sample_item *add_item(struct sample *sample, uint64_t *random, const char *name)
{
    struct sample_item *item = &sample->items[sample->item_count++];
    item->rank = (int)scratch_below(random, sample->ranks);
    item->file = (uint32_t)scratch_below(random, sample->files);
    item->item.name = name;
    item->item.path = &sample->path;
    item->item.path_length = 1;
    return item;
}

static void add_chunk(struct sample *sample, uint64_t *random, const struct sample_tensor *tensor,
                      const struct box_storage *box)
{
    struct sample_item *item = add_item(sample, random, tensor->name);
    const struct layout *layout = &tensor->layout;
    item->box = *box;
    item->item.is_tensor = true;
    item->item.dtype = tensor->dtype;
    item->item.ndim = layout->ndim;
    item->item.global_shape = layout->sizes;
    item->item.box = box_of(layout->ndim, &item->box);
    int64_t at = layout->first + layout_offset(layout->ndim, box->offsets, layout->strides);
    item->chunk.offsets = item->box.offsets;
    item->chunk.sizes = item->box.sizes;
    item->chunk.strides = (int64_t *)layout->strides;
    item->chunk.data = tensor->memory + at * (int64_t)dcp_dtype_size(tensor->dtype);
}

/* Cuts a tensor in up to four chunks. */
static void cut_tensor(struct sample *sample, uint64_t *random, const struct sample_tensor *tensor)
{
    struct box_storage whole = {{0}, {0}};
    int32_t ndim = tensor->layout.ndim;
    memcpy(whole.sizes, tensor->layout.sizes, sizeof whole.sizes);
    int32_t d = ndim > 0 ? (int32_t)scratch_below(random, ndim) : 0;
    if (ndim == 0 || tensor->bytes == 0) {
        add_chunk(sample, random, tensor, &whole);
        return;
    }
    int64_t size = whole.sizes[d], step = 1 + scratch_below(random, size);
    if (step < (size + 3) / 4)
        step = (size + 3) / 4;
    for (int64_t start = 0; start < size; start += step) {
        whole.offsets[d] = start;
        whole.sizes[d] = size - start < step ? size - start : step;
        add_chunk(sample, random, tensor, &whole);
    }
}

static int compare_items(const void *left, const void *right)
{
    const struct sample_item *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return 0;
}

/* Gives items their places: data at multiples of 64 or of 4096, sometimes far apart. */
static void place_items(struct sample *sample, uint64_t *random)
{
    uint64_t end = 0;
    qsort(sample->items, sample->item_count, sizeof *sample->items, compare_items);
    for (size_t i = 0; i < sample->item_count; i++) {
        struct sample_item *item = &sample->items[i];
        struct stream_layout layout = {0, 0, item->object ? item->object->stream.size : 0};
        if (i > 0 && compare_items(item - 1, item) != 0)
            end = 0;
        /* qsort moved them. */
        item->item.box = box_of(item->item.ndim, &item->box);
        item->chunk.offsets = item->box.offsets;
        item->chunk.sizes = item->box.sizes;
        if (!item->object)
            assert_int_equal(
                stream_tensor_layout(item->item.dtype, item->item.ndim, item->box.sizes, &layout),
                DCP_OK);
        uint64_t alignment = layout.data_length > 65536 ? 4096 : 64;
        uint64_t start =
            end + (uint64_t)(scratch_below(random, 8) == 0 ? scratch_below(random, 100000) : 0);
        start += (alignment - (start + layout.data_offset) % alignment) % alignment;
        item->order = (struct write_order){
            .file = item->file,
            .box = item->item.box,
            .offset = start,
            .data_offset = layout.data_offset,
            .length = layout.length,
        };
        end = start + layout.length;
    }
}

void sample_make(struct sample *sample, const struct sample_options *options)
{
    uint64_t random = options->seed;
    *sample = (struct sample){.ranks = options->ranks, .files = options->files};
    sample->path.key = "path";
    sample->tensor_count = options->tensors;
    sample->object_count = options->objects;
    sample->tensors = allocate(options->tensors, sizeof *sample->tensors);
    sample->objects = allocate(options->objects, sizeof *sample->objects);
    sample->items = allocate(options->tensors * 4 + options->objects, sizeof *sample->items);
    for (size_t i = 0; i < options->tensors; i++) {
        make_tensor(&sample->tensors[i], &random, i, options->large && i == 0);
        cut_tensor(sample, &random, &sample->tensors[i]);
    }
    for (size_t i = 0; i < options->objects; i++) {
        make_object(&sample->objects[i], &random, i);
        struct sample_item *item = add_item(sample, &random, sample->objects[i].name);
        item->object = &sample->objects[i];
        item->item.object_length = sample->objects[i].stream.size;
    }
    place_items(sample, &random);
}

void sample_free(struct sample *sample)
{
    for (size_t i = 0; i < sample->tensor_count; i++) {
        free(sample->tensors[i].dense);
        free(sample->tensors[i].memory);
    }
    for (size_t i = 0; i < sample->object_count; i++) {
        buffer_free(&sample->objects[i].stream);
        dcp_text_free(sample->objects[i].json);
    }
    free(sample->tensors);
    free(sample->objects);
    free(sample->items);
}

static dcp_status write_rank(const struct sample *sample, const struct save_session *session,
                             int rank)
{
    size_t first = 0;
    while (first < sample->item_count && sample->items[first].rank < rank)
        first++;
    size_t count = 0;
    while (first + count < sample->item_count && sample->items[first + count].rank == rank)
        count++;
    struct shard_source *sources = allocate(count, sizeof *sources);
    struct write_order *all = allocate(count, sizeof *all);
    for (size_t i = 0; i < count; i++) {
        const struct sample_item *item = &sample->items[first + i];
        sources[i].item = &item->item;
        sources[i].chunk = item->object ? NULL : &item->chunk;
        sources[i].stream = item->object ? item->object->stream.data : NULL;
        all[i] = item->order;
        all[i].item = (uint32_t)i;
    }
    struct write_orders orders = {.orders = all, .count = count, .file_count = sample->files};
    struct shard_write_options options = {
        .thread_count = sample->files,
        .io = sample->io,
        .buffer_bytes = SHARD_FILES_BUFFERS / sample->files,
        .record_threads = 4,
        .zstd = sample->zstd,
        .zstd_threads = sample->zstd_threads ? sample->zstd_threads : 1,
    };
    struct write_results results;
    struct shard_write_figures figures;
    dcp_status status =
        shard_files_write(session, rank, &orders, sources, &options, &results, &figures);
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        sample->items[first + i].stored =
            sample->zstd ? (struct write_result){.offset = results.results[i].offset,
                                                 .length = results.results[i].length,
                                                 .zstd = results.results[i].zstd}
                         : (struct write_result){.offset = all[i].offset, .length = all[i].length};
    write_results_free(&results);
    free(sources);
    free(all);
    return status;
}

dcp_status sample_write(const struct sample *sample, const struct save_session *session)
{
    dcp_status status = DCP_OK;
    int rank = 0;
    for (; rank < sample->ranks && status == DCP_OK; rank++)
        status = write_rank(sample, session, rank);
    /* The one that failed has cleaned up by itself. */
    for (int r = 0; status != DCP_OK && r < rank - 1; r++)
        shard_files_discard(session, r, sample->files);
    return status;
}

static void *arena_zeroed(struct arena *arena, size_t count, size_t size)
{
    void *block = arena_allocate_array(arena, count, size);
    return block ? memset(block, 0, count * size) : NULL;
}

/* NULL where memory is missing: under an allocator that fails. */
static dcp_status fill_metadata(const struct sample *sample, const struct save_session *session,
                                struct metadata *metadata)
{
    size_t names = sample->tensor_count + sample->object_count;
    size_t files = (size_t)sample->ranks * sample->files;
    metadata_init(metadata);
    struct arena *arena = &metadata->arena;
    metadata->entries = arena_zeroed(arena, names, sizeof *metadata->entries);
    metadata->files = arena_zeroed(arena, files, sizeof *metadata->files);
    struct metadata_piece *pieces = arena_zeroed(arena, sample->item_count, sizeof *pieces);
    if (!metadata->entries || !metadata->files || !pieces)
        return error_no_memory(names, "a test's metadata");
    metadata->file_count = files;
    metadata->save_id = session->save_id;
    metadata->has_paths = true;
    for (size_t i = 0; i < files; i++) {
        char name[SHARD_NAME_MAX];
        shard_name(name, (int)(i / sample->files), (uint32_t)(i % sample->files),
                   session->generation);
        metadata->files[i] = arena_copy_text(arena, name, strlen(name));
        if (!metadata->files[i])
            return error_no_memory(SHARD_NAME_MAX, "a file name");
    }
    for (size_t n = 0; n < names; n++) {
        struct metadata_entry *entry = &metadata->entries[metadata->count++];
        const char *name = n < sample->tensor_count
                               ? sample->tensors[n].name
                               : sample->objects[n - sample->tensor_count].name;
        entry->pieces = pieces;
        for (size_t i = 0; i < sample->item_count; i++) {
            const struct sample_item *item = &sample->items[i];
            if (strcmp(item->item.name, name) != 0)
                continue;
            entry->name = name;
            entry->path = item->item.path;
            entry->path_length = 1;
            entry->is_tensor = item->item.is_tensor;
            entry->dtype = item->item.dtype;
            entry->ndim = item->item.ndim;
            entry->global_shape = item->item.global_shape;
            pieces->offsets = item->object ? NULL : item->box.offsets;
            pieces->sizes = item->object ? NULL : item->box.sizes;
            pieces->file = (uint32_t)item->rank * sample->files + item->file;
            pieces->zstd = item->stored.zstd;
            pieces->offset = item->stored.offset;
            pieces->length = item->stored.length;
            pieces++;
            entry->piece_count++;
        }
    }
    return metadata_index(metadata);
}

void sample_metadata(const struct sample *sample, const struct save_session *session,
                     struct metadata *metadata)
{
    assert_int_equal(fill_metadata(sample, session, metadata), DCP_OK);
}

dcp_status sample_save(const struct sample *sample, const dcp_storage *storage, const char *path,
                       dcp_overwrite overwrite, bool sync)
{
    struct save_session session;
    struct save_commit commit;
    struct metadata metadata;
    struct buffer encoded;
    bool visible = false;
    RETURN_IF_ERROR(save_session_begin(&session, storage, path, overwrite, sync, 1800));
    buffer_init(&encoded, 0);
    metadata_init(&metadata);
    dcp_status status = sample_write(sample, &session);
    bool wrote = status == DCP_OK;
    if (status == DCP_OK)
        status = fill_metadata(sample, &session, &metadata);
    if (status == DCP_OK)
        status = metadata_encode(&metadata, &encoded);
    if (status == DCP_OK)
        status =
            save_commit_prepare(&commit, &session, encoded.data, encoded.size, "{\"saved\": 1}");
    if (status == DCP_OK)
        status = save_commit_publish(&commit, &visible);
    if (status == DCP_OK)
        save_session_sweep(&session, &metadata);
    for (int rank = 0; status != DCP_OK && wrote && !visible && rank < sample->ranks; rank++)
        shard_files_discard(&session, rank, sample->files);
    if (status != DCP_OK && !visible)
        save_session_abandon(&session);
    buffer_free(&encoded);
    metadata_free(&metadata);
    save_session_free(&session);
    return status;
}
