/* SPDX-License-Identifier: BSD-3-Clause */
/* Q8_0, bit for bit as the gguf package makes it: for 32 elements a scale in float16, and numbers
 * of 8 bits. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/gguf_tensors.h"
#include "state/small_float.h"

/* Elements and bytes of a block, and blocks that are made at once. */
enum { ELEMENTS = 32, BYTES = 34, BLOCKS = 1 << 12 };

struct quantized {
    struct convert_recipe recipe;
    struct convert_item input;
};

/* Half away from zero, unlike what is usual; by the scale before it was rounded. */
static int8_t round_away(float value)
{
    float magnitude = value < 0 ? -value : value;
    if (!(magnitude < 128)) /* no number: nothing is said of it */
        return 0;
    int whole = (int)magnitude;
    int rounded = whole + (int)(2 * (magnitude - (float)whole));
    rounded = rounded < INT8_MAX ? rounded : INT8_MAX;
    return (int8_t)(value < 0 ? -rounded : rounded);
}

static void make_block(const float *elements, unsigned char *block)
{
    float most = 0;
    for (int i = 0; i < ELEMENTS; i++)
        if (elements[i] > most || -elements[i] > most)
            most = elements[i] < 0 ? -elements[i] : elements[i];
    float scale = most / 127, inverse = scale == 0 ? 0 : 1 / scale;
    uint16_t stored = f16_from_f32(scale);
    memcpy(block, &stored, sizeof stored);
    for (int i = 0; i < ELEMENTS; i++)
        block[2 + i] = (unsigned char)round_away(elements[i] * inverse);
}

/* Blocks from a number on. */
static dcp_status read_blocks(const struct convert_source *source, const struct quantized *made,
                              int64_t block, int64_t count, float *elements, unsigned char *blocks)
{
    RETURN_IF_ERROR(
        convert_read(source, &made->input, block * ELEMENTS, count * ELEMENTS, elements));
    for (int64_t i = 0; i < count; i++)
        make_block(elements + i * ELEMENTS, blocks + i * BYTES);
    return DCP_OK;
}

/* first and count are bytes, which may begin and end within a block. */
static dcp_status read_quantized(const struct convert_source *source,
                                 const struct convert_item *item, int64_t first, int64_t count,
                                 void *bytes)
{
    const struct quantized *made = (const struct quantized *)item->recipe;
    float *elements = memory_allocate_array((size_t)BLOCKS * ELEMENTS, sizeof *elements);
    unsigned char *blocks = memory_allocate((size_t)BLOCKS * BYTES), *place = bytes;
    dcp_status status = elements && blocks
                            ? DCP_OK
                            : error_no_memory((size_t)BLOCKS * BYTES, "elements to quantize");
    while (count > 0 && status == DCP_OK) {
        int64_t block = first / BYTES, within = first % BYTES;
        int64_t needed = (within + count + BYTES - 1) / BYTES;
        int64_t taken = (needed < BLOCKS ? needed : BLOCKS) * BYTES - within;
        taken = taken < count ? taken : count;
        status = read_blocks(source, made, block, (within + taken + BYTES - 1) / BYTES, elements,
                             blocks);
        if (status == DCP_OK)
            memcpy(place, blocks + within, (size_t)taken);
        place += taken;
        first += taken;
        count -= taken;
    }
    memory_release(elements);
    memory_release(blocks);
    return status;
}

dcp_status gguf_quantize(struct arena *arena, const struct convert_item *input,
                         struct convert_item *item)
{
    struct quantized *made = arena_allocate(arena, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, item->name);
    *made = (struct quantized){{.read = read_quantized, .input = &made->input}, *input};
    item->recipe = &made->recipe;
    item->dtype = item->stored = DCP_U8;
    item->bytes = input->bytes / sizeof(float) / ELEMENTS * BYTES;
    return DCP_OK;
}
