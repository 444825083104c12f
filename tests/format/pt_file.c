/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/pt_file.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "format/metadata/metadata_codec.h"
#include "format/zip_builder.h"
#include "storage/scratch.h"

#define STREAM_FILE "__0_0.distcp"

static void append_text(struct buffer *out, const char *text)
{
    buffer_append(out, text, strlen(text));
}

static void append_string(struct buffer *out, const char *text)
{
    append_text(out, "X");
    buffer_append_u32(out, (uint32_t)strlen(text));
    append_text(out, text);
}

static void append_number(struct buffer *out, uint32_t number)
{
    append_text(out, "J");
    buffer_append_u32(out, number);
}

static void append_tuple(struct buffer *out, const uint32_t *numbers, uint32_t count)
{
    append_text(out, "(");
    for (uint32_t i = 0; i < count; i++)
        append_number(out, numbers[i]);
    append_text(out, "t");
}

static const char *class_of(dcp_dtype dtype)
{
    return dtype == DCP_U8     ? "Byte"
           : dtype == DCP_BF16 ? "BFloat16"
           : dtype == DCP_I64  ? "Long"
           : dtype == DCP_C64  ? "ComplexFloat"
                               : "Float";
}

static void append_view(struct buffer *out, const struct pt_file *file, const struct pt_view *view)
{
    const struct pt_storage *content = file->contents ? &file->contents[view->storage] : NULL;
    char key[16];
    snprintf(key, sizeof key, "%u", (unsigned)view->storage);
    append_text(out, "ctorch._utils\n_rebuild_tensor_v2\n((");
    append_string(out, "storage");
    append_text(out, "ctorch\n");
    append_text(out, class_of(content ? content->dtype : DCP_F32));
    append_text(out, "Storage\n");
    append_string(out, key);
    append_string(out, "cpu");
    append_number(out, content ? content->elements : file->elements);
    append_text(out, "tQ");
    append_number(out, view->offset);
    append_tuple(out, view->sizes, view->ndim);
    append_tuple(out, view->strides, view->ndim);
    append_text(out, "\x89"
                     "ccollections\nOrderedDict\n)RtR");
}

static void append_dict(struct buffer *out, const struct pt_file *file)
{
    append_text(out, "}(");
    for (size_t i = 0; i < file->count; i++) {
        append_string(out, file->views[i].name);
        append_view(out, file, &file->views[i]);
    }
    append_text(out, "u");
}

uint32_t pt_file_element(uint32_t storage, uint32_t index)
{
    return (storage + 1) << 28 | index;
}

/* Returns its size. */
static size_t add_storage(struct zip_builder *builder, const struct pt_file *file, uint32_t storage,
                          const char *name)
{
    const struct pt_storage *content = file->contents ? &file->contents[storage] : NULL;
    size_t size = content ? content->elements * dcp_dtype_size(content->dtype)
                          : file->elements * sizeof(uint32_t);
    uint32_t *elements = content ? NULL : malloc(size + 1);
    assert_true(content || elements);
    for (uint32_t i = 0; !content && i < file->elements; i++)
        elements[i] = pt_file_element(storage, i);
    const void *bytes = content ? content->bytes : elements;
    if (file->deflated)
        zip_builder_add_deflated(builder, name, bytes, size)->crc ^= 1;
    else
        zip_builder_add(builder, name, bytes, size);
    free(elements);
    return size;
}

/* alone: the first tensor and storage, no dict. */
static void build(struct zip_builder *builder, const struct pt_file *file, bool alone,
                  uint64_t *places)
{
    static char names[ZIP_BUILDER_RECORDS][32];
    struct buffer pickle;
    zip_builder_init(builder);
    buffer_init(&pickle, 0);
    append_text(&pickle, "\x80\x02");
    if (alone)
        append_view(&pickle, file, file->views);
    else
        append_dict(&pickle, file);
    append_text(&pickle, ".");
    if (file->big_endian) {
        zip_builder_add(builder, "archive/data.pkl", pickle.data, pickle.size);
        zip_builder_add(builder, "archive/byteorder", "big", 3);
        zip_builder_add(builder, "archive/version", "3\n", 2);
    } else {
        zip_builder_add_container(builder, pickle.data, pickle.size);
    }
    for (uint32_t s = 0; s < (alone ? 1 : file->storages); s++) {
        snprintf(names[s], sizeof names[s], "archive/data/%u", (unsigned)s);
        size_t size = add_storage(builder, file, s, names[s]);
        if (places)
            places[s] = builder->out.size - size;
    }
    zip_builder_finish(builder);
    buffer_free(&pickle);
}

void pt_file_write(const struct pt_file *file, const char *directory, const char *name,
                   uint64_t *places)
{
    struct zip_builder builder;
    build(&builder, file, false, places);
    scratch_write(directory, name, builder.out.data, builder.out.size);
    zip_builder_free(&builder);
}

static void encode(const struct pt_view *view, uint64_t length, struct buffer *encoded)
{
    const char *files[] = {STREAM_FILE};
    int64_t sizes[PT_FILE_DIMS];
    static const int64_t origin[PT_FILE_DIMS];
    dcp_path_part part = {.key = view->name};
    for (uint32_t i = 0; i < view->ndim; i++)
        sizes[i] = view->sizes[i];
    struct metadata_piece piece = {.offsets = origin, .sizes = sizes, .length = length};
    struct metadata_entry entry = {.name = view->name,
                                   .path = &part,
                                   .path_length = 1,
                                   .is_tensor = true,
                                   .dtype = DCP_F32,
                                   .ndim = (int32_t)view->ndim,
                                   .global_shape = sizes,
                                   .pieces = &piece,
                                   .piece_count = 1};
    const struct metadata metadata = {
        .entries = &entry, .count = 1, .files = files, .file_count = 1, .save_id = ""};
    buffer_init(encoded, 0);
    assert_int_equal(metadata_encode(&metadata, encoded), DCP_OK);
}

uint64_t pt_file_write_stream(const struct pt_file *file, const char *directory, const char *name)
{
    struct zip_builder builder;
    struct buffer encoded;
    uint64_t places[PT_FILE_STORAGES];
    char *path = scratch_path(directory, name);
    build(&builder, file, true, places);
    encode(file->views, builder.out.size, &encoded);
    assert_int_equal(mkdir(path, 0700), 0);
    scratch_write(path, STREAM_FILE, builder.out.data, builder.out.size);
    scratch_write(path, ".metadata", encoded.data, encoded.size);
    buffer_free(&encoded);
    zip_builder_free(&builder);
    free(path);
    return places[0];
}
