/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads what save_compressed_with_torch.py has saved within a limit of memory far below its chunks,
 * reads it through a handle, and verifies it.
 *
 *     load_compressed CHECKPOINT...
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "dcp.h"

#define LIMIT ((uint64_t)16 << 20)

struct box {
    const char *name;
    int64_t shape[2];
    int64_t offsets[2];
    int64_t sizes[2];
};

static const struct box boxes[] = {
    {"tall", {8192, 2048}, {0, 0}, {8192, 2048}},   {"tall", {8192, 2048}, {0, 700}, {8192, 512}},
    {"tall", {8192, 2048}, {8000, 0}, {192, 2048}}, {"turned", {1200, 1500}, {0, 0}, {1200, 1500}},
    {"turned", {1200, 1500}, {100, 7}, {1000, 1}},  {"turned", {1200, 1500}, {5, 9}, {2, 1400}},
};

static void give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, dcp_error_message());
    exit(1);
}

static dcp_tensor describe(const struct box *box)
{
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .sharded = true};
    for (int d = 0; d < 2; d++) {
        tensor.global_shape[d] = box->shape[d];
        tensor.offsets[d] = box->offsets[d];
        tensor.sizes[d] = box->sizes[d];
    }
    tensor.data = calloc((size_t)(box->sizes[0] * box->sizes[1]), sizeof(float));
    if (!tensor.data)
        give_up("no memory");
    return tensor;
}

static void compare(const struct box *box, const float *values)
{
    for (int64_t i = 0; i < box->sizes[0]; i++)
        for (int64_t j = 0; j < box->sizes[1]; j++) {
            int64_t row = box->offsets[0] + i, column = box->offsets[1] + j;
            float found = values[i * box->sizes[1] + j];
            if (found != (float)((row * 31 + column * 7) % 4093)) {
                fprintf(stderr, "%s at %" PRId64 ", %" PRId64 ": %f\n", box->name, row, column,
                        (double)found);
                exit(1);
            }
        }
}

static void load(const char *path, const struct box *box)
{
    dcp_tensor tensor = describe(box);
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = {.memory_limit = LIMIT, .figures = &figures};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, box->name, &tensor);
    if (dcp_load(root, path, &options, NULL) != DCP_OK)
        give_up(box->name);
    if (figures.peak_memory > LIMIT)
        give_up("the limit was not kept");
    compare(box, tensor.data);
    dcp_state_free(root);
    free(tensor.data);
}

/* Some rows after the others. */
static void read_rows(dcp_checkpoint *checkpoint, const struct box *box)
{
    size_t entry;
    if (dcp_checkpoint_find(checkpoint, box->name, &entry) != DCP_OK)
        give_up(box->name);
    for (int64_t row = 0; row < box->sizes[0]; row += 900) {
        struct box rows = *box;
        rows.offsets[0] += row;
        rows.sizes[0] = box->sizes[0] - row < 900 ? box->sizes[0] - row : 900;
        dcp_tensor tensor = describe(&rows);
        if (dcp_checkpoint_read_tensor(checkpoint, entry, &tensor, NULL) != DCP_OK)
            give_up(box->name);
        compare(&rows, tensor.data);
        free(tensor.data);
    }
}

static void look_at(const char *path)
{
    dcp_checkpoint *checkpoint;
    uint64_t faults = 1;
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        load(path, &boxes[i]);
    if (dcp_checkpoint_open(path, NULL, &checkpoint) != DCP_OK)
        give_up(path);
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        read_rows(checkpoint, &boxes[i]);
    dcp_checkpoint_close(checkpoint);
    if (dcp_verify(path, NULL, NULL, NULL, &faults) != DCP_OK || faults != 0)
        give_up("verification");
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        look_at(argv[i]);
    return argc > 1 ? 0 : 2;
}
