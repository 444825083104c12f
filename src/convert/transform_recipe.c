/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/transform_recipe.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/copy.h"

/* Elements that are converted at once. */
enum { PIECE = 1 << 18 };

struct made {
    struct convert_recipe recipe;
    struct convert_item *inputs;
    int64_t *starts;        /* of the inputs' blocks, and behind the last */
    size_t count;           /* of inputs */
    int64_t offset, length; /* slice */
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
    *made =
        (struct made){.recipe.input = copies, .inputs = copies, .starts = starts, .count = count};
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
    made->recipe.first = offset;
    made->offset = offset;
    made->length = length;
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
