/* SPDX-License-Identifier: BSD-3-Clause */
#include "matrix_state.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formula.h"

/* ---- the manifest ---- */

cJSON *matrix_describe(struct matrix_state *state, const char *parent, const char *key,
                       const char *type)
{
    cJSON *entry = cJSON_CreateObject();
    cJSON *path = cJSON_AddArrayToObject(entry, "path");
    char name[300];

    snprintf(name, sizeof name, "%s.%s", parent, key);
    cJSON_AddStringToObject(entry, "fqn", name);
    cJSON_AddStringToObject(entry, "type", type);
    cJSON_AddItemToArray(path, cJSON_CreateString(parent));
    cJSON_AddItemToArray(path, cJSON_CreateString(key));
    cJSON_AddItemToArray(state->entries, entry);
    return entry;
}

static void describe_tensor(struct matrix_state *state, const char *parent, const char *key,
                            const dcp_tensor *tensor)
{
    if (!state->entries)
        return;
    cJSON *entry = matrix_describe(state, parent, key, "tensor");
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    dcp_tensor whole = {.dtype = tensor->dtype, .ndim = tensor->ndim};
    char file[40], path[4096];

    for (int32_t d = 0; d < tensor->ndim; d++) {
        whole.global_shape[d] = tensor->global_shape[d];
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->global_shape[d]));
    }
    snprintf(file, sizeof file, "%03d.bin", cJSON_GetArraySize(state->entries));
    snprintf(path, sizeof path, "%s/%s", state->directory, file);
    cJSON_AddStringToObject(entry, "dtype", dcp_dtype_name(tensor->dtype));
    cJSON_AddStringToObject(entry, "file", file);

    size_t bytes = tensor_elements(whole.ndim, whole.global_shape) * dcp_dtype_size(whole.dtype);
    FILE *out = fopen(path, "wb");
    whole.data = malloc(bytes + 1);
    if (!out || !whole.data)
        err(1, "%s", path);
    formula_fill(key, &whole);
    if (fwrite(whole.data, 1, bytes, out) != bytes || fclose(out) != 0)
        err(1, "%s", path);
    free(whole.data);
}

/* ---- tensors ---- */

static void *block(struct matrix_state *state, size_t bytes)
{
    void *memory = calloc(1, bytes + 1);

    if (!memory || state->block_count == MOST_BLOCKS)
        errx(1, "too many tensors");
    return state->blocks[state->block_count++] = memory;
}

static dcp_tensor shaped(dcp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    dcp_tensor tensor = {.dtype = dtype, .ndim = ndim};

    for (int32_t d = 0; d < ndim; d++)
        tensor.global_shape[d] = shape[d];
    return tensor;
}

static void fill(struct matrix_state *state, const char *key, dcp_tensor *chunk)
{
    const int64_t *sizes = chunk->sharded ? chunk->sizes : chunk->global_shape;

    chunk->data = block(state, tensor_elements(chunk->ndim, sizes) * dcp_dtype_size(chunk->dtype));
    formula_fill(key, chunk);
}

static void add_replicated(struct matrix_state *state, const char *parent, dcp_state *dict,
                           const char *key, dcp_tensor tensor)
{
    fill(state, key, &tensor);
    dcp_state_tensor(dict, key, &tensor);
    describe_tensor(state, parent, key, &tensor);
}

static void add_dtypes(struct matrix_state *state)
{
    dcp_state *dict = dcp_state_dict(state->root, "dtypes");

    for (int dtype = 1; dtype <= DCP_BITS4X2; dtype++) {
        const char *name = dcp_dtype_name((dcp_dtype)dtype);
        /* PyTorch 2.13 does not know bcomplex32, and cannot copy the bits types. */
        if (name && dtype < DCP_BITS8 && dtype != DCP_BCOMPLEX32)
            add_replicated(state, "dtypes", dict, name,
                           shaped((dcp_dtype)dtype, 2, (int64_t[]){3, 5}));
    }
}

static void add_placed(struct matrix_state *state, dcp_state *dict, const char *key,
                       dcp_tensor tensor, const dcp_placement *placements)
{
    if (dcp_mesh_shard(&state->mesh, &tensor, placements) != DCP_OK)
        errx(1, "%s: %s", key, dcp_error_message());
    fill(state, key, &tensor);
    dcp_state_tensor(dict, key, &tensor);
    describe_tensor(state, "placed", key, &tensor);
}

/* Every pair of replicating, sharding by the first and sharding by the last dimension. */
static void add_placements(struct matrix_state *state)
{
    static const struct {
        int32_t ndim;
        int64_t sizes[4];
    } shapes[] = {{2, {7, 6}}, {2, {1, 3}}, {1, {16}}, {2, {0, 4}}, {4, {5, 1, 2, 3}}};
    static const char *const letters[] = {"replicated", "rows", "columns"};
    dcp_state *dict = dcp_state_dict(state->root, "placed");
    char key[100];

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        dcp_tensor tensor = shaped(DCP_F32, shapes[s].ndim, shapes[s].sizes);
        const dcp_placement kinds[] = {dcp_replicate(), dcp_shard(0), dcp_shard(-1)};
        for (int first = 0; first < 3; first++) {
            for (int second = 0; second < (state->mesh.ndim == 2 ? 3 : 1); second++) {
                snprintf(key, sizeof key, "shape%zu.%s.%s", s, letters[first], letters[second]);
                add_placed(state, dict, key, tensor,
                           (dcp_placement[]){kinds[first], kinds[second]});
            }
        }
    }
    if (state->mesh.ndim == 2)
        add_placed(state, dict, "strided", shaped(DCP_BF16, 2, (int64_t[]){12, 3}),
                   (dcp_placement[]){dcp_strided_shard(0, state->mesh.shape[1]), dcp_shard(0)});
    if (state->mesh.rank >= 0)
        add_placed(state, dict, "scalar", shaped(DCP_F64, 0, NULL),
                   (dcp_placement[]){dcp_replicate(), dcp_replicate()});
}

/* Rows stored as columns, rows from the last to the first, and rows that lie apart. */
static void add_strides(struct matrix_state *state)
{
    static const struct {
        const char *key;
        int64_t strides[2], first, room;
    } layouts[] = {
        {"transposed", {1, 8}, 0, 40}, {"reversed", {-5, 1}, 35, 40}, {"apart", {11, 2}, 0, 90}};
    dcp_state *dict = dcp_state_dict(state->root, "strides");

    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        dcp_tensor tensor = shaped(DCP_I32, 2, (int64_t[]){8, 5});
        tensor.strided = true;
        memcpy(tensor.strides, layouts[i].strides, sizeof layouts[i].strides);
        tensor.data = (int32_t *)block(state, (size_t)layouts[i].room * 4) + layouts[i].first;
        formula_fill(layouts[i].key, &tensor);
        dcp_state_tensor(dict, layouts[i].key, &tensor);
        describe_tensor(state, "strides", layouts[i].key, &tensor);
    }
}

/* A flattened range per rank, several rows per rank, a tensor that one rank has, a large one. */
static void add_irregular(struct matrix_state *state)
{
    dcp_state *dict = dcp_state_dict(state->root, "irregular");
    dcp_tensor tensor = shaped(DCP_F64, 3, (int64_t[]){3, 5, 4});
    double *whole = block(state, 60 * sizeof *whole);
    int64_t start = 60 * state->rank / state->ranks;
    int64_t end = 60 * (state->rank + 1) / state->ranks;

    tensor.data = whole;
    formula_fill("flat", &tensor);
    dcp_state_flat_range(dict, "flat", &tensor, start, end - start, whole + start);
    describe_tensor(state, "irregular", "flat", &tensor);

    dcp_state *node = NULL;
    tensor = shaped(DCP_I16, 2, (int64_t[]){11, 3});
    tensor.sharded = true;
    for (int64_t row = state->rank; row < 11; row += state->ranks) {
        tensor.offsets[0] = row;
        tensor.sizes[0] = 1;
        tensor.sizes[1] = 3;
        fill(state, "dealt", &tensor);
        if (node)
            dcp_state_add_chunk(node, &tensor);
        else
            node = dcp_state_tensor(dict, "dealt", &tensor);
    }
    describe_tensor(state, "irregular", "dealt", &tensor);

    tensor = shaped(DCP_F16, 1, (int64_t[]){9});
    if (state->rank == state->ranks - 1) {
        fill(state, "only", &tensor);
        dcp_state_tensor(dict, "only", &tensor);
    }
    describe_tensor(state, "irregular", "only", &tensor);
    add_replicated(state, "irregular", dict, "large", shaped(DCP_F32, 2, (int64_t[]){700, 500}));
}

void matrix_state_build(struct matrix_state *state)
{
    state->root = dcp_state_new();
    add_dtypes(state);
    add_placements(state);
    add_strides(state);
    add_irregular(state);
    matrix_add_objects(state);
}

void matrix_state_free(struct matrix_state *state)
{
    dcp_state_free(state->root);
    for (size_t i = 0; i < state->block_count; i++)
        free(state->blocks[i]);
}
