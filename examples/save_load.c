/* SPDX-License-Identifier: BSD-3-Clause */
/* The ten-minute tour: save a state, look at the checkpoint, load it, and load it again in another
 * division of its tensors. Run it as: save_load DIRECTORY */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dcp.h>

enum { ROWS = 6, COLUMNS = 5 };

static int fail(const char *what, dcp_status status)
{
    fprintf(stderr, "%s: %s: %s\n", what, dcp_status_string(status), dcp_error_message());
    return 1;
}

/* A tree of dicts and lists, as a PyTorch state_dict. Tensors are borrowed, the rest is copied, and
 * an error on the way is kept by the tree until the save reports it. */
static dcp_status save(const char *path)
{
    float weight[ROWS][COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            weight[i][j] = (float)(10 * i + j);

    dcp_state *root = dcp_state_new();
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .data = weight};
    dcp_state_tensor(model, "layer.weight", &tensor);

    dcp_state *train = dcp_state_dict(root, "train");
    dcp_state_int(train, "step", 1000);
    dcp_state_float(train, "learning_rate", 3e-4);
    dcp_state *betas = dcp_state_tuple(train, "betas");
    dcp_state_float(betas, NULL, 0.9);
    dcp_state_float(betas, NULL, 0.95);

    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    dcp_status status = dcp_save(root, path, &options);
    dcp_state_free(root);
    return status;
}

/* What is in a checkpoint, without loading it. */
static dcp_status list(const char *path)
{
    dcp_checkpoint *checkpoint = NULL;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);

    for (size_t i = 0; status == DCP_OK && i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        if (status == DCP_OK && entry.is_tensor)
            printf("%-20s %s, %" PRIu64 " bytes in %zu chunks\n", entry.name,
                   dcp_dtype_name(entry.dtype), entry.bytes, entry.chunk_count);
        else if (status == DCP_OK)
            printf("%-20s object\n", entry.name);
    }
    dcp_checkpoint_close(checkpoint);
    return status;
}

/* A load fills a tree of the same form. A tensor without memory gets some. */
static dcp_status load(const char *path)
{
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    dcp_state *weight = dcp_state_tensor(dcp_state_dict(root, "model"), "layer.weight", &tensor);
    dcp_state *train = dcp_state_dict(root, "train");
    int64_t step = 0;

    dcp_state_none(train, "step"); /* a place holder: objects are replaced by what is stored */
    dcp_status status = dcp_load(root, path, NULL, NULL);
    if (status == DCP_OK)
        status = dcp_state_chunk(weight, 0, &tensor);
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(train, "step"), &step);
    if (status == DCP_OK)
        printf("step %" PRId64 ", weight[5][3] = %g\n", step,
               (double)((const float *)tensor.data)[5 * COLUMNS + 3]);
    dcp_state_free(root);
    return status;
}

/* The same checkpoint, at another topology: what rank `rank` of `ranks` would load of it. */
static dcp_status load_shard(const char *path, int rank, int ranks)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {ranks}, .rank = rank};
    dcp_placement by_columns = dcp_shard(1);
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    float columns[ROWS * COLUMNS] = {0};

    dcp_status status = dcp_mesh_shard(&mesh, &tensor, &by_columns);
    if (status != DCP_OK)
        return status;
    tensor.data = columns;

    dcp_state *root = dcp_state_new();
    dcp_state_tensor(dcp_state_dict(root, "model"), "layer.weight", &tensor);
    status = dcp_load(root, path, NULL, NULL);
    dcp_state_free(root);
    if (status != DCP_OK)
        return status;
    printf("rank %d of %d: %" PRId64 " columns from %" PRId64 ", first row:", rank, ranks,
           tensor.sizes[1], tensor.offsets[1]);
    for (int64_t j = 0; j < tensor.sizes[1]; j++)
        printf(" %g", (double)columns[j]);
    putchar('\n');
    return DCP_OK;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    dcp_status status = save(argv[1]);
    if (status != DCP_OK)
        return fail("save", status);
    status = list(argv[1]);
    if (status != DCP_OK)
        return fail("list", status);
    status = load(argv[1]);
    for (int rank = 0; status == DCP_OK && rank < 3; rank++)
        status = load_shard(argv[1], rank, 3);
    return status == DCP_OK ? 0 : fail("load", status);
}
