/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves a state whose nested values are stored whole: save_unflattened DIRECTORY. */
#include <stdio.h>
#include <stdlib.h>

#include "dcp.h"

enum { COUNTERS = 40 };

int main(int argc, char **argv)
{
    static float weights[2][3] = {{0, 1, 2}, {3, 4, 5}};
    static uint16_t counters[COUNTERS];
    static double number = 0.5;
    if (argc != 2)
        return EXIT_FAILURE;
    dcp_tensor weight = {.dtype = DCP_F32,
                         .ndim = 2,
                         .strided = true,
                         .requires_grad = true,
                         .global_shape = {3, 2},
                         .strides = {1, 3},
                         .data = weights};
    dcp_tensor scalar = {.dtype = DCP_F64, .data = &number};
    dcp_tensor empty = {.dtype = DCP_BF16, .ndim = 5, .global_shape = {2, 0, 1, 1, 3}};
    dcp_tensor counter = {.dtype = DCP_U16, .ndim = 1, .global_shape = {1}};
    dcp_state *root = dcp_state_new();
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_state_tensor(dcp_state_dict(model, "layer"), "weight", &weight);
    dcp_state_tensor(model, "number", &scalar);
    dcp_state_tensor(model, "empty", &empty);
    dcp_state *list = dcp_state_list(model, "counters");
    for (int i = 0; i < COUNTERS; i++) {
        counters[i] = (uint16_t)(1000 + i);
        counter.data = &counters[i];
        dcp_state_tensor(list, NULL, &counter);
    }
    dcp_state_int(model, "epoch", 3);
    dcp_state_tensor(root, "plain", &scalar);
    dcp_state_int(root, "step", 7);
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .unflattened = true};
    dcp_status status = dcp_save(root, argv[1], &options);
    if (status != DCP_OK)
        fprintf(stderr, "%s\n", dcp_error_message());
    dcp_state_free(root);
    return status == DCP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
