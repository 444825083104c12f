/* SPDX-License-Identifier: BSD-3-Clause */
/* TensorStorageMetadata: dtype, shape and chunks of a tensor. */
#include <stdio.h>

#include "base/error.h"
#include "format/metadata/metadata_digest.h"
#include "state/box.h"

/* Dtypes are looked up in a closed table: other attributes of torch are refused. */
static dcp_status look_up_dtype(const struct pickle_value *value, dcp_dtype *dtype)
{
    char name[32];
    uint32_t module_length = value->as.global.module_length;
    uint32_t name_length = value->as.global.name_length;
    snprintf(name, sizeof name, "%.*s", name_length < sizeof name ? (int)name_length : 0,
             value->as.global.name);
    *dtype = dcp_dtype_from_name(name);
    if (*dtype == DCP_DTYPE_NONE || !pickle_is_global(value, "torch", name))
        return dcp_error_set(DCP_ERR_FORMAT, "properties: \"%.*s.%.*s\" is not a known dtype",
                             module_length < 100 ? (int)module_length : 100,
                             value->as.global.module, name_length < 100 ? (int)name_length : 100,
                             value->as.global.name);
    return DCP_OK;
}

static dcp_status find_dtype(struct found_dtype *found, const struct pickle_value *value,
                             dcp_dtype *dtype)
{
    if (value->kind != PICKLE_GLOBAL)
        return dcp_error_set(DCP_ERR_FORMAT, "properties: %s, expected a dtype",
                             pickle_kind_name(value));
    if (found->name != value->as.global.name || found->module != value->as.global.module ||
        found->name_length != value->as.global.name_length ||
        found->module_length != value->as.global.module_length) {
        RETURN_IF_ERROR(look_up_dtype(value, dtype));
        *found = (struct found_dtype){value->as.global.module, value->as.global.name,
                                      value->as.global.module_length, value->as.global.name_length,
                                      *dtype};
    }
    *dtype = found->dtype;
    return DCP_OK;
}

static bool is_properties(const struct pickle_value *value)
{
    return value != NULL && value->kind == PICKLE_OBJECT &&
           (metadata_is_class(value->as.call->callable, "TensorProperties") ||
            /* until 2.2 */
            pickle_is_global(value->as.call->callable,
                             "torch.distributed._shard.sharded_tensor.metadata",
                             "TensorProperties"));
}

/* A tuple of 5 values, or more from 2.15 on; all but the dtype only inform. */
static dcp_status parse_properties(struct metadata_digester *digester,
                                   const struct pickle_value *value, struct digested_tensor *tensor)
{
    if (!is_properties(value))
        return dcp_error_set(DCP_ERR_FORMAT, "properties: %s, expected TensorProperties",
                             pickle_kind_name(value));
    const struct pickle_value *state = value->as.call->state;
    if (state == NULL || state->kind != PICKLE_TUPLE || state->as.sequence.count < 5)
        return dcp_error_set(DCP_ERR_FORMAT, "properties: expected a tuple of at least 5 values");
    struct pickle_value **fields = state->as.sequence.items;
    tensor->requires_grad = fields[2]->kind == PICKLE_BOOL && fields[2]->as.boolean;
    return find_dtype(&digester->found, fields[0], &tensor->dtype);
}

/* Whether each chunk has a digest, and none of another number of dimensions, and whether nothing
 * else refers to the list: else many tensors could have copies of one long list. */
static bool has_own_chunks(const struct pickle_value *list, int32_t ndim)
{
    if ((list->flags & VALUE_RETAINED) != 0)
        return false;
    for (uint32_t i = 0; i < list->as.sequence.count; i++) {
        const struct pickle_value *chunk = list->as.sequence.items[i];
        if (chunk->kind != PICKLE_DIGEST || chunk->tag != (DIGEST_CHUNK | ndim))
            return false;
    }
    return true;
}

/* The tensor with its shape and chunks. */
static dcp_status keep_tensor(struct metadata_digester *digester,
                              const struct digested_tensor *parsed, const int64_t *shape,
                              const struct pickle_value *list,
                              const struct digested_tensor **result)
{
    const struct pickle_sequence *chunks = &list->as.sequence;
    size_t shape_size = (size_t)parsed->ndim * sizeof *shape;
    bool own = has_own_chunks(list, parsed->ndim);
    size_t size = sizeof *parsed + (own ? chunks->count * sizeof *parsed->offsets : 0);
    struct digested_tensor *tensor = arena_allocate(digester->rest, size);
    int64_t *kept = arena_copy(digester->boxes, shape, shape_size);
    if (tensor == NULL || kept == NULL)
        return error_no_memory(size + shape_size, "a tensor's shape and chunks");
    *tensor = *parsed;
    tensor->shape = kept;
    tensor->chunk_count = chunks->count;
    tensor->list = own ? NULL : chunks;
    for (uint32_t i = 0; own && i < chunks->count; i++)
        tensor->offsets[i] = chunks->items[i]->as.digest;
    *result = tensor;
    return DCP_OK;
}

dcp_status metadata_parse_tensor(struct metadata_digester *digester,
                                 const struct pickle_value *state,
                                 const struct digested_tensor **tensor)
{
    struct digested_tensor parsed = {0};
    int64_t shape[DCP_MAX_DIMS];
    uint64_t bytes;
    char text[200];
    RETURN_IF_ERROR(parse_properties(digester, pickle_dict_get(state, "properties"), &parsed));
    RETURN_IF_ERROR(metadata_size(pickle_dict_get(state, "size"), "size", shape, &parsed.ndim));
    if (!shape_bytes(parsed.ndim, shape, parsed.dtype, &bytes))
        return dcp_error_set(DCP_ERR_FORMAT, "size: the bytes of %s of %s overflow",
                             shape_format(parsed.ndim, shape, text, sizeof text),
                             dcp_dtype_name(parsed.dtype));
    const struct pickle_value *list = pickle_dict_get(state, "chunks");
    if (list == NULL || (list->kind != PICKLE_LIST && list->kind != PICKLE_TUPLE))
        return dcp_error_set(DCP_ERR_FORMAT, "chunks: %s, expected a list", pickle_kind_name(list));
    return keep_tensor(digester, &parsed, shape, list, tensor);
}

dcp_status metadata_tensor(struct metadata_digester *digester, const struct pickle_value *value,
                           const struct digested_tensor **tensor)
{
    if (value->kind == PICKLE_DIGEST && value->tag == DIGEST_TENSOR) {
        *tensor = value->as.digest;
        return DCP_OK;
    }
    if (value->kind != PICKLE_OBJECT ||
        !metadata_is_class(value->as.call->callable, "TensorStorageMetadata"))
        return dcp_error_set(DCP_ERR_FORMAT,
                             "expected TensorStorageMetadata or BytesStorageMetadata");
    return metadata_parse_tensor(digester, value->as.call->state, tensor);
}

dcp_status metadata_tensor_chunk(const struct metadata_digester *digester,
                                 const struct digested_tensor *tensor, uint32_t index,
                                 struct digested_chunk *chunk)
{
    if (tensor->list != NULL)
        return metadata_chunk(digester, tensor->list->items[index], chunk);
    *chunk = (struct digested_chunk){tensor->ndim, tensor->offsets[index],
                                     tensor->offsets[index] + tensor->ndim};
    return DCP_OK;
}
