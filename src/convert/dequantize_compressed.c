/* SPDX-License-Identifier: BSD-3-Clause */
/* compressed-tensors: each module's weight by the format of its group. The reference computes in
 * the dtype of the scales, and so does this. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "convert/dequantize.h"
#include "convert/quantized_shape.h"

#define WEIGHT_END ".weight"
#define PACKED_END ".weight_packed"

enum { NVFP4_GROUP = 16, MXFP4_GROUP = 32, BITS_MAX = 8, WORD_BITS = 32 };

/* A weight that is looked at. */
struct module {
    struct dequantizing *dequantizing;
    const char *name; /* of the stored weight */
    size_t stem;      /* of the module's name, in it */
    struct convert_item *item;
    const struct quantization_group *group;
    struct quantized_weight *weight;
};

static bool find_part(const struct module *module, const char *end, dcp_dtype dtype,
                      struct convert_item *found)
{
    return dequantize_find(module->dequantizing, module->name, module->stem, end, dtype, found);
}

static bool text_is(const char *text, const char *expected)
{
    return text && strcmp(text, expected) == 0;
}

static dcp_status lacks(const struct module *module, const char *end)
{
    return dcp_error_set(DCP_ERR_FORMAT,
                         "%s: there is no %.*s%s for it in any of the files: without it the "
                         "numbers mean nothing",
                         module->name, (int)module->stem, module->name, end);
}

static dcp_status expect_stored(const struct module *module, dcp_dtype dtype)
{
    return module->weight->weight.stored == dtype
               ? DCP_OK
               : dcp_error_set(DCP_ERR_FORMAT, "%s: is of dtype %s, where its format has %s",
                               module->name, dcp_dtype_name(module->weight->weight.stored),
                               dcp_dtype_name(dtype));
}

/* Which elements share a scale, as the group's strategy says. */
static dcp_status set_strategy(const struct module *module)
{
    const struct quantization_group *group = module->group;
    struct quantized_weight *weight = module->weight;
    uint64_t columns = weight->columns > 0 ? (uint64_t)weight->columns : 1;
    if (text_is(group->strategy, "tensor"))
        return quantized_shape_one_scale(weight);
    if (text_is(group->strategy, "channel"))
        return quantized_shape_blocks(weight, 1, columns);
    if (text_is(group->strategy, "group") && group->group_size > 0 &&
        group->group_size <= INT64_MAX && columns % group->group_size == 0)
        return quantized_shape_blocks(weight, 1, group->group_size);
    if (text_is(group->strategy, "block") && group->block[0] > 0)
        return quantized_shape_blocks(weight, group->block[0], group->block[1]);
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "%s: the strategy \"%s\" of \"%s\" does not say which elements share a "
                         "scale",
                         module->name, group->strategy ? group->strategy : "", group->name);
}

/* The scale, and what is computed in. */
static dcp_status set_scale(const struct module *module)
{
    struct quantized_weight *weight = module->weight;
    dcp_dtype dtype;
    if (!find_part(module, ".weight_scale", DCP_F32, &weight->scale))
        return lacks(module, ".weight_scale");
    dtype = weight->scale.stored;
    if (dtype != DCP_F32 && dtype != DCP_BF16 && dtype != DCP_F16)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: its weight_scale is of dtype %s",
                             module->name, dcp_dtype_name(dtype));
    weight->computed = dtype;
    return DCP_OK;
}

static dcp_status find_zero_point(const struct module *module, dcp_dtype dtype)
{
    struct quantized_weight *weight = module->weight;
    struct convert_item *zero = &weight->zero_point;
    weight->has_zero_point = find_part(module, ".weight_zero_point", DCP_DTYPE_NONE, zero);
    weight->packed_zero_point = dtype == DCP_I32;
    if (!weight->has_zero_point)
        return DCP_OK;
    if (zero->stored != dtype || weight->planes != 1)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: its weight_zero_point is of dtype %s",
                             module->name, dcp_dtype_name(zero->stored));
    return DCP_OK;
}

static dcp_status make_float8(struct module *module)
{
    RETURN_IF_ERROR(expect_stored(module, DCP_F8_E4M3FN));
    RETURN_IF_ERROR(set_scale(module));
    RETURN_IF_ERROR(quantized_shape_set(module->weight, module->item->ndim, module->item->shape));
    return set_strategy(module);
}

static dcp_status make_int8(struct module *module)
{
    struct quantized_weight *weight = module->weight;
    const struct convert_item *zero = &weight->zero_point, *scale = &weight->scale;
    RETURN_IF_ERROR(expect_stored(module, DCP_I8));
    weight->code = QUANTIZED_INT8;
    RETURN_IF_ERROR(set_scale(module));
    RETURN_IF_ERROR(quantized_shape_set(weight, module->item->ndim, module->item->shape));
    RETURN_IF_ERROR(set_strategy(module));
    RETURN_IF_ERROR(find_zero_point(module, DCP_I8));
    if (weight->has_zero_point && zero->bytes != scale->bytes / dcp_dtype_size(scale->stored))
        return dcp_error_set(DCP_ERR_FORMAT, "%s: it has not one weight_zero_point for each scale",
                             module->name);
    return DCP_OK;
}

static dcp_status read_shape(const struct module *module, int64_t shape[2])
{
    struct convert_item item;
    if (!find_part(module, ".weight_shape", DCP_DTYPE_NONE, &item))
        return lacks(module, ".weight_shape");
    if (item.stored != DCP_I64 || item.ndim != 1 || item.shape[0] != 2)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: its weight_shape is not two int64", module->name);
    return convert_read(module->dequantizing->source, &item, 0, 2, shape);
}

/* Each group must have as many columns as the others: only then is its scale that of its number. */
static dcp_status check_order(const struct module *module, const int32_t *groups, int64_t *counts)
{
    const struct quantized_weight *weight = module->weight;
    memset(counts, 0, (size_t)weight->scale_columns * sizeof *counts);
    for (int64_t i = 0; i < weight->columns; i++) {
        if (groups[i] < 0 || groups[i] >= weight->scale_columns)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: its weight_g_idx has the group %d, of %" PRId64, module->name,
                                 (int)groups[i], weight->scale_columns);
        counts[groups[i]]++;
    }
    for (int64_t i = 0; i < weight->scale_columns; i++)
        if (counts[i] != weight->block_columns)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: its weight_g_idx has %" PRId64 " columns of group %" PRId64
                                 ", expected %" PRId64,
                                 module->name, counts[i], i, weight->block_columns);
    return DCP_OK;
}

/* Columns were ordered by activations: weight_g_idx has the group of each. With a -1 in it, it was
 * never set, and they are in order. As compressed-tensors did up to 0.17; later versions, which do
 * not look at it, take other scales. */
static dcp_status set_order(const struct module *module)
{
    struct quantized_weight *weight = module->weight;
    struct arena *arena = &module->dequantizing->source->arena;
    struct convert_item item;
    if (!text_is(module->group->strategy, "group") ||
        !find_part(module, ".weight_g_idx", DCP_DTYPE_NONE, &item))
        return DCP_OK;
    if (item.stored != DCP_I32 || item.ndim != 1 || item.shape[0] != weight->columns)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: its weight_g_idx is not %" PRId64 " int32",
                             module->name, weight->columns);
    int32_t *groups = arena_allocate_array(arena, (size_t)weight->columns, sizeof *groups);
    int64_t *counts = arena_allocate_array(arena, (size_t)weight->scale_columns, sizeof *counts);
    if (!groups || !counts)
        return error_no_memory((size_t)weight->columns * sizeof *groups, "the order of columns");
    RETURN_IF_ERROR(convert_read(module->dequantizing->source, &item, 0, weight->columns, groups));
    for (int64_t i = 0; i < weight->columns; i++)
        if (groups[i] == -1)
            return DCP_OK;
    if (WORD_BITS % weight->bits != 0)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s: is in an order of activations (weight_g_idx), of %u bits, which "
                             "versions of compressed-tensors have packed in different ways",
                             module->name, weight->bits);
    RETURN_IF_ERROR(check_order(module, groups, counts));
    weight->groups = groups;
    return DCP_OK;
}

/* Before 0.18 the numbers of a word filled what they could of it; since then they go on in the next
 * word. */
static bool is_before_0_18(const char *version)
{
    char *end;
    return strtol(version, &end, 10) == 0 && end != version && *end == '.' &&
           strtol(end + 1, NULL, 10) < 18;
}

/* The count of words may be the same. */
static dcp_status check_packing(const struct module *module)
{
    const char *version = module->dequantizing->config.version;
    if (WORD_BITS % module->weight->bits == 0 || !version || !is_before_0_18(version))
        return DCP_OK;
    return dcp_error_set(
        DCP_ERR_UNSUPPORTED,
        "%s: its numbers of %u bits are packed as compressed-tensors %.20s did, which is not "
        "read: save the model again with version 0.18 or later",
        module->name, module->weight->bits, version);
}

static dcp_status make_packed(struct module *module, int64_t shape[2])
{
    struct quantized_weight *weight = module->weight;
    RETURN_IF_ERROR(expect_stored(module, DCP_I32));
    if (module->group->bits < 1 || module->group->bits > BITS_MAX ||
        text_is(module->group->type, "float"))
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s: is packed of numbers that are not integers "
                             "of 1 to %d bits",
                             module->name, (int)BITS_MAX);
    weight->code = QUANTIZED_PACKED_INT;
    weight->bits = (unsigned)module->group->bits;
    RETURN_IF_ERROR(check_packing(module));
    RETURN_IF_ERROR(read_shape(module, shape));
    RETURN_IF_ERROR(quantized_shape_set(weight, 2, shape));
    RETURN_IF_ERROR(set_scale(module));
    RETURN_IF_ERROR(find_zero_point(module, DCP_I32));
    RETURN_IF_ERROR(quantized_shape_packed(weight));
    RETURN_IF_ERROR(set_strategy(module));
    RETURN_IF_ERROR(set_order(module));
    return quantized_shape_packed_zeros(weight);
}

/* Of four bits: the last dimension is twice the stored one. */
static dcp_status make_float4(struct module *module, uint64_t group, int64_t shape[2])
{
    struct quantized_weight *weight = module->weight;
    const struct convert_item *item = module->item;
    RETURN_IF_ERROR(expect_stored(module, DCP_U8));
    if (item->ndim != 2 || item->shape[1] > INT64_MAX / 2)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: it has not two dimensions", module->name);
    weight->code = QUANTIZED_E2M1;
    weight->computed = DCP_BF16;
    shape[0] = item->shape[0];
    shape[1] = 2 * item->shape[1];
    RETURN_IF_ERROR(quantized_shape_set(weight, 2, shape));
    return quantized_shape_blocks(weight, 1, group);
}

static dcp_status make_nvfp4(struct module *module, int64_t shape[2])
{
    struct quantized_weight *weight = module->weight;
    struct convert_item divisor;
    if (!find_part(module, ".weight_scale", DCP_F32, &weight->scale))
        return lacks(module, ".weight_scale");
    if (!find_part(module, ".weight_global_scale", DCP_DTYPE_NONE, &divisor))
        return lacks(module, ".weight_global_scale");
    if (weight->scale.stored != DCP_F8_E4M3FN || divisor.stored != DCP_F32 || divisor.ndim != 1 ||
        divisor.shape[0] != 1)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: its scales are not float8_e4m3fn, with one "
                             "float32 that divides them",
                             module->name);
    weight->divides = true;
    RETURN_IF_ERROR(convert_read(module->dequantizing->source, &divisor, 0, 1, &weight->divisor));
    return make_float4(module, NVFP4_GROUP, shape);
}

static dcp_status make_mxfp4(struct module *module, int64_t shape[2])
{
    struct quantized_weight *weight = module->weight;
    if (!find_part(module, ".weight_scale", DCP_DTYPE_NONE, &weight->scale))
        return lacks(module, ".weight_scale");
    if (weight->scale.stored != DCP_U8)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: its weight_scale is of dtype %s, not uint8",
                             module->name, dcp_dtype_name(weight->scale.stored));
    weight->scale_is_exponent = true;
    return make_float4(module, MXFP4_GROUP, shape);
}

static dcp_status take_packed(struct module *module, const char *format)
{
    int64_t shape[2] = {0, 0};
    if (text_is(format, "pack-quantized"))
        RETURN_IF_ERROR(make_packed(module, shape));
    else if (text_is(format, "nvfp4-pack-quantized"))
        RETURN_IF_ERROR(make_nvfp4(module, shape));
    else
        RETURN_IF_ERROR(make_mxfp4(module, shape));
    return dequantize_take(module->dequantizing, module->weight, module->item, 2, shape, PACKED_END,
                           WEIGHT_END);
}

static dcp_status take_plain(struct module *module, bool is_float)
{
    RETURN_IF_ERROR(is_float ? make_float8(module) : make_int8(module));
    return dequantize_take(module->dequantizing, module->weight, module->item, module->item->ndim,
                           module->item->shape, NULL, NULL);
}

static dcp_status find_group(struct module *module, const char **format)
{
    struct dequantizing *dequantizing = module->dequantizing;
    const char *name = arena_copy_text(&dequantizing->source->arena, module->name, module->stem);
    if (!name)
        return error_no_memory(module->stem, "a name");
    RETURN_IF_ERROR(quantization_config_find(&dequantizing->config, name, &module->group));
    *format = module->group->format ? module->group->format : dequantizing->config.format;
    return DCP_OK;
}

static dcp_status take_module(struct module *module, bool packed)
{
    static const char *const packings[] = {"pack-quantized", "nvfp4-pack-quantized",
                                           "mxfp4-pack-quantized"};
    const char *format;
    bool is_float;
    RETURN_IF_ERROR(find_group(module, &format));
    RETURN_IF_ERROR(dequantize_new(module->dequantizing, module->name, module->item, QUANTIZED_E4M3,
                                   &module->weight));
    is_float = text_is(format, "float-quantized") ||
               (text_is(format, "naive-quantized") && text_is(module->group->type, "float"));
    if (!packed &&
        (is_float || text_is(format, "int-quantized") || text_is(format, "naive-quantized")))
        return take_plain(module, is_float);
    for (size_t i = 0; i < sizeof packings / sizeof *packings && packed; i++)
        if (text_is(format, packings[i]))
            return take_packed(module, format);
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "%s: compressed-tensors' format \"%s\" is not dequantized", module->name,
                         format ? format : "");
}

/* What belongs to a weight goes with it; what belongs to activations is no weight. */
static dcp_status drop_part(const struct module *module, bool *drop)
{
    static const char *const parts[] = {".weight_scale", ".weight_zero_point", ".weight_shape",
                                        ".weight_global_scale", ".weight_g_idx"};
    static const char *const others[] = {".input_scale", ".input_global_scale", ".input_zero_point",
                                         ".output_scale", ".output_zero_point"};
    struct convert_item weight;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        *drop |= dequantize_stem(module->name, others[i]) > 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct module owner = *module;
        owner.stem = dequantize_stem(module->name, parts[i]);
        if (owner.stem == 0)
            continue;
        *drop = find_part(&owner, PACKED_END, DCP_DTYPE_NONE, &weight) ||
                find_part(&owner, WEIGHT_END, DCP_DTYPE_NONE, &weight);
        if (!*drop)
            return dcp_error_set(DCP_ERR_FORMAT, "%s: there is no weight for it", module->name);
    }
    return DCP_OK;
}

dcp_status dequantize_compressed(struct dequantizing *dequantizing, const char *name,
                                 struct convert_item *item, bool *drop)
{
    struct module module = {.dequantizing = dequantizing, .name = name, .item = item};
    struct convert_item scale;
    module.stem = dequantize_stem(name, PACKED_END);
    if (module.stem > 0)
        return take_module(&module, true);
    module.stem = dequantize_stem(name, WEIGHT_END);
    if (module.stem > 0 && find_part(&module, ".weight_scale", DCP_DTYPE_NONE, &scale))
        return take_module(&module, false);
    if (dequantize_stem(name, ".bitmask") > 0 || dequantize_stem(name, ".compressed") > 0)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s: compressed-tensors' sparse formats are not dequantized", name);
    RETURN_IF_ERROR(drop_part(&module, drop));
    bool coded = item->stored == DCP_I8 ||
                 (item->stored >= DCP_F8_E4M3FN && item->stored <= DCP_F8_E5M2FNUZ);
    return coded && !*drop && module.stem > 0 ? lacks(&module, ".weight_scale") : DCP_OK;
}
