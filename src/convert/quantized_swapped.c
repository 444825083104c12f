/* SPDX-License-Identifier: BSD-3-Clause */
/* MXFP4 as gpt-oss stores it: blocks of 32 of a row, each 16 bytes with a byte of exponent; models
 * have rows and columns exchanged. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/quantized_weight.h"

enum { BLOCK = 32, BLOCK_BYTES = 16, PIECE = 1 << 20, ROWS_MAX = 1 << 16 };

/* A run of the result: whole lines of it (columns of what is stored), or a part of one. */
struct run {
    int64_t plane;
    int64_t line, line_count;     /* columns of what is stored */
    int64_t row_begin, row_count; /* rows of it */
    int64_t block, block_count;
    unsigned char *codes, *exponents;
};

/* Reads blocks of rows of a plane; bytes: of the innermost dimension, 0 if there is none. */
static dcp_status read_blocks(const struct convert_source *source, const struct convert_item *item,
                              const struct run *run, unsigned char *elements)
{
    dcp_tensor box = {.dtype = DCP_U8, .ndim = item->ndim, .sharded = true, .data = elements};
    for (int32_t d = 0; d < item->ndim; d++)
        box.global_shape[d] = box.sizes[d] = item->shape[d];
    box.offsets[0] = run->plane;
    box.sizes[0] = 1;
    box.offsets[1] = run->row_begin;
    box.sizes[1] = run->row_count;
    box.offsets[2] = run->block;
    box.sizes[2] = run->block_count;
    return dcp_checkpoint_read_tensor(source->checkpoint, item->entry, &box, NULL);
}

/* By arithmetic of exponents: no power of two is formed that is too large by itself. */
static void compute(const struct run *run, dcp_dtype dtype, void *elements)
{
    int64_t index = 0;
    for (int64_t line = run->line; line < run->line + run->line_count; line++)
        for (int64_t row = 0; row < run->row_count; row++, index++) {
            int64_t block = row * run->block_count + line / BLOCK - run->block;
            unsigned pair = run->codes[block * BLOCK_BYTES + line % BLOCK / 2];
            unsigned code = line % 2 ? pair >> 4 : pair & 15;
            float value = ldexpf(quantized_e2m1(code), (int)run->exponents[block] - 127);
            quantized_store(dtype, value, elements, index);
        }
}

static dcp_status read_run(const struct convert_source *source, const struct convert_item *item,
                           struct run *run, void *elements)
{
    const struct quantized_weight *weight = (const struct quantized_weight *)item->recipe;
    run->block = run->line / BLOCK;
    run->block_count = (run->line + run->line_count - 1) / BLOCK + 1 - run->block;
    size_t blocks = (size_t)(run->row_count * run->block_count);
    run->codes = memory_allocate_array(blocks, BLOCK_BYTES);
    run->exponents = memory_allocate_array(blocks, 1);
    dcp_status status = run->codes && run->exponents
                            ? DCP_OK
                            : error_no_memory(blocks * BLOCK_BYTES, "elements to dequantize");
    if (status == DCP_OK)
        status = read_blocks(source, &weight->weight, run, run->codes);
    if (status == DCP_OK)
        status = read_blocks(source, &weight->scale, run, run->exponents);
    if (status == DCP_OK)
        compute(run, item->dtype, elements);
    memory_release(run->codes);
    memory_release(run->exponents);
    return status;
}

/* The run that begins at an element; returns how many it has. */
static int64_t take_run(const struct quantized_weight *weight, int64_t first, int64_t count,
                        struct run *run)
{
    int64_t plane = weight->rows * weight->columns, row = first % weight->rows;
    *run = (struct run){.plane = first / plane, .line = first % plane / weight->rows};
    int64_t lines = (count < PIECE ? count : PIECE) / weight->rows;
    if (row == 0 && lines > 0 && weight->rows <= ROWS_MAX) {
        run->line_count = lines < weight->columns - run->line ? lines : weight->columns - run->line;
        run->row_count = weight->rows;
        return run->line_count * run->row_count;
    }
    run->line_count = 1;
    run->row_begin = row;
    run->row_count = weight->rows - row < count ? weight->rows - row : count;
    if (run->row_count > PIECE / BLOCK)
        run->row_count = PIECE / BLOCK;
    return run->row_count;
}

dcp_status quantized_weight_read_swapped(const struct convert_source *source,
                                         const struct convert_item *item, int64_t first,
                                         int64_t count, void *elements)
{
    const struct quantized_weight *weight = (const struct quantized_weight *)item->recipe;
    unsigned char *place = elements;
    while (count > 0) {
        struct run run;
        int64_t taken = take_run(weight, first, count, &run);
        RETURN_IF_ERROR(read_run(source, item, &run, place));
        place += (size_t)taken * dcp_dtype_size(item->dtype);
        first += taken;
        count -= taken;
    }
    return DCP_OK;
}
