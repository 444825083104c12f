/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/transform_recipe.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/copy.h"

/* Matrices that are read as a whole, and elements that are taken at once. */
#define MATRIX_BYTES ((uint64_t)4 << 20)
enum { PIECE = 1 << 18 };

struct made {
    struct convert_recipe recipe;
    struct convert_item *inputs;
    int64_t *starts;              /* of the inputs' blocks, and behind the last */
    size_t count;                 /* of inputs */
    int64_t offset, length;       /* slice */
    int64_t rows, columns, inner; /* swap */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The input that an element of a round is of: the last one that begins there or before. */
static size_t find_input(const struct made *made, int64_t at)
{
    size_t low = 0, high = made->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (made->starts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static dcp_status read_interleaved(const struct convert_source *source,
                                   const struct convert_item *item, int64_t first, int64_t count,
                                   void *elements)
{
    const struct made *made = (const struct made *)item->recipe;
    int64_t total = made->starts[made->count];
    size_t element = dcp_dtype_size(item->dtype);
    unsigned char *place = elements;
    while (count > 0) {
        int64_t round = first / total, at = first % total;
        size_t input = find_input(made, at);
        int64_t length = made->starts[input + 1] - made->starts[input];
        int64_t within = at - made->starts[input], taken = smaller(count, length - within);
        if (made->inputs[input].name)
            RETURN_IF_ERROR(
                convert_read(source, &made->inputs[input], round * length + within, taken, place));
        else
            memset(place, 0, (size_t)taken * element);
        place += (size_t)taken * element;
        first += taken;
        count -= taken;
    }
    return DCP_OK;
}

static dcp_status read_slice(const struct convert_source *source, const struct convert_item *item,
                             int64_t first, int64_t count, void *elements)
{
    const struct made *made = (const struct made *)item->recipe;
    size_t element = dcp_dtype_size(item->dtype);
    unsigned char *place = elements;
    while (count > 0) {
        int64_t round = first / made->length, within = first % made->length;
        int64_t taken = smaller(count, made->length - within);
        RETURN_IF_ERROR(convert_read(
            source, made->inputs, round * made->starts[1] + made->offset + within, taken, place));
        place += (size_t)taken * element;
        first += taken;
        count -= taken;
    }
    return DCP_OK;
}

/* Elements of one matrix, from one that is read as a whole. */
static dcp_status swap_whole(const struct convert_source *source, const struct made *made,
                             int64_t matrix, int64_t at, int64_t count, size_t element,
                             unsigned char *place)
{
    int64_t size = made->rows * made->columns * made->inner;
    unsigned char *space = memory_allocate_array((size_t)size, element);
    if (!space)
        return error_no_memory((size_t)size * element, "a matrix to transpose");
    dcp_status status = convert_read(source, made->inputs, matrix * size, size, space);
    for (int64_t end = at + count, taken; at < end && status == DCP_OK; at += taken) {
        int64_t entry = at / made->inner, within = at % made->inner;
        int64_t row = entry % made->rows, column = entry / made->rows;
        taken = smaller(end - at, made->inner - within);
        memcpy(place,
               space + (size_t)((row * made->columns + column) * made->inner + within) * element,
               (size_t)taken * element);
        place += (size_t)taken * element;
    }
    memory_release(space);
    return status;
}

/* Whole lines of the result: some columns of each row, which are scattered. */
static dcp_status swap_lines(const struct convert_source *source, const struct made *made,
                             int64_t begin, int64_t column, int64_t lines, size_t element,
                             unsigned char *place)
{
    int64_t width = lines * made->inner, line = made->rows * made->inner;
    size_t entry = (size_t)made->inner * element;
    unsigned char *space = memory_allocate_array((size_t)width, element);
    dcp_status status =
        space ? DCP_OK : error_no_memory((size_t)width * element, "columns to transpose");
    for (int64_t row = 0; row < made->rows && status == DCP_OK; row++) {
        status = convert_read(source, made->inputs,
                              begin + (row * made->columns + column) * made->inner, width, space);
        for (int64_t i = 0; i < lines && status == DCP_OK; i++)
            memcpy(place + (size_t)(i * line) * element + (size_t)row * entry,
                   space + (size_t)i * entry, entry);
    }
    memory_release(space);
    return status;
}

/* Takes what it can of a large matrix: whole lines, or a part of an entry; *taken: how many. */
static dcp_status swap_part(const struct convert_source *source, const struct made *made,
                            int64_t matrix, int64_t at, int64_t count, size_t element,
                            unsigned char *place, int64_t *taken)
{
    int64_t line = made->rows * made->inner, begin = matrix * line * made->columns;
    int64_t column = at / line, within = at % line;
    int64_t lines = smaller(count, PIECE) / line;
    if (within == 0 && lines > 0) {
        lines = smaller(lines, made->columns - column);
        *taken = lines * line;
        return swap_lines(source, made, begin, column, lines, element, place);
    }
    int64_t row = within / made->inner, inside = within % made->inner;
    *taken = smaller(count, made->inner - inside);
    return convert_read(source, made->inputs,
                        begin + (row * made->columns + column) * made->inner + inside, *taken,
                        place);
}

static dcp_status read_swapped(const struct convert_source *source, const struct convert_item *item,
                               int64_t first, int64_t count, void *elements)
{
    const struct made *made = (const struct made *)item->recipe;
    int64_t size = made->rows * made->columns * made->inner, taken;
    size_t element = dcp_dtype_size(item->dtype);
    unsigned char *place = elements;
    for (; count > 0; first += taken, count -= taken, place += (size_t)taken * element) {
        int64_t matrix = first / size, at = first % size;
        taken = smaller(count, size - at);
        if ((uint64_t)size * element <= MATRIX_BYTES)
            RETURN_IF_ERROR(swap_whole(source, made, matrix, at, taken, element, place));
        else
            RETURN_IF_ERROR(swap_part(source, made, matrix, at, taken, element, place, &taken));
    }
    return DCP_OK;
}

static dcp_status read_cast(const struct convert_source *source, const struct convert_item *item,
                            int64_t first, int64_t count, void *elements)
{
    const struct made *made = (const struct made *)item->recipe;
    dcp_dtype from = made->inputs->dtype;
    int64_t from_stride = 1, to_stride = 1;
    void *space = memory_allocate_array((size_t)smaller(count, PIECE), dcp_dtype_size(from));
    unsigned char *place = elements;
    dcp_status status = space ? DCP_OK : error_no_memory(PIECE, "elements to convert");
    for (int64_t taken; count > 0 && status == DCP_OK; first += taken, count -= taken) {
        taken = smaller(count, PIECE);
        status = convert_read(source, made->inputs, first, taken, space);
        if (status == DCP_OK)
            copy_convert(1, &taken, from, space, &from_stride, item->dtype, place, &to_stride);
        place += (size_t)taken * dcp_dtype_size(item->dtype);
    }
    memory_release(space);
    return status;
}

static dcp_status make(struct arena *arena, const struct convert_item *inputs,
                       const int64_t *lengths, size_t count, struct convert_item *item,
                       struct made **result)
{
    struct made *made = arena_allocate(arena, sizeof *made);
    struct convert_item *copies = arena_allocate_array(arena, count, sizeof *copies);
    int64_t *starts = arena_allocate_array(arena, count + 1, sizeof *starts);
    if (!made || !copies || !starts)
        return error_no_memory(count * sizeof *copies, "what tensors are made of");
    *made = (struct made){.inputs = copies, .starts = starts, .count = count};
    memcpy(copies, inputs, count * sizeof *inputs);
    starts[0] = 0;
    for (size_t i = 0; i < count; i++)
        if (!checked_add_i64(starts[i], lengths[i], &starts[i + 1]))
            return dcp_error_set(DCP_ERR_SHAPE, "%s: its parts are too large", item->name);
    item->recipe = &made->recipe;
    item->stored = item->dtype;
    *result = made;
    return DCP_OK;
}

dcp_status transform_interleave(struct arena *arena, const struct convert_item *inputs,
                                const int64_t *lengths, size_t count, struct convert_item *item)
{
    struct made *made;
    RETURN_IF_ERROR(make(arena, inputs, lengths, count, item, &made));
    made->recipe.read = read_interleaved;
    return DCP_OK;
}

dcp_status transform_slice(struct arena *arena, const struct convert_item *input, int64_t total,
                           int64_t offset, int64_t length, struct convert_item *item)
{
    struct made *made;
    RETURN_IF_ERROR(make(arena, input, &total, 1, item, &made));
    made->recipe.read = read_slice;
    made->offset = offset;
    made->length = length;
    return DCP_OK;
}

dcp_status transform_swap(struct arena *arena, const struct convert_item *input, int64_t rows,
                          int64_t columns, int64_t inner, struct convert_item *item)
{
    const int64_t nothing = 0;
    struct made *made;
    RETURN_IF_ERROR(make(arena, input, &nothing, 1, item, &made));
    made->recipe.read = read_swapped;
    made->rows = rows;
    made->columns = columns;
    made->inner = inner;
    return DCP_OK;
}

dcp_status transform_cast(struct arena *arena, const struct convert_item *input, dcp_dtype dtype,
                          struct convert_item *item)
{
    const int64_t nothing = 0;
    struct made *made;
    item->dtype = dtype;
    RETURN_IF_ERROR(make(arena, input, &nothing, 1, item, &made));
    made->recipe.read = read_cast;
    return DCP_OK;
}
