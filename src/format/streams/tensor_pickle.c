/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/streams/tensor_pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/streams/storage_class.h"

/* Parameters wrap tensors, and typed tensors wrap rebuild calls: never more than a few deep. */
#define WRAPPERS_MAX 4

#define EXPANDED_BASE  (UINT64_C(64) << 20)
#define EXPANDED_TIMES 1024

/* A rebuild function of Python and what it is called with. */
struct rebuild {
    const struct pickle_value *function;
    const struct pickle_sequence *arguments;
    const struct pickle_value *requires_grad; /* a parameter's own; NULL if there is none */
};

static bool is_sequence_of(const struct pickle_value *value, uint32_t least, uint32_t most)
{
    return value->kind == PICKLE_TUPLE && value->as.sequence.count >= least &&
           value->as.sequence.count <= most;
}

/* A call to which nothing was added afterwards. */
static bool open_call(const struct pickle_value *value, struct rebuild *rebuild)
{
    if (value->kind != PICKLE_CALL)
        return false;
    const struct pickle_call *call = value->as.call;
    if (call->state != NULL || call->items.count != 0 || call->pairs.count != 0 ||
        call->arguments->kind != PICKLE_TUPLE)
        return false;
    rebuild->function = call->callable;
    rebuild->arguments = &call->arguments->as.sequence;
    return true;
}

static bool is_tensor_type(const struct pickle_value *type)
{
    return pickle_is_global(type, "torch", "Tensor") ||
           pickle_is_global(type, "torch.nn.parameter", "Parameter") ||
           pickle_is_global(type, "torch.nn.parameter", "Buffer");
}

/* Removes one wrapper; false if there is none, or an unknown one. */
static bool unwrap(struct rebuild *rebuild)
{
    const struct pickle_sequence *arguments = rebuild->arguments;
    bool plain = pickle_is_global(rebuild->function, "torch._utils", "_rebuild_parameter");
    bool with_state =
        pickle_is_global(rebuild->function, "torch._utils", "_rebuild_parameter_with_state");
    if ((plain && arguments->count == 3) || (with_state && arguments->count == 4)) {
        if (rebuild->requires_grad == NULL)
            rebuild->requires_grad = arguments->items[1];
        return open_call(arguments->items[0], rebuild);
    }
    if (pickle_is_global(rebuild->function, "torch._tensor", "_rebuild_from_type_v2") &&
        arguments->count == 4 && is_tensor_type(arguments->items[1]) &&
        arguments->items[2]->kind == PICKLE_TUPLE) {
        rebuild->function = arguments->items[0];
        rebuild->arguments = &arguments->items[2]->as.sequence;
        return true;
    }
    return false;
}

/* Finds the innermost rebuild call and whether it is one of the two that know storages. */
static bool find_rebuild(const struct pickle_value *value, struct rebuild *rebuild, bool *v3)
{
    *rebuild = (struct rebuild){0};
    if (!open_call(value, rebuild))
        return false;
    for (int depth = 0; depth < WRAPPERS_MAX; depth++) {
        *v3 = pickle_is_global(rebuild->function, "torch._utils", "_rebuild_tensor_v3");
        if (*v3 || pickle_is_global(rebuild->function, "torch._utils", "_rebuild_tensor_v2"))
            return true;
        if (!unwrap(rebuild))
            return false;
    }
    return false;
}

bool tensor_pickle_is_tensor(const struct pickle_value *value)
{
    struct rebuild rebuild;
    bool v3 = false;
    return find_rebuild(value, &rebuild, &v3);
}

static dcp_status malformed(const char *what)
{
    return dcp_error_set(DCP_ERR_FORMAT, "the tensor's pickle is malformed: %s", what);
}

/* The element type of a storage class; UntypedStorage counts bytes. */
static dcp_dtype storage_dtype(const struct pickle_value *type)
{
    if (pickle_is_global(type, "torch.storage", "UntypedStorage"))
        return DCP_U8;
    if (type->kind != PICKLE_GLOBAL)
        return DCP_DTYPE_NONE;
    dcp_dtype dtype = storage_class_dtype(type->as.global.name, type->as.global.name_length);
    const char *name = dtype != DCP_DTYPE_NONE ? storage_class_name(dtype) : NULL;
    if (name == NULL ||
        (!pickle_is_global(type, "torch", name) && !pickle_is_global(type, "torch.cuda", name)))
        return DCP_DTYPE_NONE;
    return dtype;
}

/* ('storage', class, key, location, elements), and of legacy files a sixth value, None: a view of
 * another storage otherwise, which no tensor has needed since PyTorch 0.4. */
dcp_status tensor_pickle_storage(const struct pickle_value *value, struct tensor_pickle *tensor)
{
    if (value->kind != PICKLE_PERSISTENT || !is_sequence_of(value->as.id, 5, 6))
        return malformed("its storage is not a persistent id of five values");
    struct pickle_value *const *id = value->as.id->as.sequence.items;
    if (!pickle_text_is(id[0], "storage"))
        return malformed("its persistent id is not of a storage");
    if (value->as.id->as.sequence.count == 6 && id[5]->kind != PICKLE_NONE)
        return malformed("its storage is a view of another one");
    tensor->dtype = storage_dtype(id[1]);
    if (tensor->dtype == DCP_DTYPE_NONE)
        return malformed("its class of storage is unknown");
    if (id[2]->kind != PICKLE_STRING)
        return malformed("its storage key is not a string");
    tensor->storage_key = id[2]->as.text.bytes;
    tensor->storage_key_length = id[2]->as.text.length;
    if (id[4]->kind != PICKLE_INT || id[4]->as.integer < 0 ||
        !checked_multiply_u64((uint64_t)id[4]->as.integer, dcp_dtype_size(tensor->dtype),
                              &tensor->storage_bytes))
        return malformed("the size of its storage is invalid");
    return DCP_OK;
}

static dcp_status parse_dtype(const struct pickle_value *value, dcp_dtype *dtype)
{
    char name[32];
    *dtype = DCP_DTYPE_NONE;
    if (value->kind == PICKLE_GLOBAL && value->as.global.name_length < sizeof name) {
        memcpy(name, value->as.global.name, value->as.global.name_length);
        name[value->as.global.name_length] = '\0';
        if (strlen(name) == value->as.global.name_length && pickle_is_global(value, "torch", name))
            *dtype = dcp_dtype_from_name(name);
    }
    return *dtype != DCP_DTYPE_NONE ? DCP_OK : malformed("its dtype is unknown");
}

static dcp_status parse_numbers(const struct pickle_value *value, const char *what,
                                struct arena *arena, const int64_t **numbers, uint32_t *count)
{
    if (!is_sequence_of(value, 0, DCP_MAX_DIMS))
        return dcp_error_set(
            DCP_ERR_FORMAT,
            "the tensor's pickle is malformed: its %s is not a tuple of at most %d values", what,
            DCP_MAX_DIMS);
    *count = value->as.sequence.count;
    int64_t *copy = arena_allocate_array(arena, *count, sizeof *copy);
    if (copy == NULL)
        return error_no_memory(*count * sizeof *copy, "the shape of a tensor");
    for (uint32_t i = 0; i < *count; i++) {
        const struct pickle_value *item = value->as.sequence.items[i];
        if (item->kind != PICKLE_INT || item->as.integer < 0)
            return dcp_error_set(
                DCP_ERR_FORMAT,
                "the tensor's pickle is malformed: its %s has an invalid value at index %" PRIu32,
                what, i);
        copy[i] = item->as.integer;
    }
    *numbers = copy;
    return DCP_OK;
}

static bool is_without_hooks(const struct pickle_value *value)
{
    struct rebuild call = {0};
    if (value->kind == PICKLE_NONE)
        return true;
    if (value->kind == PICKLE_DICT)
        return value->as.sequence.count == 0;
    return pickle_is_call(value, "collections", "OrderedDict") && open_call(value, &call) &&
           call.arguments->count == 0;
}

/* {'conj': True, 'neg': True}, both optional, or None */
static dcp_status parse_flags(const struct pickle_value *value, struct tensor_pickle *tensor)
{
    if (value->kind == PICKLE_NONE)
        return DCP_OK;
    if (value->kind != PICKLE_DICT)
        return malformed("its flags are not a dict");
    const struct pickle_sequence *pairs = &value->as.sequence;
    for (uint32_t i = 0; i + 1 < pairs->count; i += 2) {
        const struct pickle_value *flag = pairs->items[i + 1];
        if (flag->kind != PICKLE_BOOL)
            return malformed("one of its flags is not a bool");
        if (pickle_text_is(pairs->items[i], "conj"))
            tensor->conjugate = flag->as.boolean;
        else if (pickle_text_is(pairs->items[i], "neg"))
            tensor->negative = flag->as.boolean;
        else
            return malformed("one of its flags is unknown");
    }
    return DCP_OK;
}

/* Every element must lie inside of the storage. */
static dcp_status check_bounds(const struct tensor_pickle *tensor)
{
    char shape[128];
    int64_t element_size = (int64_t)dcp_dtype_size(tensor->dtype);
    uint64_t bytes = 0;
    if (!shape_bytes(tensor->ndim, tensor->sizes, tensor->dtype, &bytes))
        return dcp_error_set(DCP_ERR_FORMAT, "tensor of shape %s exceeds 2^63 bytes",
                             shape_format(tensor->ndim, tensor->sizes, shape, sizeof shape));
    if (bytes == 0)
        return DCP_OK;
    int64_t last = tensor->storage_offset;
    bool fits = true;
    for (int32_t i = 0; i < tensor->ndim && fits; i++) {
        int64_t reach = 0;
        fits = checked_multiply_i64(tensor->sizes[i] - 1, tensor->strides[i], &reach) &&
               checked_add_i64(last, reach, &last);
    }
    int64_t end = 0;
    fits = fits && checked_add_i64(last, 1, &end) && checked_multiply_i64(end, element_size, &end);
    if (!fits || (uint64_t)end > tensor->storage_bytes)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "tensor of shape %s with offset %" PRId64
                             " reaches beyond its storage of %" PRIu64 " bytes",
                             shape_format(tensor->ndim, tensor->sizes, shape, sizeof shape),
                             tensor->storage_offset, tensor->storage_bytes);
    return DCP_OK;
}

dcp_status tensor_pickle_parse(const struct pickle_value *value, struct arena *arena,
                               struct tensor_pickle *tensor)
{
    struct rebuild rebuild;
    bool v3 = false;
    *tensor = (struct tensor_pickle){0};
    if (!find_rebuild(value, &rebuild, &v3))
        return dcp_error_set(DCP_ERR_FORMAT, "the pickle's value is not a tensor");
    uint32_t fixed = v3 ? 7 : 6;
    const struct pickle_sequence *arguments = rebuild.arguments;
    if (arguments->count != fixed && arguments->count != fixed + 1)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "the tensor's pickle is malformed: %" PRIu32
                             " arguments, expected %" PRIu32 " or %" PRIu32,
                             arguments->count, fixed, fixed + 1);
    struct pickle_value *const *argument = arguments->items;
    RETURN_IF_ERROR(tensor_pickle_storage(argument[0], tensor));
    if (v3)
        RETURN_IF_ERROR(parse_dtype(argument[6], &tensor->dtype));
    if (argument[1]->kind != PICKLE_INT || argument[1]->as.integer < 0)
        return malformed("its storage offset is invalid");
    tensor->storage_offset = argument[1]->as.integer;
    uint32_t ndim = 0;
    uint32_t stride_count = 0;
    RETURN_IF_ERROR(parse_numbers(argument[2], "shape", arena, &tensor->sizes, &ndim));
    RETURN_IF_ERROR(parse_numbers(argument[3], "strides", arena, &tensor->strides, &stride_count));
    if (stride_count != ndim)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "tensor with %" PRIu32 " dimensions and %" PRIu32 " strides", ndim,
                             stride_count);
    tensor->ndim = (int32_t)ndim;
    const struct pickle_value *requires_grad =
        rebuild.requires_grad != NULL ? rebuild.requires_grad : argument[4];
    if (argument[4]->kind != PICKLE_BOOL || requires_grad->kind != PICKLE_BOOL)
        return malformed("its requires_grad is not a bool");
    tensor->requires_grad = requires_grad->as.boolean;
    tensor->parameter = rebuild.requires_grad != NULL;
    if (!is_without_hooks(argument[5]))
        return malformed("hooks");
    if (arguments->count > fixed)
        RETURN_IF_ERROR(parse_flags(argument[fixed], tensor));
    return check_bounds(tensor);
}

dcp_status tensor_pickle_view(const struct tensor_pickle *tensor, const struct zip_archive *archive,
                              struct tensor_view *view)
{
    char name[ZIP_NAME_MAX + 1];
    const struct zip_record *record = NULL;
    if (tensor->storage_key_length < sizeof name - sizeof "data/" &&
        memchr(tensor->storage_key, '\0', tensor->storage_key_length) == NULL) {
        snprintf(name, sizeof name, "data/%.*s", (int)tensor->storage_key_length,
                 tensor->storage_key);
        record = zip_find(archive, name);
    }
    if (record == NULL)
        return malformed("its archive has no record of its storage");
    if (record->size != tensor->storage_bytes)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zip record \"%s\" has %" PRIu64 " bytes, expected %" PRIu64,
                             record->name, record->size, tensor->storage_bytes);
    uint64_t data_offset = 0;
    RETURN_IF_ERROR(zip_data_offset(archive, record, &data_offset));
    *view = (struct tensor_view){.dtype = tensor->dtype,
                                 .ndim = tensor->ndim,
                                 .sizes = tensor->sizes,
                                 .strides = tensor->strides,
                                 .storage_offset = tensor->storage_offset,
                                 .conjugate = tensor->conjugate,
                                 .negative = tensor->negative,
                                 .swapped = archive->big_endian,
                                 .deflated = record->deflated,
                                 .has_crc = record->crc != 0,
                                 .crc = record->crc,
                                 .data_offset = data_offset,
                                 .data_length = record->stored_size,
                                 .storage_bytes = record->size};
    return DCP_OK;
}

dcp_status tensor_pickle_check_expansion(const struct tensor_view *view)
{
    uint64_t bytes;
    char text[128];
    if (shape_bytes(view->ndim, view->sizes, view->dtype, &bytes) &&
        (bytes <= EXPANDED_BASE || bytes / EXPANDED_TIMES <= view->storage_bytes))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FORMAT, "tensor of shape %s of a storage of %" PRIu64 " bytes",
                         shape_format(view->ndim, view->sizes, text, sizeof text),
                         view->storage_bytes);
}
