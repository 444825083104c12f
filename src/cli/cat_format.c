/* SPDX-License-Identifier: BSD-3-Clause */
/* The forms in which dcp cat writes a tensor. */
#include <inttypes.h>

#include "cat.h"
#include "element.h"

static const char *npy_dtype(dcp_dtype dtype)
{
    static const struct {
        dcp_dtype dtype;
        const char *name;
    } known[] = {{DCP_F64, "<f8"}, {DCP_F32, "<f4"},  {DCP_F16, "<f2"}, {DCP_I64, "<i8"},
                 {DCP_I32, "<i4"}, {DCP_I16, "<i2"},  {DCP_I8, "|i1"},  {DCP_U64, "<u8"},
                 {DCP_U32, "<u4"}, {DCP_U16, "<u2"},  {DCP_U8, "|u1"},  {DCP_BOOL, "|b1"},
                 {DCP_C64, "<c8"}, {DCP_C128, "<c16"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].dtype == dtype)
            return known[i].name;
    return NULL;
}

/* Version 1.0: a magic, a length, and a Python dict that is padded to a multiple of 64 bytes.
 * Source: numpy.lib.format. */
bool npy_print_head(const struct slice *slice)
{
    enum { MOST = 64 * 24 + 128 };
    char text[MOST];
    const dcp_tensor *box = &slice->walk.box;
    const char *dtype = npy_dtype(box->dtype);
    int kept = 0;
    if (!dtype)
        return false;
    size_t at = (size_t)snprintf(text, sizeof text,
                                 "{'descr': '%s', 'fortran_order': False, 'shape': (", dtype);
    for (int32_t d = 0; d < box->ndim; d++)
        if (!slice->dropped[d])
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%" PRId64,
                                   kept++ > 0 ? ", " : "", box->sizes[d]);
    at += (size_t)snprintf(text + at, sizeof text - at, "%s), }", kept == 1 ? "," : "");
    while ((10 + at + 1) % 64 != 0)
        text[at++] = ' ';
    text[at++] = '\n';
    fwrite("\x93NUMPY\x01\x00", 1, 8, stdout);
    putchar((int)(at & 255));
    putchar((int)(at >> 8));
    fwrite(text, 1, at, stdout);
    return true;
}

/* Elements of a row, and of the rows before an empty line, where the slice has such dimensions. */
static void row_lengths(const struct slice *slice, int64_t *row, int64_t *rows)
{
    const dcp_tensor *box = &slice->walk.box;
    int found = 0;
    *row = *rows = 0;
    for (int32_t d = box->ndim - 1; d >= 0 && found < 2; d--) {
        if (slice->dropped[d])
            continue;
        *(found == 0 ? row : rows) = (found == 0 ? 1 : *row) * box->sizes[d];
        found++;
    }
}

void text_print(const struct slice *slice, const dcp_tensor *block, int64_t before)
{
    dcp_dtype dtype = slice->walk.box.dtype;
    int numbers = element_numbers(dtype);
    int64_t row, rows, count = walk_elements(block);
    row_lengths(slice, &row, &rows);
    for (int64_t i = 0; i < count; i++) {
        int64_t place = before + i;
        if (rows > 0 && place > 0 && place % rows == 0)
            putchar('\n');
        for (int n = 0; n < numbers; n++) {
            if (n > 0)
                putchar(' ');
            element_print(dtype, block->data, i * numbers + n);
        }
        putchar(row == 0 || (place + 1) % row == 0 ? '\n' : ' ');
    }
}
