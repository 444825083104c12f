/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/pt_file.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "format/zip_builder.h"
#include "storage/scratch.h"

static void append_text(struct buffer *out, const char *text)
{
    buffer_append(out, text, strlen(text));
}

static void append_string(struct buffer *out, const char *text, uint32_t size)
{
    append_text(out, "X");
    buffer_append_u32(out, size);
    buffer_append(out, text, size);
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

static void append_view(struct buffer *out, const struct pt_file *file, const struct pt_view *view)
{
    const char storage = (char)('0' + view->storage);
    append_string(out, &view->name, 1);
    append_text(out, "ctorch._utils\n_rebuild_tensor_v2\n((");
    append_string(out, "storage", 7);
    append_text(out, "ctorch\nFloatStorage\n");
    append_string(out, &storage, 1);
    append_string(out, "cpu", 3);
    append_number(out, file->elements);
    append_text(out, "tQ");
    append_number(out, view->offset);
    append_tuple(out, view->sizes, view->ndim);
    append_tuple(out, view->strides, view->ndim);
    append_text(out, "\x89"
                     "ccollections\nOrderedDict\n)RtR");
}

static void add_pickle(struct zip_builder *builder, const struct pt_file *file)
{
    struct buffer pickle;
    buffer_init(&pickle, 0);
    append_text(&pickle, "\x80\x02}(");
    for (size_t i = 0; i < file->count; i++)
        append_view(&pickle, file, &file->views[i]);
    append_text(&pickle, "u.");
    zip_builder_add_container(builder, pickle.data, pickle.size);
    buffer_free(&pickle);
}

uint32_t pt_file_element(uint32_t storage, uint32_t index)
{
    return (storage + 1) << 28 | index;
}

void pt_file_write(const struct pt_file *file, const char *directory, const char *name,
                   uint64_t places[PT_FILE_STORAGES])
{
    static const char *const names[PT_FILE_STORAGES] = {"archive/data/0", "archive/data/1",
                                                        "archive/data/2", "archive/data/3"};
    struct zip_builder builder;
    size_t size = file->elements * sizeof(uint32_t);
    uint32_t *elements = malloc(size);
    assert_non_null(elements);
    zip_builder_init(&builder);
    add_pickle(&builder, file);
    for (uint32_t s = 0; s < file->storages; s++) {
        for (uint32_t i = 0; i < file->elements; i++)
            elements[i] = pt_file_element(s, i);
        if (file->deflated)
            zip_builder_add_deflated(&builder, names[s], elements, size)->crc ^= 1;
        else
            zip_builder_add(&builder, names[s], elements, size);
        places[s] = builder.out.size - size;
    }
    zip_builder_finish(&builder);
    scratch_write(directory, name, builder.out.data, builder.out.size);
    zip_builder_free(&builder);
    free(elements);
}
