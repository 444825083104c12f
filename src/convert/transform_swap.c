/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows and columns of matrices are exchanged: a row of the result is a line here, and has an entry
 * of each row of the input. The input is read in tiles: of all rows as many columns as fit, or,
 * where a line is longer than a tile, of some rows. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/convert_tiles.h"
#include "convert/transform_recipe.h"

/* Rows of so few bytes are read with all of their columns; and bytes that are read at once. */
enum { SHORT_ROW = 16 << 10, READ_BYTES = 256 << 10 };

struct swapped {
    struct convert_recipe recipe;
    struct convert_item input;
    int64_t rows, columns, inner;
    int32_t dimension; /* of the input that has the rows; -1: its shape does not tell */
    /* Of a tile; 0 rows: not even an entry fits. */
    int64_t tile_rows, tile_columns;
};

/* A box of a matrix. */
struct part {
    int64_t matrix, row, column;
    int64_t rows, columns;
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t parts_of(int64_t whole, int64_t part)
{
    return whole / part + (whole % part != 0);
}

/* ---- reading a part, as lines ---- */

/* Row by row, or several where all columns are wanted: what the input is made of says no more. */
static dcp_status read_rows(const struct convert_source *source, const struct swapped *swapped,
                            const struct part *part, unsigned char *place)
{
    size_t element = dcp_dtype_size(swapped->input.dtype), entry = (size_t)swapped->inner * element;
    size_t width = (size_t)part->columns * entry;
    bool whole = part->columns == swapped->columns;
    int64_t step = whole ? smaller(part->rows, 1 + (int64_t)(READ_BYTES / width)) : 1;
    unsigned char *space = memory_allocate_array((size_t)step, width);
    dcp_status status =
        space ? DCP_OK : error_no_memory((size_t)step * width, "columns to transpose");
    for (int64_t row = 0; row < part->rows && status == DCP_OK; row += step) {
        int64_t count = smaller(step, part->rows - row);
        int64_t first = (part->matrix * swapped->rows + part->row + row) * swapped->columns;
        status = convert_read(source, &swapped->input, (first + part->column) * swapped->inner,
                              count * part->columns * swapped->inner, space);
        for (int64_t i = 0; i < count * part->columns && status == DCP_OK; i++) {
            int64_t to = i % part->columns * part->rows + row + i / part->columns;
            memcpy(place + (size_t)to * entry, space + (size_t)i * entry, entry);
        }
    }
    memory_release(space);
    return status;
}

/* The same as one box of the stored tensor, whose elements are placed by strides. */
static dcp_status read_box(const struct convert_source *source, const struct swapped *swapped,
                           const struct part *part, unsigned char *place)
{
    const struct convert_item *input = &swapped->input;
    const dcp_read_options options = {.convert = input->dtype != input->stored};
    dcp_tensor box = {.dtype = input->dtype,
                      .ndim = input->ndim,
                      .data = place,
                      .sharded = true,
                      .strided = true};
    int32_t rows = swapped->dimension, columns = rows + 1;
    int64_t stride = 1, matrix = part->matrix;
    memcpy(box.global_shape, input->shape, (size_t)input->ndim * sizeof *input->shape);
    for (int32_t d = input->ndim - 1; d > columns; d--) {
        box.sizes[d] = input->shape[d];
        box.strides[d] = stride;
        stride *= input->shape[d];
    }
    box.offsets[columns] = part->column;
    box.sizes[columns] = part->columns;
    box.strides[columns] = part->rows * swapped->inner;
    box.offsets[rows] = part->row;
    box.sizes[rows] = part->rows;
    box.strides[rows] = swapped->inner;
    for (int32_t d = rows - 1; d >= 0; d--) {
        box.offsets[d] = matrix % input->shape[d];
        matrix /= input->shape[d];
        box.sizes[d] = 1;
        box.strides[d] = part->columns * part->rows * swapped->inner;
    }
    return dcp_checkpoint_read_tensor(source->checkpoint, input->entry, &box, &options);
}

static dcp_status read_part(const struct convert_source *source, const struct swapped *swapped,
                            const struct part *part, unsigned char *place)
{
    bool stored = !source->parts && !swapped->input.recipe && swapped->dimension >= 0;
    return (stored ? read_box : read_rows)(source, swapped, part, place);
}

/* ---- tiles ---- */

struct tile_of {
    const struct convert_source *source;
    const struct swapped *swapped;
};

static struct part tile_part(const struct swapped *swapped, int64_t number)
{
    int64_t down = parts_of(swapped->rows, swapped->tile_rows);
    int64_t across = parts_of(swapped->columns, swapped->tile_columns);
    int64_t column = number % across * swapped->tile_columns;
    int64_t row = number / across % down * swapped->tile_rows;
    return (struct part){.matrix = number / across / down,
                         .row = row,
                         .column = column,
                         .rows = smaller(swapped->tile_rows, swapped->rows - row),
                         .columns = smaller(swapped->tile_columns, swapped->columns - column)};
}

static dcp_status load_tile(void *context, int64_t number, unsigned char *bytes)
{
    const struct tile_of *of = context;
    const struct part part = tile_part(of->swapped, number);
    return read_part(of->source, of->swapped, &part, bytes);
}

/* A tile that no place is free for. */
static dcp_status read_apart(struct tile_of *of, int64_t number, size_t offset, size_t size,
                             unsigned char *place)
{
    unsigned char *space = memory_allocate(CONVERT_TILE);
    if (!space)
        return error_no_memory(CONVERT_TILE, "columns to transpose");
    dcp_status status = load_tile(of, number, space);
    if (status == DCP_OK)
        memcpy(place, space + offset, size);
    memory_release(space);
    return status;
}

/* Elements of the result, as far as one tile has them one after another; *taken: how many. */
static dcp_status read_tile(const struct convert_source *source, const struct swapped *swapped,
                            int64_t matrix, int64_t at, int64_t count, unsigned char *place,
                            int64_t *taken)
{
    struct tile_of of = {source, swapped};
    size_t element = dcp_dtype_size(swapped->input.dtype);
    int64_t line = swapped->rows * swapped->inner, column = at / line, within = at % line;
    int64_t row = within / swapped->inner, inside = within % swapped->inner;
    int64_t down = parts_of(swapped->rows, swapped->tile_rows);
    int64_t across = parts_of(swapped->columns, swapped->tile_columns);
    int64_t number =
        (matrix * down + row / swapped->tile_rows) * across + column / swapped->tile_columns;
    const struct part part = tile_part(swapped, number);
    int64_t begin = ((column - part.column) * part.rows + row - part.row) * swapped->inner + inside;
    int64_t lines = down == 1 ? part.columns : column - part.column + 1;
    struct convert_tile *tile;
    const unsigned char *bytes;
    *taken = smaller(count, lines * part.rows * swapped->inner - begin);
    size_t offset = (size_t)begin * element, size = (size_t)*taken * element;
    RETURN_IF_ERROR(
        convert_tiles_take(source->tiles, swapped, number, load_tile, &of, &tile, &bytes));
    if (!tile)
        return read_apart(&of, number, offset, size, place);
    memcpy(place, bytes + offset, size);
    convert_tiles_give(source->tiles, tile);
    return DCP_OK;
}

/* Of an entry that is larger than a tile: it lies in the input as in the result. */
static dcp_status read_entry(const struct convert_source *source, const struct swapped *swapped,
                             int64_t matrix, int64_t at, int64_t count, unsigned char *place,
                             int64_t *taken)
{
    int64_t line = swapped->rows * swapped->inner, column = at / line, within = at % line;
    int64_t row = within / swapped->inner, inside = within % swapped->inner;
    int64_t first = (matrix * swapped->rows + row) * swapped->columns + column;
    *taken = smaller(count, swapped->inner - inside);
    return convert_read(source, &swapped->input, first * swapped->inner + inside, *taken, place);
}

static dcp_status read_swapped(const struct convert_source *source, const struct convert_item *item,
                               int64_t first, int64_t count, void *elements)
{
    const struct swapped *swapped = (const struct swapped *)item->recipe;
    int64_t size = swapped->rows * swapped->columns * swapped->inner, taken = 0;
    size_t element = dcp_dtype_size(item->dtype);
    unsigned char *place = elements;
    for (; count > 0; first += taken, count -= taken, place += (size_t)taken * element) {
        int64_t matrix = first / size, at = first % size;
        RETURN_IF_ERROR((swapped->tile_rows > 0 ? read_tile : read_entry)(
            source, swapped, matrix, at, smaller(count, size - at), place, &taken));
    }
    return DCP_OK;
}

/* ---- making one ---- */

/* The dimension that has the rows, if the next one has the columns. */
static int32_t find_dimension(const struct convert_item *input, int64_t rows, int64_t columns,
                              int64_t inner)
{
    int64_t behind = 1;
    for (int32_t d = input->ndim - 1; d > 0; d--) {
        if (behind == inner && input->shape[d] == columns && input->shape[d - 1] == rows)
            return d - 1;
        behind *= input->shape[d];
    }
    return -1;
}

static void choose_tiles(struct swapped *swapped)
{
    int64_t entry = swapped->inner * (int64_t)dcp_dtype_size(swapped->input.dtype);
    if (entry == 0 || swapped->rows == 0 || swapped->columns == 0)
        return; /* nothing is read */
    int64_t fit = (int64_t)CONVERT_TILE / entry;
    if (fit >= swapped->rows) {
        swapped->tile_rows = swapped->rows;
        swapped->tile_columns = smaller(fit / swapped->rows, swapped->columns);
    } else {
        bool is_short = swapped->columns <= SHORT_ROW / entry;
        swapped->tile_columns = is_short ? swapped->columns : 1;
        swapped->tile_rows = fit / swapped->tile_columns;
    }
}

dcp_status transform_swap(struct arena *arena, const struct convert_item *input, int64_t rows,
                          int64_t columns, int64_t inner, struct convert_item *item)
{
    struct swapped *swapped = arena_allocate(arena, sizeof *swapped);
    if (!swapped)
        return error_no_memory(sizeof *swapped, "what tensors are made of");
    *swapped = (struct swapped){.recipe = {.read = read_swapped},
                                .input = *input,
                                .rows = rows,
                                .columns = columns,
                                .inner = inner,
                                .dimension = find_dimension(input, rows, columns, inner)};
    choose_tiles(swapped);
    item->recipe = &swapped->recipe;
    item->stored = item->dtype;
    return DCP_OK;
}
