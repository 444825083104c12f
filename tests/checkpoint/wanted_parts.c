/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/wanted_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/scratch.h"
#include "storage/shard/shard_reader.h"

static const struct {
    const char *name;
    dcp_dtype dtype;
    int32_t ndim;
    int64_t shape[2];
} kinds[PARTS] = {
    {"large", DCP_I32, 2, {0, 1021}}, /* as many rows as asked for */
    {"floats", DCP_F32, 2, {37, 11}}, {"bytes", DCP_U8, 2, {5, 7}}, {"scalar", DCP_F64, 0, {0}},
    {"empty", DCP_F32, 2, {0, 4}},    {"line", DCP_I32, 1, {1001}},
};

static int64_t value_at(int part, int64_t position)
{
    return kinds[part].dtype == DCP_U8 ? (position * 31 + 5) % 251
                                       : (position * 7919 + part * 100 + 1) % 8388593;
}

static void put(dcp_dtype dtype, unsigned char *element, int64_t value)
{
    float f = (float)value;
    double d = (double)value;
    int32_t i = (int32_t)value;
    if (dtype == DCP_U8)
        *element = (unsigned char)value;
    else if (dtype == DCP_F32)
        memcpy(element, &f, sizeof f);
    else if (dtype == DCP_F64)
        memcpy(element, &d, sizeof d);
    else
        memcpy(element, &i, sizeof i);
}

/* Rows [begin, end) of a part that a rank wants. */
static void choose_rows(enum want want, int64_t rows, int rank, int size, int64_t *begin,
                        int64_t *end)
{
    int64_t of = size, at = rank, span = 1;
    *begin = 0;
    *end = rows;
    if (want == WANT_ALL || want == WANT_TRANSPOSED || want == WANT_COLUMNS ||
        (want == WANT_MIXED && rank == 0))
        return;
    if (want == WANT_OVERLAPS) {
        of = size + 1;
        span = 2;
    } else if (want == WANT_HYBRID) {
        of = size > 1 ? size / 2 : 1;
        at = rank % of;
    } else if (rank == size - 1) {
        *end = 0;
        return;
    }
    *begin = rows * at / of;
    *end = rows * (at + span) / of;
}

static void choose_box(dcp_tensor *tensor, enum want want, int rank, int size)
{
    int64_t begin, end;
    tensor->sharded = true;
    memcpy(tensor->sizes, tensor->global_shape, sizeof tensor->sizes);
    if (tensor->ndim == 0)
        return;
    choose_rows(want, tensor->global_shape[0], rank, size, &begin, &end);
    tensor->offsets[0] = begin;
    tensor->sizes[0] = end - begin;
    if (want != WANT_COLUMNS || tensor->ndim < 2)
        return;
    int64_t half = tensor->global_shape[1] / 2;
    tensor->sizes[1] = half + (tensor->global_shape[1] - half) * (rank + 1) / size;
}

static size_t volume_of(const dcp_tensor *tensor)
{
    size_t volume = 1;
    for (int32_t i = 0; i < tensor->ndim; i++)
        volume *= (size_t)tensor->sizes[i];
    return volume;
}

enum { COLUMNS_MOST = 1021 };

/* Fills elements, or says whether they are right; in rows where they lie side by side, as each
 * access by itself takes long under ThreadSanitizer. */
static bool go_over(const dcp_tensor *tensor, int part, bool fill)
{
    unsigned char row[COLUMNS_MOST * 8];
    int64_t rows = tensor->ndim > 0 ? tensor->sizes[0] : 1;
    int64_t columns = tensor->ndim > 1 ? tensor->sizes[1] : 1;
    int64_t width = tensor->ndim > 1 ? tensor->global_shape[1] : 1;
    bool strided = tensor->strided && tensor->ndim > 1;
    int64_t along = strided ? tensor->strides[0] : columns;
    size_t size = dcp_dtype_size(tensor->dtype), run = strided ? size : size * (size_t)columns;
    for (int64_t r = 0; r < rows; r++) {
        int64_t position = (tensor->offsets[0] + r) * width + tensor->offsets[1];
        for (int64_t c = 0; c < columns; c++)
            put(tensor->dtype, row + (size_t)c * size, value_at(part, position + c));
        for (int64_t c = 0; c < columns; c += strided ? 1 : columns) {
            int64_t place = r * along + (strided ? c * tensor->strides[1] : 0);
            unsigned char *elements = (unsigned char *)tensor->data + (size_t)place * size;
            if (fill)
                memcpy(elements, row + (size_t)c * size, run);
            else if (memcmp(elements, row + (size_t)c * size, run) != 0)
                return false;
        }
    }
    return true;
}

void wanted_parts_init(struct wanted_parts *parts, int64_t rows, enum want want, int rank, int size,
                       bool wide, bool filled)
{
    *parts = (struct wanted_parts){.root = dcp_state_new()};
    for (int i = 0; i < PARTS; i++) {
        dcp_tensor *tensor = &parts->tensors[i];
        *tensor = (dcp_tensor){.dtype = kinds[i].dtype, .ndim = kinds[i].ndim};
        memcpy(tensor->global_shape, kinds[i].shape, sizeof kinds[i].shape);
        if (i == 0)
            tensor->global_shape[0] = rows;
        if (wide && tensor->dtype == DCP_F32)
            tensor->dtype = DCP_F64;
        choose_box(tensor, want, rank, size);
        if (want == WANT_TRANSPOSED && tensor->ndim == 2) {
            tensor->strided = true;
            tensor->strides[0] = 1;
            tensor->strides[1] = tensor->sizes[0];
        }
        size_t bytes = volume_of(tensor) * dcp_dtype_size(tensor->dtype);
        parts->memory[i] = malloc(bytes + 1);
        memset(parts->memory[i], 0xa5, bytes + 1);
        tensor->data = parts->memory[i];
        if (filled)
            go_over(tensor, i, true);
        dcp_state_tensor(parts->root, kinds[i].name, tensor);
    }
    dcp_state_int(parts->root, "step", filled ? 17 : 0);
}

void wanted_parts_overwrite(struct wanted_parts *parts)
{
    for (int i = 0; i < PARTS; i++)
        memset(parts->memory[i], 0xa5,
               volume_of(&parts->tensors[i]) * dcp_dtype_size(parts->tensors[i].dtype));
}

uint64_t wanted_parts_bytes(const struct wanted_parts *parts)
{
    uint64_t bytes = 0;
    for (int i = 0; i < PARTS; i++)
        bytes += volume_of(&parts->tensors[i]) * dcp_dtype_size(kinds[i].dtype);
    return bytes;
}

dcp_status wanted_parts_check(const struct wanted_parts *parts)
{
    int64_t step = 0;
    for (int i = 0; i < PARTS; i++) {
        const dcp_tensor *tensor = &parts->tensors[i];
        size_t bytes = volume_of(tensor) * dcp_dtype_size(tensor->dtype);
        if (!go_over(tensor, i, false))
            return dcp_error_set(DCP_ERR_INTERNAL, "%s is wrong", kinds[i].name);
        if (parts->memory[i][bytes] != 0xa5)
            return dcp_error_set(DCP_ERR_INTERNAL, "%s was written beyond", kinds[i].name);
    }
    dcp_status status = dcp_state_as_int(dcp_state_find(parts->root, "step"), &step);
    return status == DCP_OK && step != 17 ? dcp_error_set(DCP_ERR_INTERNAL, "step is wrong")
                                          : status;
}

void wanted_parts_free(struct wanted_parts *parts)
{
    for (int i = 0; i < PARTS; i++)
        free(parts->memory[i]);
    dcp_state_free(parts->root);
}

void wanted_parts_save(const char *path, int64_t rows, const dcp_save_options *options)
{
    struct wanted_parts parts;
    wanted_parts_init(&parts, rows, WANT_ALL, 0, 1, false, true);
    must(dcp_save(parts.root, path, options));
    wanted_parts_free(&parts);
}

uint64_t wanted_parts_object_bytes(const char *path)
{
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    uint64_t bytes = 0;
    must(storage_read_metadata(dcp_storage_files(), storage_at(path), &form, &metadata, &reader));
    for (size_t i = 0; i < metadata.count; i++)
        if (!metadata.entries[i].is_tensor)
            bytes += metadata.entries[i].pieces[0].length;
    shard_reader_free(reader);
    metadata_free(&metadata);
    return bytes;
}

/* Files end where the last of their pieces does. */
static void cut_files(const char *path, const struct metadata *metadata)
{
    for (uint32_t file = 0; file < metadata->file_count; file++) {
        char name[1024];
        uint64_t end = 0;
        for (size_t i = 0; i < metadata->count; i++)
            for (size_t p = 0; p < metadata->entries[i].piece_count; p++) {
                const struct metadata_piece *piece = &metadata->entries[i].pieces[p];
                if (piece->file == file && piece->offset + piece->length > end)
                    end = piece->offset + piece->length;
            }
        snprintf(name, sizeof name, "%s/%s", path, metadata->files[file]);
        if (truncate(name, (off_t)end) != 0)
            must(DCP_ERR_IO);
    }
}

void wanted_parts_as_pytorch(const char *path)
{
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    must(storage_read_metadata(dcp_storage_files(), storage_at(path), &form, &metadata, &reader));
    cut_files(path, &metadata);
    scratch_promise_nothing(path);
    shard_reader_free(reader);
    metadata_free(&metadata);
}
