/* SPDX-License-Identifier: BSD-3-Clause */
/* What a random tree must be when it is loaded: flattened by rules written down once more. */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formula.h"
#include "fuzz_tree.h"
#include "tag_value.h"

struct description {
    const char *directory;
    cJSON *entries;
    uint64_t tensors; /* met so far, in the order in which they were made */
};

static bool enters(const dcp_state *node)
{
    dcp_kind kind = dcp_state_kind(node);

    for (size_t i = 0; kind == DCP_KIND_LIST && i < dcp_state_count(node); i++) {
        const dcp_state *child = dcp_state_at(node, i);
        dcp_kind inner = dcp_state_kind(child);
        if (inner == DCP_KIND_TENSOR || inner == DCP_KIND_DICT ||
            (inner == DCP_KIND_LIST && enters(child)))
            return true;
    }
    return kind == DCP_KIND_DICT;
}

/* The keys and positions of the path, joined by dots. */
static char *joined(const cJSON *path)
{
    size_t size = 1;
    const cJSON *part;

    cJSON_ArrayForEach(part, path) size += part->valuestring ? strlen(part->valuestring) + 1 : 24;
    char *name = calloc(1, size);
    if (!name)
        err(1, "no memory");
    cJSON_ArrayForEach(part, path)
    {
        size_t used = strlen(name);
        const char *dot = part == path->child ? "" : ".";
        if (part->valuestring)
            snprintf(name + used, size - used, "%s%s", dot, part->valuestring);
        else
            snprintf(name + used, size - used, "%s%d", dot, part->valueint);
    }
    return name;
}

static void write_whole(struct description *description, cJSON *entry, const dcp_tensor *tensor)
{
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    dcp_tensor whole = {.dtype = tensor->dtype, .ndim = tensor->ndim};
    char name[40], file[sizeof name + 4], path[4096];

    for (int32_t d = 0; d < tensor->ndim; d++) {
        whole.global_shape[d] = tensor->global_shape[d];
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->global_shape[d]));
    }
    snprintf(name, sizeof name, "%llu", (unsigned long long)description->tensors++);
    snprintf(file, sizeof file, "%s.bin", name);
    snprintf(path, sizeof path, "%s/%s", description->directory, file);
    size_t bytes = tensor_elements(whole.ndim, whole.global_shape) * dcp_dtype_size(whole.dtype);
    FILE *out = fopen(path, "wb");
    whole.data = malloc(bytes + 1);
    if (!out || !whole.data)
        err(1, "%s", path);
    formula_fill(name, &whole);
    if (fwrite(whole.data, 1, bytes, out) != bytes || fclose(out) != 0)
        err(1, "%s", path);
    free(whole.data);
    cJSON_AddStringToObject(entry, "dtype", dcp_dtype_name(tensor->dtype));
    cJSON_AddStringToObject(entry, "file", file);
}

static void describe_leaf(struct description *description, const cJSON *path, const dcp_state *node)
{
    cJSON *entry = cJSON_CreateObject();
    char *name = joined(path);
    dcp_tensor chunk;

    cJSON_AddStringToObject(entry, "fqn", name);
    cJSON_AddItemToObject(entry, "path", cJSON_Duplicate(path, true));
    if (dcp_state_kind(node) == DCP_KIND_TENSOR && dcp_state_chunk(node, 0, &chunk) == DCP_OK) {
        cJSON_AddStringToObject(entry, "type", "tensor");
        write_whole(description, entry, &chunk);
    } else {
        cJSON_AddStringToObject(entry, "type", "object");
        cJSON_AddItemToObject(entry, "value", value_tagged(node));
    }
    cJSON_AddItemToArray(description->entries, entry);
    free(name);
}

static void describe(struct description *description, cJSON *path, const dcp_state *node)
{
    if (!enters(node)) {
        describe_leaf(description, path, node);
        return;
    }
    for (size_t i = 0; i < dcp_state_count(node); i++) {
        const char *key = NULL;
        if (dcp_state_kind(node) == DCP_KIND_DICT &&
            dcp_state_as_text(dcp_state_key_at(node, i), &key, NULL) != DCP_OK)
            errx(1, "%s", dcp_error_message());
        cJSON_AddItemToArray(path, key ? cJSON_CreateString(key) : cJSON_CreateNumber((double)i));
        describe(description, path, dcp_state_at(node, i));
        cJSON_DeleteItemFromArray(path, cJSON_GetArraySize(path) - 1);
    }
}

cJSON *fuzz_tree_describe(const struct fuzz_tree *tree, const char *directory)
{
    struct description description = {.directory = directory, .entries = cJSON_CreateArray()};
    cJSON *path = cJSON_CreateArray();

    describe(&description, path, tree->root);
    cJSON_Delete(path);
    return description.entries;
}
