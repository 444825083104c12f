/* SPDX-License-Identifier: BSD-3-Clause */
#include "manifest.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *path_of(const char *directory, const char *name)
{
    char *path;

    if (asprintf(&path, "%s/%s", directory, name) < 0)
        err(1, "no memory");
    return path;
}

char *file_contents(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        err(1, "%s", path);
    long length = ftell(file);
    rewind(file);
    char *bytes = malloc((size_t)length + 1);
    if (!bytes || fread(bytes, 1, (size_t)length, file) != (size_t)length)
        err(1, "%s", path);
    bytes[length] = 0;
    fclose(file);
    if (size)
        *size = (size_t)length;
    return bytes;
}

static const char *text(const cJSON *object, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    if (!value)
        errx(1, "manifest: no text \"%s\"", key);
    return value;
}

dcp_tensor manifest_tensor(const char *directory, const cJSON *description, size_t *bytes)
{
    dcp_tensor tensor = {.dtype = dcp_dtype_from_name(text(description, "dtype"))};
    const cJSON *size;

    if (tensor.dtype == DCP_DTYPE_NONE)
        errx(1, "manifest: unknown dtype %s", text(description, "dtype"));
    cJSON_ArrayForEach(size, cJSON_GetObjectItemCaseSensitive(description, "shape"))
        tensor.global_shape[tensor.ndim++] = (int64_t)size->valuedouble;
    char *path = path_of(directory, text(description, "file"));
    tensor.data = file_contents(path, bytes);
    free(path);
    return tensor;
}

static void read_entry(struct manifest_entry *entry, const char *directory, const cJSON *row)
{
    entry->name = text(row, "fqn");
    entry->path = cJSON_GetObjectItemCaseSensitive(row, "path");
    entry->is_tensor = strcmp(text(row, "type"), "tensor") == 0;
    if (entry->is_tensor) {
        entry->whole = manifest_tensor(directory, row, &entry->bytes);
        entry->chunks = cJSON_GetObjectItemCaseSensitive(row, "chunks");
    } else {
        entry->value = cJSON_GetObjectItemCaseSensitive(row, "value");
        entry->storage = cJSON_GetObjectItemCaseSensitive(row, "storage");
    }
}

void manifest_read(struct manifest *manifest, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *contents = file_contents(path, NULL);
    const cJSON *row;
    size_t i = 0;

    manifest->document = cJSON_Parse(contents);
    free(contents);
    if (!manifest->document)
        errx(1, "%s: not JSON", path);
    manifest->directory = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    if (!manifest->directory)
        err(1, "no memory");
    manifest->checkpoint = path_of(manifest->directory, text(manifest->document, "checkpoint"));
    manifest->kind = text(manifest->document, "kind");

    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(manifest->document, "entries");
    manifest->count = (size_t)cJSON_GetArraySize(rows);
    manifest->entries = calloc(manifest->count + 1, sizeof *manifest->entries);
    if (!manifest->entries)
        err(1, "no memory");
    cJSON_ArrayForEach(row, rows) read_entry(&manifest->entries[i++], manifest->directory, row);
}

void manifest_free(struct manifest *manifest)
{
    for (size_t i = 0; i < manifest->count; i++)
        free(manifest->entries[i].whole.data);
    free(manifest->entries);
    free(manifest->checkpoint);
    free(manifest->directory);
    cJSON_Delete(manifest->document);
}

bool manifest_needs(const struct manifest *manifest, const char *what)
{
    const cJSON *need;

    cJSON_ArrayForEach(
        need, cJSON_GetObjectItemCaseSensitive(manifest->document,
                                               "needs")) if (strcmp(cJSON_GetStringValue(need),
                                                                    what) == 0) return true;
    return false;
}
