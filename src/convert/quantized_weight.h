/* SPDX-License-Identifier: BSD-3-Clause */
/* A quantized weight, and the elements that it stands for: computed bit for bit as its reference
 * does, range by range. */
#ifndef CONVERT_QUANTIZED_WEIGHT_H
#define CONVERT_QUANTIZED_WEIGHT_H

#include "convert/convert_source.h"

/* How numbers are stored. */
enum quantized_code {
    QUANTIZED_E4M3,
    QUANTIZED_INT8,
    QUANTIZED_PACKED_INT, /* bit strings in int32, each row its own, lowest bit first */
    QUANTIZED_E2M1        /* two in a byte, the low half first */
};

struct quantized_weight {
    struct convert_recipe recipe;
    const char *name; /* of the stored weight, for messages */
    enum quantized_code code;
    unsigned bits;                     /* of a packed int: 1 to 8 */
    int64_t planes, rows, columns;     /* of the result, all leading dimensions in planes */
    int64_t block_rows, block_columns; /* that share a scale; at least 1 */
    int64_t scale_rows, scale_columns; /* of a plane */
    const int32_t *groups;             /* the column of scales of each column; NULL: in order */
    bool scale_is_exponent;            /* bytes b that mean 2^(b-127) */
    bool has_zero_point, packed_zero_point;
    bool divides; /* the scale by divisor, first */
    float divisor;
    dcp_dtype computed;                            /* every operation is rounded to it */
    struct convert_item weight, scale, zero_point; /* as they are stored; scales as float32 */
};

/* Reads elements of a weight whose fields are consistent: dcp_convert_read()'s way of an item with
 * this recipe. */
dcp_status quantized_weight_read(const struct convert_source *source,
                                 const struct convert_item *item, int64_t first, int64_t count,
                                 void *elements);
/* Of MXFP4 as gpt-oss stores it: planes, rows and columns are of what is stored, whose elements
 * are E2M1 with an exponent for 32 of a row; rows and columns are exchanged. */
dcp_status quantized_weight_read_swapped(const struct convert_source *source,
                                         const struct convert_item *item, int64_t first,
                                         int64_t count, void *elements);

/* The value of a code of four bits. */
float quantized_e2m1(unsigned code);
/* Rounds to a dtype. */
float quantized_round(dcp_dtype dtype, float value);
/* Stores a value as a dtype, DCP_BF16 or DCP_F32. */
void quantized_store(dcp_dtype dtype, float value, void *elements, int64_t index);

#endif
