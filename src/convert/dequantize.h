/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs quantized weights with their scales, by name over all of a source. */
#ifndef CONVERT_DEQUANTIZE_H
#define CONVERT_DEQUANTIZE_H

#include "convert/quantization_config.h"
#include "convert/quantized_weight.h"

/* What finds the parts of a weight. */
struct dequantizing {
    struct convert_source *source;
    struct quantization_config config;
    bool failed; /* a search, for memory: what it has not found may be there */
};

/* Makes weights of the dtype that the options want of all quantized ones, and takes their scales
 * out. DCP_ERR_FORMAT: one has no scale, a scale has no weight, or sizes do not fit;
 * DCP_ERR_UNSUPPORTED: another quantization, by its name; DCP_ERR_ARGUMENT: nothing is quantized.
 */
dcp_status convert_dequantize(struct convert_source *source);
/* DCP_ERR_UNSUPPORTED for what is quantized in a way that is only copied, by the method's name and
 * the first tensor; doing: what is not done. */
dcp_status convert_refuse_foreign(const struct convert_source *source, const char *doing);

/* Of each method: item, whose name in the source is `name`, becomes a weight, is taken out (*drop)
 * because another one needs it, or stays. */
dcp_status dequantize_blocks(struct dequantizing *dequantizing, const char *name,
                             struct convert_item *item, bool *drop);
dcp_status dequantize_compressed(struct dequantizing *dequantizing, const char *name,
                                 struct convert_item *item, bool *drop);

/* The tensor of the source whose name is `length` bytes and a suffix; dtype: as which it is read,
 * DCP_DTYPE_NONE: its own. False: there is none. */
bool dequantize_find(struct dequantizing *dequantizing, const char *name, size_t length,
                     const char *suffix, dcp_dtype dtype, struct convert_item *found);
/* The length of a name without a suffix; 0: it does not end in it. */
size_t dequantize_stem(const char *name, const char *suffix);
/* A weight in the arena, of what an item is stored as. */
dcp_status dequantize_new(struct dequantizing *dequantizing, const char *name,
                          const struct convert_item *item, enum quantized_code code,
                          struct quantized_weight **weight);
/* Puts the weight in the item's place, with this shape; ends of names: the stored one becomes the
 * other, NULL: it stays. */
dcp_status dequantize_take(struct dequantizing *dequantizing, const struct quantized_weight *weight,
                           struct convert_item *item, int32_t ndim, const int64_t *shape,
                           const char *stored_end, const char *end);

#endif
