/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sample.h"
#include "scratch.h"

/* Elements of a box that was read against the tensor's own. */
static void compare_box(const struct sample_tensor *tensor, const struct box_storage *box,
                        const struct layout *layout, const unsigned char *memory)
{
    size_t element = dcp_dtype_size(tensor->dtype);
    int32_t ndim = layout->ndim;
    int64_t index[DCP_MAX_DIMS] = {0}, dense[DCP_MAX_DIMS];
    if (box_volume(box_of(ndim, box)) == 0)
        return;
    shape_strides(ndim, tensor->layout.sizes, dense);
    int64_t base = layout_offset(ndim, box->offsets, dense);
    do {
        int64_t from = base + layout_offset(ndim, index, dense);
        int64_t to = layout->first + layout_offset(ndim, index, layout->strides);
        if (memcmp(tensor->dense + from * (int64_t)element, memory + to * (int64_t)element,
                   element) != 0)
            fail_msg("%s differs at element %lld", tensor->name, (long long)from);
    } while (layout_next(ndim, layout->sizes, index));
}

static dcp_status read_box(struct shard_reader *reader, const struct metadata_entry *entry,
                           const struct sample_tensor *tensor, const struct box_storage *box,
                           const struct layout *layout, dcp_verification verification)
{
    size_t element = dcp_dtype_size(tensor->dtype);
    unsigned char *memory = calloc((size_t)layout->total, element);
    struct box wanted = box_of(layout->ndim, box);
    struct state_chunk target =
        layout_target(wanted, layout->strides, memory + layout->first * (int64_t)element);
    dcp_status status = DCP_OK;
    assert_non_null(memory);
    for (size_t i = 0; i < entry->piece_count && status == DCP_OK; i++) {
        const struct metadata_piece *piece = &entry->pieces[i];
        struct box_storage common;
        if (box_intersect((struct box){entry->ndim, piece->offsets, piece->sizes}, wanted, &common))
            status = shard_read_tensor(reader, entry, piece, box_of(entry->ndim, &common),
                                       entry->dtype, &target, verification);
    }
    if (status == DCP_OK)
        compare_box(tensor, box, layout, memory);
    free(memory);
    return status;
}

static dcp_status read_tensor(struct shard_reader *reader, const struct metadata *metadata,
                              const struct sample_tensor *tensor, dcp_verification verification,
                              int boxes)
{
    const struct metadata_entry *entry = metadata_find(metadata, tensor->name);
    uint64_t random = tensor->bytes + (uint64_t)boxes;
    struct box_storage box = {{0}, {0}};
    struct layout layout;
    assert_non_null(entry);
    assert_true(entry->is_tensor);
    assert_int_equal(entry->dtype, tensor->dtype);
    assert_int_equal(entry->ndim, tensor->layout.ndim);
    memcpy(box.sizes, tensor->layout.sizes, sizeof box.sizes);
    layout_make(&layout, &random, entry->ndim, box.sizes, false, true);
    RETURN_IF_ERROR(read_box(reader, entry, tensor, &box, &layout, verification));
    for (int i = 0; i < boxes; i++) {
        layout_random_box(&random, entry->ndim, tensor->layout.sizes, &box);
        layout_make(&layout, &random, entry->ndim, box.sizes, false,
                    scratch_below(&random, 2) == 0);
        RETURN_IF_ERROR(read_box(reader, entry, tensor, &box, &layout, verification));
    }
    return DCP_OK;
}

static dcp_status read_object(struct shard_reader *reader, const struct metadata *metadata,
                              const struct sample_object *object, dcp_verification verification)
{
    const struct metadata_entry *entry = metadata_find(metadata, object->name);
    dcp_state *root = dcp_state_new(), *node = NULL;
    char *json = NULL;
    assert_non_null(entry);
    assert_false(entry->is_tensor);
    struct state_pool *pool = root ? state_pool_new(root->root) : NULL;
    dcp_status status =
        pool ? shard_read_object(reader, entry, &entry->pieces[0], verification, pool, &node)
             : DCP_ERR_NO_MEMORY;
    if (status == DCP_OK)
        status = dcp_state_to_json(node, 0, &json);
    if (status == DCP_OK)
        assert_string_equal(json, object->json);
    dcp_text_free(json);
    state_pool_free(pool);
    dcp_state_free(root);
    return status;
}

dcp_status sample_read(const struct sample *sample, const dcp_storage *storage, const char *path,
                       dcp_verification verification, int boxes)
{
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    RETURN_IF_ERROR(storage_read_metadata(storage, storage_at(path), &form, &metadata, &reader));
    dcp_status status = DCP_OK;
    assert_int_equal(form, STORAGE_DCP);
    assert_int_equal(metadata.count, sample->tensor_count + sample->object_count);
    for (size_t i = 0; i < sample->tensor_count && status == DCP_OK; i++)
        status = read_tensor(reader, &metadata, &sample->tensors[i], verification, boxes);
    for (size_t i = 0; i < sample->object_count && status == DCP_OK; i++)
        status = read_object(reader, &metadata, &sample->objects[i], verification);
    shard_reader_free(reader);
    metadata_free(&metadata);
    return status;
}
