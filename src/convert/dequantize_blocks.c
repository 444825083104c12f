/* SPDX-License-Identifier: BSD-3-Clause */
/* FP8 with scales of blocks, as DeepSeek has it, and MXFP4, as gpt-oss has it. */
#include <string.h>

#include "base/error.h"
#include "convert/dequantize.h"
#include "convert/quantized_shape.h"

/* BLOCK_USUAL: where no block is said; GROUP: of a row, in the formats MX. */
enum { BLOCK_USUAL = 128, GROUP = 32, MXFP4_BYTES = 16 };

#define WEIGHT_END ".weight"

static bool is_float8(dcp_dtype dtype)
{
    return dtype >= DCP_F8_E4M3FN && dtype <= DCP_F8_E5M2FNUZ;
}

/* Numbers that mean nothing without a scale. A byte with a sign is two of four bits. */
static bool is_coded(dcp_dtype dtype)
{
    return dtype == DCP_I8 || is_float8(dtype);
}

/* The scale of a weight, by any of its names. */
static bool find_scale(struct dequantizing *dequantizing, const char *name,
                       struct convert_item *scale)
{
    static const char *const ends[] = {".scale", ".qscale_weight", ".weight_scale"};
    size_t stem = dequantize_stem(name, WEIGHT_END);
    if (dequantize_find(dequantizing, name, strlen(name), "_scale_inv", DCP_F32, scale))
        return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && stem > 0; i++)
        if (dequantize_find(dequantizing, name, stem, ends[i], DCP_F32, scale))
            return true;
    return false;
}

/* Which elements share a scale: blocks as config.json has them, unless the shapes tell of rows,
 * groups or whole matrices, as they do of some weights of a model. */
static dcp_status set_scales(const struct dequantizing *dequantizing,
                             struct quantized_weight *weight)
{
    const uint64_t *said = dequantizing->config.block;
    uint64_t rows = weight->rows > 0 ? (uint64_t)weight->rows : 1;
    uint64_t columns = weight->columns > 0 ? (uint64_t)weight->columns : 1;
    const uint64_t blocks[][2] = {
        {said[0] > 0 ? said[0] : BLOCK_USUAL, said[0] > 0 ? said[1] : BLOCK_USUAL},
        {1, columns},
        {1, GROUP},
        {rows, columns}};
    if (weight->scale.ndim < 2 && weight->code == QUANTIZED_E4M3)
        return quantized_shape_one_scale(weight);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (quantized_shape_has_blocks(weight, blocks[i][0], blocks[i][1]))
            return quantized_shape_blocks(weight, blocks[i][0], blocks[i][1]);
    return quantized_shape_blocks(weight, blocks[0][0], blocks[0][1]);
}

static dcp_status check_scale(struct quantized_weight *weight)
{
    struct convert_item *scale = &weight->scale;
    weight->scale_is_exponent = scale->stored == DCP_U8;
    if (weight->scale_is_exponent)
        scale->dtype = DCP_U8;
    if (scale->stored == DCP_F32 || scale->stored == DCP_BF16 || scale->stored == DCP_F16 ||
        scale->stored == DCP_F8_E8M0FNU || weight->scale_is_exponent)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: its scale is of dtype %s", weight->name,
                         dcp_dtype_name(scale->stored));
}

static dcp_status lacks_scale(const char *name, dcp_dtype dtype)
{
    return dcp_error_set(DCP_ERR_FORMAT,
                         "%s: is of dtype %s, and there is no scale for it (%s_scale_inv in any "
                         "of the files): without it the numbers mean nothing",
                         name, dcp_dtype_name(dtype), name);
}

static dcp_status take_float8(struct dequantizing *dequantizing, const char *name,
                              struct convert_item *item)
{
    struct quantized_weight *weight;
    struct convert_item scale;
    if (item->stored != DCP_F8_E4M3FN)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: weights of dtype %s are not dequantized",
                             name, dcp_dtype_name(item->stored));
    if (!find_scale(dequantizing, name, &scale))
        return lacks_scale(name, item->stored);
    RETURN_IF_ERROR(dequantize_new(dequantizing, name, item, QUANTIZED_E4M3, &weight));
    weight->scale = scale;
    RETURN_IF_ERROR(check_scale(weight));
    RETURN_IF_ERROR(quantized_shape_set(weight, item->ndim, item->shape));
    RETURN_IF_ERROR(set_scales(dequantizing, weight));
    return dequantize_take(dequantizing, weight, item, item->ndim, item->shape, NULL, NULL);
}

/* Experts of DeepSeek-V4: two numbers in a byte, 32 of a row with a scale. */
static dcp_status take_float4(struct dequantizing *dequantizing, const char *name,
                              struct convert_item *item)
{
    struct quantized_weight *weight;
    struct convert_item scale;
    int64_t shape[DCP_MAX_DIMS];
    if (!find_scale(dequantizing, name, &scale))
        return lacks_scale(name, item->stored);
    if (item->ndim < 2 || item->shape[item->ndim - 1] > INT64_MAX / 2)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: it has no rows of pairs", name);
    RETURN_IF_ERROR(dequantize_new(dequantizing, name, item, QUANTIZED_E2M1, &weight));
    weight->scale = scale;
    RETURN_IF_ERROR(check_scale(weight));
    memcpy(shape, item->shape, (size_t)item->ndim * sizeof *shape);
    shape[item->ndim - 1] *= 2;
    RETURN_IF_ERROR(quantized_shape_set(weight, item->ndim, shape));
    RETURN_IF_ERROR(set_scales(dequantizing, weight));
    return dequantize_take(dequantizing, weight, item, item->ndim, shape, NULL, NULL);
}

/* A scale goes with its weight. Scales of activations are no weights. */
static dcp_status drop_scale(struct dequantizing *dequantizing, const char *name, bool *drop)
{
    static const char *const ends[] = {".scale", ".qscale_weight", ".weight_scale"};
    struct convert_item weight;
    size_t stem = dequantize_stem(name, "_scale_inv");
    *drop =
        dequantize_stem(name, "activation_scale") > 0 || dequantize_stem(name, "input_scale") > 0;
    if (stem > 0) {
        *drop = dequantize_find(dequantizing, name, stem, "", DCP_DTYPE_NONE, &weight) &&
                is_coded(weight.stored);
        return *drop
                   ? DCP_OK
                   : dcp_error_set(DCP_ERR_FORMAT, "%s: there is no weight of 8 bits for it", name);
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !*drop; i++) {
        stem = dequantize_stem(name, ends[i]);
        *drop = stem > 0 &&
                dequantize_find(dequantizing, name, stem, WEIGHT_END, DCP_DTYPE_NONE, &weight) &&
                is_coded(weight.stored);
    }
    return DCP_OK;
}

/* Blocks are [experts, rows, blocks of a row, bytes], exponents the same without bytes. */
static bool fits_blocks(const struct convert_item *blocks, const struct convert_item *exponents)
{
    return blocks->ndim == 4 && exponents->ndim == 3 && blocks->shape[3] == MXFP4_BYTES &&
           exponents->stored == DCP_U8 &&
           memcmp(blocks->shape, exponents->shape, 3 * sizeof *blocks->shape) == 0 &&
           blocks->shape[2] <= INT64_MAX / GROUP;
}

static dcp_status take_mxfp4(struct dequantizing *dequantizing, const char *name, size_t stem,
                             struct convert_item *item)
{
    struct quantized_weight *weight;
    struct convert_item exponents;
    if (!dequantize_find(dequantizing, name, stem, "_scales", DCP_DTYPE_NONE, &exponents))
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: there are no %.*s_scales for it in any of the "
                             "files: without them the numbers mean nothing",
                             name, (int)stem, name);
    RETURN_IF_ERROR(dequantize_new(dequantizing, name, item, QUANTIZED_E2M1, &weight));
    if (!fits_blocks(&weight->weight, &exponents))
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: its shape is not that of its scales with %d "
                             "bytes for each",
                             name, (int)MXFP4_BYTES);
    weight->recipe.read = quantized_weight_read_swapped;
    weight->scale = exponents;
    weight->planes = item->shape[0];
    weight->rows = item->shape[1];
    weight->columns = item->shape[2] * GROUP;
    const int64_t shape[3] = {weight->planes, weight->columns, weight->rows};
    return dequantize_take(dequantizing, weight, item, 3, shape, "_blocks", "");
}

dcp_status dequantize_blocks(struct dequantizing *dequantizing, const char *name,
                             struct convert_item *item, bool *drop)
{
    struct convert_item blocks;
    size_t stem = dequantize_stem(name, "_blocks");
    if (stem > 0 && item->stored == DCP_U8)
        return take_mxfp4(dequantizing, name, stem, item);
    stem = dequantize_stem(name, "_scales");
    if (stem > 0 && item->stored == DCP_U8) {
        *drop = dequantize_find(dequantizing, name, stem, "_blocks", DCP_DTYPE_NONE, &blocks);
        return *drop ? DCP_OK
                     : dcp_error_set(DCP_ERR_FORMAT, "%s: there are no blocks for it", name);
    }
    if (is_float8(item->stored))
        return take_float8(dequantizing, name, item);
    if (item->stored == DCP_I8 && dequantize_stem(name, WEIGHT_END) > 0)
        return take_float4(dequantizing, name, item);
    return drop_scale(dequantizing, name, drop);
}
