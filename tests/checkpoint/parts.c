/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/parts.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/scratch.h"

double parts_value(const struct part *part, int tensor, int64_t row, int64_t column)
{
    return (double)((tensor * part->shape[0] + row) * part->shape[1] + column);
}

static void add_tensor(dcp_state *root, int index, const struct part *part, void *data)
{
    char name[16];
    const dcp_tensor tensor = {.dtype = part->dtype,
                               .sharded = true,
                               .ndim = 2,
                               .global_shape = {part->shape[0], part->shape[1]},
                               .offsets = {part->offsets[0], part->offsets[1]},
                               .sizes = {part->sizes[0], part->sizes[1]},
                               .data = data};
    snprintf(name, sizeof name, "t%d", index);
    dcp_state_tensor(root, name, &tensor);
}

bool parts_save(const char *path, const struct part *part, const dcp_save_options *options)
{
    const int64_t size = part->shape[0] * part->shape[1], elements = part->end * size;
    float *data = malloc(sizeof *data * (size_t)elements);
    const struct part whole = {.shape = {part->shape[0], part->shape[1]},
                               .sizes = {part->shape[0], part->shape[1]},
                               .dtype = DCP_F32};
    dcp_state *root = dcp_state_new();
    assert_non_null(data);
    for (int64_t i = 0; i < elements; i++)
        data[i] = (float)i;
    for (int t = 0; t < part->end; t++)
        add_tensor(root, t, &whole, data + t * size);
    dcp_status status = dcp_save(root, path, options);
    if (status != DCP_ERR_UNSUPPORTED)
        assert_int_equal(status, DCP_OK);
    dcp_state_free(root);
    free(data);
    return status == DCP_OK;
}

static void check_values(const struct part *part, const void *data)
{
    const float *singles = data;
    const double *doubles = data;
    size_t at = 0;
    for (int t = part->first; t < part->end; t++)
        for (int64_t row = 0; row < part->sizes[0]; row++)
            for (int64_t column = 0; column < part->sizes[1]; column++, at++) {
                double found = part->dtype == DCP_F32 ? (double)singles[at] : doubles[at];
                if (found !=
                    parts_value(part, t, part->offsets[0] + row, part->offsets[1] + column))
                    fail_msg("t%d [%ld, %ld] is %f", t, (long)row, (long)column, found);
            }
}

dcp_status parts_load(const char *path, const struct part *part, const dcp_load_options *how,
                      dcp_figures *figures)
{
    size_t size = (size_t)(part->sizes[0] * part->sizes[1]) * dcp_dtype_size(part->dtype);
    dcp_load_options options = *how;
    unsigned char *data = calloc((size_t)(part->end - part->first), size);
    dcp_state *root = dcp_state_new();
    assert_non_null(data);
    for (int t = part->first; t < part->end; t++)
        add_tensor(root, t, part, data + (size_t)(t - part->first) * size);
    *figures = (dcp_figures){.size_of = sizeof *figures};
    options.figures = figures;
    options.convert = true;
    dcp_status status = dcp_load(root, path, &options, NULL);
    if (status == DCP_OK)
        check_values(part, data);
    dcp_state_free(root);
    free(data);
    return status;
}

uint64_t parts_find(const char *directory, const char *file, const struct part *part, int tensor,
                    int64_t row)
{
    const float wanted[] = {(float)parts_value(part, tensor, row, 0),
                            (float)parts_value(part, tensor, row, 1)};
    size_t size;
    unsigned char *bytes = scratch_read(directory, file, &size);
    const unsigned char *found = memmem(bytes, size, wanted, sizeof wanted);
    assert_non_null(found);
    uint64_t place = (uint64_t)(found - bytes);
    free(bytes);
    return place;
}

uint64_t parts_bytes(const struct part *part)
{
    return (uint64_t)(part->sizes[0] * part->sizes[1] * (part->end - part->first)) *
           dcp_dtype_size(part->dtype);
}

void parts_check_loads(const char *path, const struct part *const *parts, size_t count,
                       const dcp_load_options *how)
{
    dcp_figures figures;
    for (size_t i = 0; i < count; i++) {
        dcp_status status = parts_load(path, parts[i], how, &figures);
        if (status == DCP_ERR_UNSUPPORTED && how->io != DCP_IO_AUTO) {
            print_message("not tested: %s\n", dcp_error_message());
            return;
        }
        if (status != DCP_OK)
            fail_msg("%s: %s", path, dcp_error_message());
        assert_int_equal(figures.bytes_moved, parts_bytes(parts[i]));
        if (how->verification == DCP_VERIFY_ALL)
            assert_int_equal(figures.bytes_unchecked, 0);
    }
}
