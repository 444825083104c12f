/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

static struct bytes read_file(const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    struct bytes bytes = {.data = malloc(1), .size = 0};
    size_t capacity = 1;
    size_t got;
    while ((got = fread(bytes.data + bytes.size, 1, capacity - bytes.size, file)) != 0) {
        bytes.size += got;
        if (bytes.size == capacity)
            bytes.data = realloc(bytes.data, capacity *= 2);
        assert_non_null(bytes.data);
    }
    fclose(file);
    /* Exactly as large as the file, so that sanitizers see a read behind its end. */
    unsigned char *exact = malloc(bytes.size != 0 ? bytes.size : 1);
    assert_non_null(exact);
    memcpy(exact, bytes.data, bytes.size);
    free(bytes.data);
    bytes.data = exact;
    return bytes;
}

struct bytes fixture_file(const char *path)
{
    return read_file(FIXTURES, path);
}

void bytes_free(struct bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct bytes){0};
}

void fixture_open(struct fixture *fixture, const char *name)
{
    size_t size = sizeof FIXTURES + strlen(name) + 2;
    fixture->directory = malloc(size);
    assert_non_null(fixture->directory);
    snprintf(fixture->directory, size, "%s/%s", FIXTURES, name);
    struct bytes json = read_file(fixture->directory, "expected.json");
    fixture->expected = cJSON_ParseWithLength((const char *)json.data, json.size);
    bytes_free(&json);
    assert_non_null(fixture->expected);
}

void fixture_close(struct fixture *fixture)
{
    cJSON_Delete(fixture->expected);
    free(fixture->directory);
}

static int32_t read_sizes(const cJSON *object, const char *key, int64_t sizes[DCP_MAX_DIMS])
{
    int32_t count = 0;
    for (const cJSON *item = cJSON_GetObjectItem(object, key)->child; item != NULL;
         item = item->next)
        sizes[count++] = (int64_t)item->valuedouble;
    return count;
}

static struct bytes read_slice(const struct fixture *fixture, const cJSON *place)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s",
             cJSON_GetObjectItem(fixture->expected, "checkpoint")->valuestring,
             cJSON_GetObjectItem(place, "file")->valuestring);
    struct bytes file = read_file(fixture->directory, path);
    size_t offset = (size_t)cJSON_GetObjectItem(place, "offset")->valuedouble;
    struct bytes slice = {.size = (size_t)cJSON_GetObjectItem(place, "length")->valuedouble};
    assert_true(offset + slice.size <= file.size);
    slice.data = malloc(slice.size);
    assert_non_null(slice.data);
    memcpy(slice.data, file.data + offset, slice.size);
    bytes_free(&file);
    return slice;
}

static void visit_piece(const struct fixture *fixture, const cJSON *place,
                        struct fixture_piece *piece,
                        void (*visit)(const struct fixture_piece *piece, void *context),
                        void *context)
{
    piece->stream = read_slice(fixture, place);
    piece->zstd = cJSON_GetArraySize(cJSON_GetObjectItem(place, "transforms")) != 0;
    if (piece->dtype != DCP_DTYPE_NONE) {
        assert_int_equal(read_sizes(place, "offsets", piece->offsets), piece->ndim);
        assert_int_equal(read_sizes(place, "sizes", piece->sizes), piece->ndim);
    }
    visit(piece, context);
    bytes_free(&piece->stream);
}

size_t fixture_each_piece(const struct fixture *fixture,
                          void (*visit)(const struct fixture_piece *piece, void *context),
                          void *context)
{
    size_t count = 0;
    const cJSON *entry = cJSON_GetObjectItem(fixture->expected, "entries")->child;
    for (; entry != NULL; entry = entry->next) {
        struct fixture_piece piece = {.name = cJSON_GetObjectItem(entry, "fqn")->valuestring};
        if (strcmp(cJSON_GetObjectItem(entry, "type")->valuestring, "tensor") != 0) {
            visit_piece(fixture, cJSON_GetObjectItem(entry, "storage"), &piece, visit, context);
            count++;
            continue;
        }
        piece.dtype = dcp_dtype_from_name(cJSON_GetObjectItem(entry, "dtype")->valuestring);
        assert_int_not_equal(piece.dtype, DCP_DTYPE_NONE);
        piece.ndim = read_sizes(entry, "shape", piece.global_shape);
        piece.whole =
            read_file(fixture->directory, cJSON_GetObjectItem(entry, "file")->valuestring);
        const cJSON *chunk = cJSON_GetObjectItem(entry, "chunks")->child;
        for (; chunk != NULL; chunk = chunk->next, count++)
            visit_piece(fixture, chunk, &piece, visit, context);
        bytes_free(&piece.whole);
    }
    return count;
}
