/* SPDX-License-Identifier: BSD-3-Clause */
/* Materializing tensors while loading: a model whose tensors have no memory yet (PyTorch's "meta"
 * device) gives it when the loader asks where a tensor goes, and takes note when its elements have
 * come. Half of the memory will do: what is stored as float32 arrives as bfloat16.
 *
 *     load_materialized DIRECTORY
 */
#include <dcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, SIZE = 8 };

/* A layer of the model: nothing until it is loaded. */
struct layer {
    char name[16];
    uint16_t *weight; /* bfloat16 */
    int64_t loaded;   /* elements that have come */
};

static struct layer *find_layer(struct layer *layers, const char *name)
{
    for (int i = 0; i < LAYERS; i++)
        if (strcmp(layers[i].name, name) == 0)
            return &layers[i];
    return NULL;
}

/* The whole chunk: the library narrows it to the part that it is about to read. */
static dcp_status allocate(void *context, dcp_loading *loading, const dcp_read_item *item,
                           dcp_tensor *chunk)
{
    struct layer *layer = find_layer(context, item->destination.name);
    dcp_status status = dcp_load_default_lookup_tensor(loading, item, chunk);
    if (status != DCP_OK || chunk->data || !layer)
        return status;
    if (!layer->weight)
        layer->weight = calloc(SIZE * SIZE, sizeof *layer->weight);
    if (!layer->weight)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", layer->name);
    chunk->data = layer->weight;
    chunk->dtype = DCP_BF16;
    return DCP_OK;
}

static dcp_status count(void *context, dcp_loading *loading, const dcp_read_item *item,
                        const dcp_tensor *part)
{
    struct layer *layer = find_layer(context, item->destination.name);
    (void)loading;
    if (layer)
        layer->loaded += part->sizes[0] * part->sizes[1];
    return DCP_OK;
}

static void add_layers(dcp_state *state, struct layer *layers, float *data)
{
    const dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .data = data, .global_shape = {SIZE, SIZE}};
    for (int i = 0; i < LAYERS; i++) {
        snprintf(layers[i].name, sizeof layers[i].name, "layer%d", i);
        dcp_state_tensor(state, layers[i].name, &tensor);
    }
}

static dcp_status save_model(const char *path)
{
    float ones[SIZE * SIZE];
    struct layer layers[LAYERS] = {{.loaded = 0}};
    const dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    for (int i = 0; i < SIZE * SIZE; i++)
        ones[i] = 1;
    dcp_state *state = dcp_state_new();
    add_layers(state, layers, ones);
    dcp_status status = dcp_save(state, path, &options);
    dcp_state_free(state);
    return status;
}

static dcp_status load_model(const char *path, struct layer *layers)
{
    const dcp_load_planner planner = {.size_of = sizeof planner,
                                      .context = layers,
                                      .lookup_tensor = allocate,
                                      .commit_tensor = count};
    const dcp_load_options options = {.planner = &planner};
    dcp_state *state = dcp_state_new();
    add_layers(state, layers, NULL);
    dcp_status status = dcp_load(state, path, &options, NULL);
    dcp_state_free(state);
    return status;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "materialized.checkpoint";
    struct layer layers[LAYERS] = {{.loaded = 0}};
    bool right = save_model(path) == DCP_OK && load_model(path, layers) == DCP_OK;
    if (!right)
        fprintf(stderr, "%s\n", dcp_error_message());
    for (int i = 0; i < LAYERS; i++) {
        /* 1 is 0x3f80 in bfloat16 */
        right = right && layers[i].loaded == SIZE * SIZE && layers[i].weight[0] == 0x3f80;
        free(layers[i].weight);
    }
    if (right)
        printf("%d layers have memory and elements now\n", LAYERS);
    return right ? 0 : 1;
}
