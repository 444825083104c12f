/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves parts of a state, as ranks of a job would by themselves: save_parts DIRECTORY RANKS.
 *
 *   ranks    metadata of each rank, in one directory
 *   partN    what rank N holds, as a partial checkpoint of its own
 *   whole    all of it, by a save that may be partial */
#include <stdio.h>
#include <stdlib.h>

#include "dcp.h"

enum { ROWS = 12, COLUMNS = 3 };

static dcp_status save(const char *path, int rank, int ranks, const dcp_save_options *options)
{
    float data[ROWS * COLUMNS];
    double same[2] = {1.5, 2.5};
    int64_t count = ROWS / ranks;
    for (int i = 0; i < count * COLUMNS; i++)
        data[i] = (float)(rank * count * COLUMNS + i);
    const dcp_tensor rows = {.dtype = DCP_F32,
                             .ndim = 2,
                             .sharded = true,
                             .data = data,
                             .global_shape = {ROWS, COLUMNS},
                             .offsets = {rank * count, 0},
                             .sizes = {count, COLUMNS}};
    const dcp_tensor replica = {.dtype = DCP_F64, .ndim = 1, .data = same, .global_shape = {2}};
    dcp_state *root = dcp_state_new();
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_state_tensor(model, "rows", &rows);
    dcp_state_tensor(model, "same", &replica);
    dcp_state_int(root, "step", 7);
    dcp_status status = dcp_save(root, path, options);
    if (status != DCP_OK)
        fprintf(stderr, "%s\n", dcp_error_message());
    dcp_state_free(root);
    return status;
}

int main(int argc, char **argv)
{
    char path[4096];
    int ranks = argc == 3 ? atoi(argv[2]) : 0;
    bool good = ranks > 0 && ranks <= ROWS && ROWS % ranks == 0;
    dcp_save_options partial = {.overwrite = DCP_OVERWRITE_REPLACE, .allow_partial = true};
    for (int rank = 0; rank < ranks && good; rank++) {
        dcp_save_options alone = {
            .overwrite = DCP_OVERWRITE_REPLACE, .without_collectives = true, .rank = rank};
        snprintf(path, sizeof path, "%s/ranks", argv[1]);
        good = save(path, rank, ranks, &alone) == DCP_OK;
        snprintf(path, sizeof path, "%s/part%d", argv[1], rank);
        good = good && save(path, rank, ranks, &partial) == DCP_OK;
    }
    if (good) {
        snprintf(path, sizeof path, "%s/whole", argv[1]);
        good = save(path, 0, 1, &partial) == DCP_OK;
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
