/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/quantized_weight.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "state/small_float.h"

/* Elements that are computed at once, and those of a row that are decoded at once. */
enum { PIECE = 1 << 18, STRIP = 256 };

/* What one piece is computed of: rows of a plane, all of their columns if there are several. */
struct piece {
    const struct quantized_weight *weight;
    int64_t plane, first, count; /* in the plane's elements */
    int64_t row_begin, row_end, column_begin, column_end;
    int64_t scale_row, scale_row_count, scale_column, scale_column_count;
    unsigned char *codes;
    int64_t code_first; /* byte, word or element of the plane that codes begins with */
    float *scales;
    unsigned char *zeros; /* int8, or words */
    int64_t zero_row;     /* of the words */
};

float quantized_e2m1(unsigned code)
{
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -values[code & 7] : values[code & 7];
}

float quantized_round(dcp_dtype dtype, float value)
{
    if (dtype == DCP_BF16)
        return bf16_to_f32(bf16_from_f32(value));
    return dtype == DCP_F16 ? f16_to_f32(f16_from_f32(value)) : value;
}

void quantized_store(dcp_dtype dtype, float value, void *elements, int64_t index)
{
    if (dtype == DCP_BF16)
        ((uint16_t *)elements)[index] = bf16_from_f32(value);
    else
        ((float *)elements)[index] = value;
}

static int64_t words_of_row(const struct quantized_weight *weight)
{
    return (weight->columns * weight->bits + 31) / 32;
}

/* ---- reading what is stored ---- */

/* Rows and columns of a stored matrix that begins at an element of an item. */
static dcp_status read_matrix(const struct convert_source *source, const struct convert_item *item,
                              int64_t begin, int64_t width, const int64_t rows[2],
                              const int64_t columns[2], void *elements)
{
    size_t element = dcp_dtype_size(item->dtype);
    int64_t taken = columns[1];
    if (taken == width)
        return convert_read(source, item, begin + rows[0] * width, rows[1] * width, elements);
    for (int64_t row = 0; row < rows[1]; row++)
        RETURN_IF_ERROR(convert_read(source, item, begin + (rows[0] + row) * width + columns[0],
                                     taken,
                                     (unsigned char *)elements + (size_t)(row * taken) * element));
    return DCP_OK;
}

static dcp_status take_memory(int64_t count, size_t element, void *where)
{
    void *memory = memory_allocate_array((size_t)count, element);
    memcpy(where, &memory, sizeof memory);
    return memory ? DCP_OK : error_no_memory((size_t)count * element, "elements to dequantize");
}

/* The range of the weight's stored elements that the piece needs. */
static void find_codes(const struct piece *piece, int64_t *first, int64_t *count, int64_t *plane)
{
    const struct quantized_weight *weight = piece->weight;
    int64_t last = piece->first + piece->count - 1, width;
    *first = piece->first;
    *plane = weight->rows * weight->columns;
    if (weight->code == QUANTIZED_E2M1) {
        *first /= 2;
        last /= 2;
        *plane /= 2; /* columns are even */
    } else if (weight->code == QUANTIZED_PACKED_INT) {
        width = words_of_row(weight);
        *first = piece->row_begin * width + piece->column_begin * weight->bits / 32;
        last = (piece->row_end - 1) * width + (piece->column_end * weight->bits - 1) / 32;
        *plane = weight->rows * width;
    }
    *count = last - *first + 1;
}

static dcp_status read_codes(const struct convert_source *source, struct piece *piece)
{
    const struct convert_item *item = &piece->weight->weight;
    int64_t count, plane;
    find_codes(piece, &piece->code_first, &count, &plane);
    RETURN_IF_ERROR(take_memory(count, dcp_dtype_size(item->dtype), (void *)&piece->codes));
    return convert_read(source, item, piece->plane * plane + piece->code_first, count,
                        piece->codes);
}

/* Bytes that mean powers of two become these, in place from the last one on. */
static void raise_exponents(float *scales, int64_t count)
{
    unsigned char *bytes = (unsigned char *)scales;
    for (int64_t i = count; i-- > 0;)
        scales[i] = ldexpf(1, (int)bytes[i] - 127);
}

static dcp_status read_scales(const struct convert_source *source, struct piece *piece)
{
    const struct quantized_weight *weight = piece->weight;
    const int64_t rows[2] = {piece->scale_row, piece->scale_row_count};
    const int64_t columns[2] = {piece->scale_column, piece->scale_column_count};
    int64_t count = rows[1] * columns[1];
    RETURN_IF_ERROR(take_memory(count, sizeof *piece->scales, (void *)&piece->scales));
    RETURN_IF_ERROR(read_matrix(source, &weight->scale,
                                piece->plane * weight->scale_rows * weight->scale_columns,
                                weight->scale_columns, rows, columns, piece->scales));
    if (weight->scale_is_exponent)
        raise_exponents(piece->scales, count);
    for (int64_t i = 0; i < count && weight->divides; i++)
        piece->scales[i] /= weight->divisor;
    return DCP_OK;
}

/* Zero points are as many as scales; packed ones are bit strings along the rows. */
static dcp_status read_zeros(const struct convert_source *source, struct piece *piece)
{
    const struct quantized_weight *weight = piece->weight;
    const int64_t columns[2] = {piece->scale_column, piece->scale_column_count};
    int64_t rows[2] = {piece->scale_row, piece->scale_row_count};
    if (!weight->has_zero_point)
        return DCP_OK;
    if (weight->packed_zero_point) {
        int64_t last = ((rows[0] + rows[1]) * weight->bits - 1) / 32;
        rows[0] = rows[0] * weight->bits / 32;
        rows[1] = last - rows[0] + 1;
    }
    piece->zero_row = rows[0];
    RETURN_IF_ERROR(take_memory(rows[1] * columns[1], dcp_dtype_size(weight->zero_point.dtype),
                                (void *)&piece->zeros));
    return read_matrix(source, &weight->zero_point, 0, weight->scale_columns, rows, columns,
                       piece->zeros);
}

/* ---- computing ---- */

static uint32_t word_at(const unsigned char *words, int64_t index)
{
    uint32_t word;
    memcpy(&word, words + 4 * index, sizeof word);
    return word;
}

/* Bits of a string whose words lie `step` apart. */
static int packed_bits(const unsigned char *words, int64_t step, int64_t bit, unsigned bits)
{
    unsigned shift = (unsigned)(bit % 32);
    uint64_t value = word_at(words, bit / 32 * step);
    if (shift + bits > 32)
        value |= (uint64_t)word_at(words, (bit / 32 + 1) * step) << 32;
    return (int)(value >> shift & ((1u << bits) - 1));
}

static int packed_at(const struct piece *piece, int64_t row, int64_t column)
{
    const struct quantized_weight *weight = piece->weight;
    int64_t begin = row * words_of_row(weight) - piece->code_first;
    int64_t bit = 32 * begin + column * weight->bits;
    return packed_bits(piece->codes, 1, bit, weight->bits);
}

/* The column of scales that a column belongs to. */
static int64_t group_of(const struct quantized_weight *weight, int64_t column)
{
    return weight->groups ? weight->groups[column] : column / weight->block_columns;
}

/* What is subtracted from the numbers of a block. */
static int zero_at(const struct piece *piece, int64_t row, int64_t column)
{
    const struct quantized_weight *weight = piece->weight;
    int64_t scale_row = row / weight->block_rows;
    int64_t scale_column = group_of(weight, column) - piece->scale_column;
    int64_t width = piece->scale_column_count;
    if (!weight->has_zero_point) /* packed numbers are stored without a sign */
        return weight->code == QUANTIZED_PACKED_INT ? 1 << (weight->bits - 1) : 0;
    if (weight->packed_zero_point)
        return packed_bits(piece->zeros + 4 * scale_column, width,
                           scale_row * weight->bits - 32 * piece->zero_row, weight->bits);
    return ((const int8_t *)piece->zeros)[(scale_row - piece->scale_row) * width + scale_column];
}

static void decode(const struct piece *piece, int64_t row, int64_t column, int64_t count,
                   float *values)
{
    const struct quantized_weight *weight = piece->weight;
    int64_t at = row * weight->columns + column;
    int zero = zero_at(piece, row, column);
    for (int64_t i = 0; i < count; i++, at++) {
        switch (weight->code) {
        case QUANTIZED_E4M3:
            values[i] = e4m3fn_to_f32(piece->codes[at - piece->code_first]);
            break;
        case QUANTIZED_INT8:
            values[i] = (float)(((const int8_t *)piece->codes)[at - piece->code_first] - zero);
            break;
        case QUANTIZED_PACKED_INT:
            values[i] = (float)(packed_at(piece, row, column + i) - zero);
            break;
        case QUANTIZED_E2M1:
            values[i] =
                quantized_e2m1(piece->codes[at / 2 - piece->code_first] >> (at % 2 ? 4 : 0) & 15);
            break;
        }
    }
}

static float scale_at(const struct piece *piece, int64_t row, int64_t column)
{
    const struct quantized_weight *weight = piece->weight;
    return piece->scales[(row / weight->block_rows - piece->scale_row) * piece->scale_column_count +
                         group_of(weight, column) - piece->scale_column];
}

/* How many columns from one on have its scale, as far as is easily known. */
static int64_t alike(const struct quantized_weight *weight, int64_t column)
{
    return weight->groups ? 1 : weight->block_columns - column % weight->block_columns;
}

/* Columns of one row that share a scale. */
static void compute_strip(const struct piece *piece, int64_t row, int64_t column, int64_t count,
                          dcp_dtype dtype, void *elements, int64_t index)
{
    float values[STRIP], scale = scale_at(piece, row, column);
    dcp_dtype computed = piece->weight->computed;
    decode(piece, row, column, count, values);
    for (int64_t i = 0; i < count; i++)
        quantized_store(dtype,
                        quantized_round(computed, quantized_round(computed, values[i]) * scale),
                        elements, index + i);
}

static void compute(const struct piece *piece, dcp_dtype dtype, void *elements)
{
    const struct quantized_weight *weight = piece->weight;
    int64_t end = piece->first + piece->count, strip;
    for (int64_t at = piece->first; at < end; at += strip) {
        int64_t row = at / weight->columns, column = at % weight->columns;
        strip = alike(weight, column);
        if (strip > weight->columns - column)
            strip = weight->columns - column;
        if (strip > STRIP)
            strip = STRIP;
        if (strip > end - at)
            strip = end - at;
        compute_strip(piece, row, column, strip, dtype, elements, at - piece->first);
    }
}

/* Says which rows and columns of scales the piece needs. */
static void place_piece(struct piece *piece)
{
    const struct quantized_weight *weight = piece->weight;
    int64_t last = piece->first + piece->count - 1;
    piece->row_begin = piece->first / weight->columns;
    piece->row_end = last / weight->columns + 1;
    bool one = piece->row_end - piece->row_begin == 1;
    piece->column_begin = one ? piece->first % weight->columns : 0;
    piece->column_end = one ? last % weight->columns + 1 : weight->columns;
    piece->scale_row = piece->row_begin / weight->block_rows;
    piece->scale_row_count = (piece->row_end - 1) / weight->block_rows + 1 - piece->scale_row;
    if (weight->groups) {
        piece->scale_column_count = weight->scale_columns;
        return;
    }
    piece->scale_column = piece->column_begin / weight->block_columns;
    piece->scale_column_count =
        (piece->column_end - 1) / weight->block_columns + 1 - piece->scale_column;
}

static dcp_status read_piece(const struct convert_source *source, struct piece *piece,
                             dcp_dtype dtype, void *elements)
{
    place_piece(piece);
    dcp_status status = read_codes(source, piece);
    if (status == DCP_OK)
        status = read_scales(source, piece);
    if (status == DCP_OK)
        status = read_zeros(source, piece);
    if (status == DCP_OK)
        compute(piece, dtype, elements);
    memory_release(piece->codes);
    memory_release(piece->scales);
    memory_release(piece->zeros);
    return status;
}

dcp_status quantized_weight_read(const struct convert_source *source,
                                 const struct convert_item *item, int64_t first, int64_t count,
                                 void *elements)
{
    const struct quantized_weight *weight = (const struct quantized_weight *)item->recipe;
    int64_t plane = weight->rows * weight->columns;
    unsigned char *place = elements;
    while (count > 0) {
        struct piece piece = {.weight = weight, .plane = first / plane, .first = first % plane};
        piece.count = plane - piece.first;
        if (piece.count > count)
            piece.count = count;
        if (piece.count > PIECE)
            piece.count = PIECE;
        RETURN_IF_ERROR(read_piece(source, &piece, item->dtype, place));
        place += (size_t)piece.count * dcp_dtype_size(item->dtype);
        first += piece.count;
        count -= piece.count;
    }
    return DCP_OK;
}
